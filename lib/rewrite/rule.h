// The results of recognisers (caches, attentions, refusals), and the registration of rules.
//
// A rule is one file in rewrites/: NAME.cc defines `const Rule& NAME()` in namespace
// kvlift::rewrites; the build generates the sorted table behind AllRules(). An expression of an
// element writes i_k for the index on axis k of its tensor.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "base/findings.h"
#include "contract/kinds.h"
#include "ir/graph.h"
#include "sym/forms.h"

namespace kvlift {

// The dim symbol P, the past length in tokens, for expressions of models that have no symbol of
// their own for it, or several.
inline sym::DimSymbol PastSymbol() { return sym::DimSymbol::Internal("P"); }

// A graph input (past) and the graph output (present) that the host feeds back into it.
struct CachePair {
  ValueId past = kNoValue;
  ValueId present = kNoValue;
};

// An axis of a tensor that is fixed at one index, such as the layer axis of a tensor that holds the
// caches of several layers.
struct Lane {
  int axis = 0;
  int64_t index = 0;

  friend bool operator==(const Lane&, const Lane&) = default;
};

// A value that is added to the scores and is not a mask of 0 and a minimum. It broadcasts to
// [B, N, S, T], or to [B*N, S, T] if `folded`.
struct Bias {
  ValueId value = kNoValue;
  bool folded = false;
};

// How the keys or values of one attention, [B, Nk, T, D], lie in a cache.
struct CacheView {
  std::vector<Lane> lanes;  // fixed axes of a tensor that holds several caches; empty: it holds one
  int64_t heads = 0;        // Nk
  int64_t offset = 0;       // index on the cache's axis D of the attention's first element
  bool folded = false;      // the cache's axis B counts batch * Nk + head
  // The nodes that make the rows which attention reads from the stored rows, in the order in which
  // they run: one DequantizeLinear with a constant scalar scale, or the nodes of DecodedRows
  // (rewrite/decoded_rows.h). Empty: attention reads the stored rows.
  std::vector<NodeId> decode;
  std::vector<ValueId> decoded;  // the operands of `decode` that are the stored rows
};

// How a present is made from its past: the rows of `update` are written from slot `start` on, where
// a slot is an index on the sequence axis. A growing cache gets them behind the past,
// [.., P, ..] -> [.., P+S, ..]; other caches are buffers of fixed capacity, [.., M, ..] both.
struct CacheUpdate {
  CachePair pair;
  UpdateKind kind = UpdateKind::kConcat;
  std::string layout;  // one letter per axis of the past: see rewrite/layout.h
  int axis = 0;        // the sequence axis, letter S of `layout`
  bool growing = true;
  // Slot of the first new row. Growing: P, the past's extent on `axis`, a dim symbol. Otherwise an
  // expression that contains the batch index i0 at most.
  sym::Expr start = nullptr;
  sym::Expr new_length = nullptr;  // S, in rows
  // Growing only: the present keeps the last `window` rows, and the past has no more than that;
  // 0: the present keeps all rows.
  int64_t window = 0;
  // The value that attention reads: with a window, the past with all new rows behind it; otherwise
  // the present.
  ValueId attended = kNoValue;
  // Growing only: the element of the past in the order of sequences in which the new rows are put
  // behind it (beam search); null: the order is that of the past.
  sym::Expr base = nullptr;
  // Element of the update over the past's axes; the index on `axis` is in [0, S).
  sym::Expr update_element = nullptr;
  ValueId update = kNoValue;  // a value of the graph with exactly this element; kNoValue: no such
  // The source writes a part of the other axes only, such as the first sequences of a larger batch;
  // `update` repeats the past's rows for the rest.
  bool part = false;
  // Rows go to slots modulo the capacity: TensorScatter's circular mode.
  bool circular = false;
  int64_t visible = 0;  // ring() only: rows that attention reads besides the new ones
  // Circular only: the source moves its rows towards slot 0 and puts the new ones at the end (first
  // in, first out). Row t of its present is what the result has in slot (t + P + S) mod M, and
  // `start` is P, the symbol PastSymbol().
  bool shifts = false;
  NodeId node = kNoNode;  // the producer of the present, for findings

  // The cache grows in the source and becomes a ring buffer of C slots, C >= visible + S: token t
  // is in slot t mod C.
  bool ring() const { return growing && circular; }
};

// softmax(softcap(scale * q k^T) + biases + mask) v, with k and v read from caches.
struct AttentionSite {
  std::string form;          // "decomposed" or "op" (an Attention operator)
  NodeId node = kNoNode;     // its output 0, [B, N, S, Dv], is replaced
  bool folded = false;       // output 0 is [B*N, S, Dv]
  ValueId query = kNoValue;  // [B, N, S, D], or [N, S, D] of one sequence; not yet scaled
  int key_cache = -1;        // index into the recognised caches; -1: none was found
  int value_cache = -1;
  CacheView key_view, value_view;
  int64_t q_heads = 0, kv_heads = 0, head_dim = 0, v_head_dim = 0;  // N, Nk, D, Dv
  double scale = 0;
  double moved = 1;  // the part of `scale` by which the source multiplies queries and keys
  // onnx TensorProto::DataType of q k^T; 0 for "op".
  int32_t product_type = 0;
  double softcap = 0;  // 0: no softcap
  // onnx TensorProto::DataType in which the softmax is computed; 0: the operator's default.
  int32_t softmax_type = 0;
  // keep(b, h, s, t) with b = i0, h = i1, s = i2, t = i3: the mask leaves the key visible.
  sym::Expr keep = nullptr;
  sym::Expr keys = nullptr;  // extent of t
  std::vector<Bias> biases;
  // What is known of the biases: where this predicate is false, they hide the key.
  sym::Expr bias_keep = nullptr;
  bool finite_minimum = false;  // masked scores get a finite number instead of -inf
  bool nan_guard = false;       // a row of NaN, as of a fully masked query, is replaced by 0
  std::vector<NodeId> nodes;    // the source's nodes that the site stands for
};

// Returns the shape of the queries as [B, N, S, D]; B is 1 where the value has rank 3. The rank of
// site.query must be known.
std::vector<sym::Expr> QueryShape(sym::Forms& forms, const AttentionSite& site);

// The answer of a rule: a match, a near miss with its reason, or neither where the rule does not
// apply.
template <typename T>
struct Recognised {
  std::optional<T> match;
  std::optional<Finding> refusal;

  static Recognised Match(T value) { return {std::move(value), std::nullopt}; }
  static Recognised Refuse(Finding finding) { return {std::nullopt, std::move(finding)}; }
  static Recognised NotThis() { return {}; }
};

struct Rule {
  std::string_view name;
  std::string_view summary;  // one line, for `explain`
  // Exactly one of the two is set. A cache rule judges one pair; an attention rule judges one node,
  // given the caches that were recognised.
  Recognised<CacheUpdate> (*cache)(sym::Forms& forms, const CachePair& pair) = nullptr;
  Recognised<AttentionSite> (*attention)(sym::Forms& forms, NodeId node,
                                         absl::Span<const CacheUpdate> caches) = nullptr;
};

// All rules, sorted by name. Generated by the build from rewrites/.
absl::Span<const Rule* const> AllRules();

// Returns a finding with the names of the nodes and values; kNoNode and kNoValue are left out.
// Without any node it names up to three readers of the values.
Finding MakeFinding(std::string_view code, std::string text, const Graph& graph,
                    absl::Span<const NodeId> nodes, absl::Span<const ValueId> values = {});

}  // namespace kvlift
