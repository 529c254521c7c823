// Reads from forms how a present is made of its past: rows put behind it, or rows written into it.
#pragma once

#include <optional>
#include <vector>

#include "rewrite/types/rule.h"
#include "sym/forms/forms.h"

namespace kvlift {

// A present that is past[.., t, ..] for t < length and has new rows behind it.
struct Append {
  int axis = -1;  // the sequence axis
  // The row at which past and new rows meet: P or, if `reversed`, S.
  sym::Expr length = nullptr;
  sym::Expr update = nullptr;  // element of the new rows; i_axis counts them from 0
  // Set if the past's sequences are reordered: past[x[i0], .., t, ..], where i0 is the index of the
  // axis of sequences. Null: they stay in place.
  sym::Expr reordered_past = nullptr;
  // The new rows stand in front of the past.
  bool reversed = false;
};

// Reads `v` as the past with rows behind it. Returns nullopt if it is anything else.
std::optional<Append> ReadAppend(sym::Forms& forms, ValueId past, ValueId v);

// A present that has new rows at some slots of a buffer, and the past's rows at all others.
struct Write {
  int axis = -1;  // the sequence axis
  // Slot of the first new row; contains the index of the axis of sequences at most.
  sym::Expr start = nullptr;
  sym::Expr length = nullptr;  // S, without indices and loads
  sym::Expr update = nullptr;  // element of the new rows; i_axis counts from `start`
  // Set if the past's sequences are reordered, as in Append. Null: they stay in place.
  sym::Expr reordered_past = nullptr;
  // Only a part of the other axes is written, such as the first sequences of a larger batch;
  // `update` repeats the past's rows for the rest.
  bool writes_some_sequences = false;
};

// The name of a size that may be the number of new tokens, and the number of slots of a buffer.
struct TokensThatFit {
  sym::DimSymbol tokens;
  int64_t slots = 0;
};

// Returns pairs of sizes for which ReadWrite may read the present of a buffer once tokens <= slots
// is assumed. An example is a present that is spliced from slices around a start that is clamped to
// slots - tokens. Empty if ReadWrite needs no assumption, or if the cache grows.
std::vector<TokensThatFit> TokensThatMayFit(sym::Forms& forms, const CachePair& pair);

// Each of the next three functions returns nullopt if the present does not have the past's shape,
// or is made in another way.
// Reads a present with the update at slots start <= t < start + length.
std::optional<Write> ReadWrite(sym::Forms& forms, const CachePair& pair);
// Reads a present with the update at slots (start + s) mod M, s < length. `axis` is never 0.
std::optional<Write> ReadRing(sym::Forms& forms, const CachePair& pair);
// Reads a present that is past[.., t + length, ..] for t < M - length, with the update behind it.
// `start` stays null, and `axis` is never 0.
std::optional<Write> ReadShift(sym::Forms& forms, const CachePair& pair);

// Returns false if the update takes the past in another order on an axis that is not that of the
// sequences. Needs its layout.
bool ReordersSequencesOnly(sym::Pool& pool, const CacheUpdate& update);

// Returns the update of a buffer of fixed capacity. Returns nullopt if the past's axes have no
// layout (rewrite/recognise/axis_letters.h), or if the number of rows depends on the number of
// sequences.
std::optional<CacheUpdate> BufferUpdate(sym::Forms& forms, const CachePair& pair,
                                        const Write& write, CacheUpdate::How how);

}  // namespace kvlift
