// Renames dim symbols of a graph that gives one name to different lengths, or different names to
// one length.
//
// Exporters name the row axes of all pasts alike, although a past that keeps the last W rows has
// fewer than the others once it is full. Without other names, a length that the graph reads from
// one would be taken for that of the other. Other exporters give the row axis of each past a name
// of its own, although all caches of a step hold the same number of tokens (KV304): a mask as long
// as one past would not be known to fit the scores over another. The same goes for the axes of
// sequences.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/graph.h"
#include "rewrite/types/cache_update.h"
#include "sym/forms/forms.h"

namespace kvlift {

// Returns the graph in which no cache that keeps a window shares the name of its rows with other
// inputs or with a window of another size; null if none does. Values keep their ids.
absl::StatusOr<std::shared_ptr<const Graph>> WithWindowLengths(
    const Graph& graph, absl::Span<const CacheUpdate> updates);

// Returns the graph in which the rows of all pasts that grow by the same number of rows, and keep
// all or the same window, have one name, which replaces the others at all graph inputs; null if
// they have. Values keep their ids.
absl::StatusOr<std::shared_ptr<const Graph>> WithOneLength(const Graph& graph,
                                                           absl::Span<const CacheUpdate> updates);

// Returns the graph in which sizes that operators make equal in every run have one name, as far as
// `forms` has seen such operators; null if they have. Values keep their ids.
absl::StatusOr<std::shared_ptr<const Graph>> WithEqualNames(const Graph& graph,
                                                            const sym::Forms& forms);

// Returns the graph in which the rows of matrices that the graph reads as one row for each sequence
// have the name of the sequences (sym::RowNamesOf); null if they have. Values keep their ids.
absl::StatusOr<std::shared_ptr<const Graph>> WithRowNames(const Graph& graph, sym::Forms& forms);

}  // namespace kvlift
