// The attention over caches that a rule recognised. An expression of an element writes i_k for the
// index on axis k of its tensor.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "ir/graph.h"
#include "sym/forms/forms.h"

namespace kvlift {

// An axis of a tensor that is fixed at one index, such as the layer axis of a tensor that holds the
// caches of several layers.
struct FixedAxis {
  int axis = 0;
  int64_t index = 0;

  friend bool operator==(const FixedAxis&, const FixedAxis&) = default;
};

// The axes of heads in a model's scores.
enum class HeadsOfScores {
  kOneAxis,  // [B, N, S, T]
  kInBatch,  // [B*N, S, T]
  kTwoAxes   // [B, Nk, N / Nk, S, T]
};

// A value that is added to the scores and is not a mask of 0 and a minimum. It broadcasts to the
// scores' shape; with heads on two axes it has both, or does not depend on them.
struct Bias {
  ValueId value = kNoValue;
  HeadsOfScores heads = HeadsOfScores::kOneAxis;
};

// Attention reads the stored rows.
struct RowsAsStored {};

// Attention reads the stored rows in a floating-point type that holds all of their numbers.
struct CastRows {
  int32_t elem_type = 0;  // onnx TensorProto::DataType
};

// Attention reads rows that nodes of the source make from the stored rows: one DequantizeLinear
// with a constant scalar scale, or the nodes of DecodedRows (rewrite/lower/fused/decoded_rows.h).
struct ComputedRows {
  std::vector<NodeId> nodes;   // one or more, in the order in which they run
  std::vector<ValueId> roots;  // the operands of `nodes` that are the stored rows
};

// How the keys or values of one attention, [B, Nk, T, D], lie in a cache.
struct CacheView {
  std::vector<FixedAxis> fixed_axes;  // of a tensor that packs several caches; empty: it holds one
  int64_t heads = 0;                  // Nk
  int64_t first_head = 0;             // index on the cache's axis N of the attention's head 0
  int64_t first_element = 0;          // index on the cache's axis D of the attention's element 0
  bool batch_times_heads = false;     // the cache's axis B counts batch * Nk + head
  std::variant<RowsAsStored, CastRows, ComputedRows> rows;

  // Returns the nodes of ComputedRows; empty for the other ways to read rows.
  absl::Span<const NodeId> decode() const {
    const auto* computed = std::get_if<ComputedRows>(&rows);
    return computed == nullptr ? absl::Span<const NodeId>() : absl::MakeConstSpan(computed->nodes);
  }
};

// The keys or the values of an attention.
struct CacheOperand {
  int cache = -1;  // index into the recognised caches; -1: the operand is not a cache
  CacheView view;
};

// The mask of an attention, and the values that are added to its scores. Predicates have the
// indices b = i0, h = i1, s = i2, t = i3.
struct AttentionMask {
  sym::Expr keep = nullptr;  // predicate: the mask leaves the key visible
  sym::Expr keys = nullptr;  // extent of t
  std::vector<Bias> biases;
  // Predicate: where it is false, the biases hide the key. Where it is true, they may do so.
  sym::Expr bias_keep = nullptr;
};

// The source has an Attention operator; its result is [B, N, S, Dv].
struct AttentionOperator {
  bool states_length = false;  // it is given nonpad_kv_seqlen; a query without visible keys gives 0
};

// The axes of heads in operands and results.
struct HeadsOnAnAxis {};  // [B, N, S, D]
struct HeadsInBatch {};   // [B*N, S, D]
struct HeadsByGroup {
  int64_t groups = 1;
};  // [B, N / G, G, S, D], G = `groups`
using HeadAxes = std::variant<HeadsOnAnAxis, HeadsInBatch, HeadsByGroup>;

// The source spells the attention out: MatMul, Softmax, MatMul.
struct AttentionSpelledOut {
  HeadAxes heads;            // of the result
  int32_t product_type = 0;  // onnx TensorProto::DataType of q k^T
  double operand_scale = 1;  // the part of the scale that is applied to queries and keys
  bool nan_guard = false;    // a row of NaN, as of a fully masked query, is replaced by 0
};

// softmax(softcap(scale * q k^T) + biases + mask) v, with k and v read from caches. With a sink,
// the softmax has the scores of one more key, which is visible to all queries and whose value is 0.
struct AttentionSite {
  NodeId node = kNoNode;     // its output 0, with a row for each query, is replaced
  ValueId query = kNoValue;  // with any HeadAxes; not yet scaled
  CacheOperand key, value;
  int64_t q_heads = 0, head_dim = 0, v_head_dim = 0;  // N, D, Dv; Nk is key.view.heads
  double scale = 0;
  double softcap = 0;  // 0: no softcap
  // onnx TensorProto::DataType in which the softmax is computed; 0: the operator's default.
  int32_t softmax_type = 0;
  AttentionMask mask;
  // The score of the sink for query head h = i1, of the softmax's type; null: there is no sink.
  sym::Expr sink = nullptr;
  std::variant<AttentionOperator, AttentionSpelledOut> spelling;
  std::vector<NodeId> nodes;  // the source's nodes that the site stands for
};

// Returns where the heads of the site's result are.
HeadAxes HeadAxesOf(const AttentionSite& site);
// Returns true if the source gives 0 for a query without visible keys: behind a guard against NaN,
// or because only a sink is left. It may give another number, or NaN, if this returns false.
bool GivesZeroWithoutKeys(const AttentionSite& site);

// Returns the shape of the queries as [B, N, S, D]. The rank of site.query must be known.
std::vector<sym::Expr> QueryShape(sym::Forms& forms, const AttentionSite& site);

}  // namespace kvlift
