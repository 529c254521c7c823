// How a recognised cache is updated: one type for each way in which a model makes a present from
// its past. The steps ask by the methods of CacheUpdate, so that a new way is described in one
// file, cache_update.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "contract/kinds.h"
#include "contract/manifest.h"
#include "ir/graph.h"
#include "sym/expr/expr.h"

namespace kvlift {

// Returns the dim symbol P, the past length in tokens, for expressions of models that have no
// symbol of their own for it, or several.
inline sym::DimSymbol PastSymbol() { return sym::DimSymbol::Internal("P"); }

// A graph input (past) and the graph output (present) that the host feeds back into it.
struct CachePair {
  ValueId past = kNoValue;
  ValueId present = kNoValue;
};

// The new rows are put behind the past, and the present has all rows: [.., P, ..] ->
// [.., P+S, ..].
struct AppendAll {
  sym::Expr past_length = nullptr;  // P, in rows: a dim symbol
  // The source holds the newest rows only, in such a buffer; absent: it holds all rows.
  std::optional<SlidingBuffer> sliding = std::nullopt;
};

// The new rows are put behind the past, and the present has the last `window` rows:
// [.., P, ..] -> [.., min(P+S, window), ..].
struct KeepLast {
  sym::Expr past_length = nullptr;       // P, in rows, at most `window`: a dim symbol
  int64_t window = 0;                    // in rows, 1 or more
  ValueId read_by_attention = kNoValue;  // [.., P+S, ..]: the past with all new rows behind it
};

// The operator by which a model writes into a buffer.
enum class WriteSpelling { kScatter, kSplice, kSelect, kBlend };

// Row s of the new rows is written to slot start + s of a buffer, [.., M, ..]. A slot is an index
// on the sequence axis.
struct WriteAt {
  sym::Expr start = nullptr;  // a slot; contains the index of the axis of sequences at most
  WriteSpelling spelling = WriteSpelling::kScatter;
  // The source writes only a part of the other axes, such as the first sequences of a larger batch;
  // CacheUpdate::update repeats the past's rows for the rest.
  bool writes_some_sequences = false;
};

// Row s of the new rows is written to slot (start + s) mod M of a buffer, [.., M, ..].
struct WriteAround {
  // A slot before the modulo; contains the index of the axis of sequences at most.
  sym::Expr start = nullptr;
};

// First in, first out: all rows of a buffer, [.., M, ..], move by S slots towards slot 0, and the
// new rows are the last S.
struct Fifo {};

// A cache that a rule recognised. Expressions of elements write i_k for the index on axis k.
struct CacheUpdate {
  using How = std::variant<AppendAll, KeepLast, WriteAt, WriteAround, Fifo>;

  CacheUpdate(const CachePair& cache, How update_of_cache) : pair(cache), how(update_of_cache) {}

  CachePair pair;
  How how;
  std::string layout;  // one letter per axis of the past: see rewrite/recognise/axis_letters.h
  int axis = 0;        // the sequence axis, letter S of `layout`
  // Element of the past in the order of sequences in which the new rows are written to it (beam
  // search); null: the order is that of the past.
  sym::Expr reordered_past = nullptr;
  sym::Expr new_length = nullptr;      // S, in rows
  sym::Expr update_element = nullptr;  // of the new rows, over the past's axes; i_axis is in [0, S)
  ValueId update = kNoValue;  // a value of the graph with exactly this element; kNoValue: no such
  NodeId node = kNoNode;      // the producer of the present, for findings

  // Returns true if the present has more rows than the past; false for buffers of M slots.
  bool grows() const;
  // Returns W if the present has the last W rows only; absent: it has all rows, or is a buffer.
  std::optional<int64_t> window() const;
  // Returns the slot to which TensorScatter writes the first new row, before a modulo: P for caches
  // that grow, `start` for buffers, and PastSymbol() for Fifo.
  sym::Expr write_index(sym::Pool& pool) const;
  // Returns the value that attention reads.
  ValueId read_by_attention() const;
  bool writes_some_sequences() const;
  UpdateKind kind() const;
  // Returns the dim symbol that is the number of rows in the past of a cache that grows, and that
  // number in terms of PastSymbol(). Absent: the cache is a buffer.
  std::optional<std::pair<sym::Expr, sym::Expr>> rows_of_past(sym::Pool& pool) const;
  // Returns the row of the source's present that query 0 of a step sees at most, before a modulo;
  // query s sees s rows more. It is the row of the first new token; `slots` is M.
  sym::Expr first_new_row(sym::Pool& pool, sym::Expr slots) const;
  // Returns true if each sequence has a write index of its own, and the axis of sequences is behind
  // another one. TensorScatter has an index for each place on the first axis.
  bool has_indices_behind_front(sym::Pool& pool) const;
  // Returns why all sequences must be written at one index, as the end of a sentence; absent: each
  // can be written at an index of its own.
  std::optional<std::string_view> needs_one_index() const;
  // Returns why attention cannot be given a whole buffer of this cache, as the end of a sentence;
  // absent: it can, since row t is in slot t, or is in a ring.
  std::optional<std::string_view> needs_views() const;
  // Returns true if the result may store the rows in another layout than the source.
  bool may_have_other_layout() const;
  // Returns what happens to rows at the ends of the cache, in words for the text of a step.
  std::string_view order_of_rows() const;
};

}  // namespace kvlift
