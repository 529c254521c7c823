// What recognisers say about a graph, and how they are registered.
//
// A rule is one file in rewrites/: NAME.cc defines `const Rule& NAME()` in namespace
// kvlift::rewrites; the build generates the sorted table behind AllRules().
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "base/findings.h"
#include "ir/graph.h"
#include "sym/forms.h"

namespace kvlift {

// P in expressions that speak of it where the source has no value for it.
inline sym::DimSymbol PastSymbol() { return sym::DimSymbol::Internal("P"); }

// A graph input and the graph output that the host feeds back into it.
struct CachePair {
  ValueId past = kNoValue;
  ValueId present = kNoValue;
};

// Index on an axis that is fixed before a tensor is read.
struct Lane {
  int axis = 0;
  int64_t index = 0;

  friend bool operator==(const Lane&, const Lane&) = default;
};

// Something that is added to the scores, broadcast to [B, N, S, T], or to [B*N, S, T] if folded.
struct Bias {
  ValueId value = kNoValue;
  bool folded = false;
};

// How attention's keys or values [B, Nk, T, D] lie in a cache.
struct CacheView {
  std::vector<Lane> lanes;  // of caches that share a tensor
  int64_t heads = 0;        // Nk
  int64_t offset = 0;       // on axis D: of the first head
  bool folded = false;      // axis B counts sequences and heads, heads fastest
  // What the cache is read through, in order: a DequantizeLinear with one constant scale for all of
  // it, or what makes each row of numbers from its stored row (rewrite/decoded_rows.h).
  std::vector<NodeId> decode;
  std::vector<ValueId> decoded;  // the operands of those that are the cache
};

// present = past with the rows of `update` written at `start`. Growing: behind the past,
// [.., P, ..] -> [.., P+S, ..]; otherwise into a buffer of fixed capacity, [.., M, ..] both.
struct CacheUpdate {
  CachePair pair;
  std::string kind;    // as in the contract: "concat", ...
  std::string layout;  // letters of the past's axes, S the sequence: see rewrite/layout.h
  int axis = 0;        // of S
  bool growing = true;
  // Slot of the first new row. Growing: P, the past's extent along the axis, a dim symbol.
  // Otherwise an expression of the batch index i0 at most.
  sym::Expr start = nullptr;
  sym::Expr new_length = nullptr;  // S
  // Growing: the present keeps this many rows at the end, and the past has no more; 0: all of them.
  int64_t window = 0;
  // Window: the past with all new rows behind it, as attention reads it; else the present.
  ValueId attended = kNoValue;
  // Growing: element of the past as the new rows are put behind it, if its sequences are taken in
  // another order (beam search); null: in place.
  sym::Expr base = nullptr;
  // Element of the update over the past's axes, with i_axis in [0, S).
  sym::Expr update_element = nullptr;
  ValueId update = kNoValue;  // an existing value with exactly this form
  bool part = false;          // some of the update's rows are the past's own
  // Rows go to slots modulo the capacity: TensorScatter's circular mode.
  bool circular = false;
  int64_t visible = 0;  // of a ring: rows that attention reads besides the new ones
  // Circular, where the source moves its rows instead: row t of its present is what is in slot
  // (t + P + S) mod M, and `start` is P, the symbol kPastSymbol.
  bool shifts = false;
  NodeId node = kNoNode;  // the node to blame: producer of present

  // A growing cache in a ring of C slots, C >= visible + S: token t is in slot t mod C.
  bool ring() const { return growing && circular; }
};

// softmax(softcap(scale * q k^T) + biases + mask) v, with k and v read from caches.
struct AttentionSite {
  std::string form;          // "decomposed" or "op"
  NodeId node = kNoNode;     // whose output 0 is replaced: [B, N, S, Dv]
  bool folded = false;       // the output is [B*N, S, Dv]
  ValueId query = kNoValue;  // [B, N, S, D], or [N, S, D] of one sequence; unscaled
  int key_cache = -1;        // index into the recognised caches
  int value_cache = -1;
  CacheView key_view, value_view;
  int64_t q_heads = 0, kv_heads = 0, head_dim = 0, v_head_dim = 0;
  double scale = 0;
  double moved = 1;  // the part of the scale that stood at queries and keys before their product
  int32_t product_type = 0;  // onnx TensorProto::DataType of that product
  double softcap = 0;
  int32_t softmax_type = 0;  // onnx TensorProto::DataType the softmax is computed in
  // keep(b, h, s, t) with b = i0, h = i1, s = i2, t = i3: the key is visible.
  sym::Expr keep = nullptr;
  sym::Expr keys = nullptr;  // extent of t
  // Anything but masks. bias_keep is what is known of them: where it is false they hide the key.
  std::vector<Bias> biases;
  sym::Expr bias_keep = nullptr;
  bool finite_minimum = false;  // masked scores get a finite value, not -inf
  bool nan_guard = false;       // a fully masked row is turned into 0
  std::vector<NodeId> nodes;    // that the site replaces
};

// [B, N, S, D] of the queries, whether they have an axis of sequences or not.
std::vector<sym::Expr> QueryShape(sym::Forms& forms, const AttentionSite& site);

// A match, a near miss with its reason, or neither: not this rule's business.
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
  // Exactly one is set. Cache rules look at a pair; attention rules at a node, given the caches.
  Recognised<CacheUpdate> (*cache)(sym::Forms& forms, const CachePair& pair) = nullptr;
  Recognised<AttentionSite> (*attention)(sym::Forms& forms, NodeId node,
                                         absl::Span<const CacheUpdate> caches) = nullptr;
};

// All rules, sorted by name. Generated by the build from rewrites/.
absl::Span<const Rule* const> AllRules();

// A finding at a node: its name, and the values named.
Finding MakeFinding(std::string_view code, std::string text, const Graph& graph,
                    absl::Span<const NodeId> nodes, absl::Span<const ValueId> values = {});

}  // namespace kvlift
