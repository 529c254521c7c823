// Lowers GroupQueryAttention of com.microsoft. The operator writes new rows at seqlens_k + 1 - S,
// or at 0 in a first step, and its attention is causal. If past and present are one buffer, that
// index is computed as it is. If the past grows, the index is P if all rows of the past are valid,
// which follows from how the graph computes seqlens_k: from a mask of ones, or from shapes. Source:
// the contrib operator text of ONNX Runtime 1.31.
//
// With sliding_window_cache the past is a buffer for the newest rows, and results are those of a
// past with all rows, so the operator is lowered as if it had one.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "rewrite/lower/fused/chosen_tables.h"
#include "rewrite/lower/fused/fused_lowering.h"
#include "rewrite/lower/fused/lengths_given.h"
#include "rewrite/lower/fused/sliding_buffer.h"
#include "rewrite/lower/fused/stored_rows.h"

namespace kvlift::fused {
namespace {

using sym::Expr;
using sym::Kind;

enum GroupQueryInput {
  kQuery,
  kKey,
  kValue,
  kPastKey,
  kPastValue,
  kSeqlens,
  kTotal,
  kCos,
  kSin,
  kPositions,
  kScoreBias,
  kSink,
  kQueryNorm = 14,
  kKeyNorm
};

constexpr SlidingOperands kSliding = {{kPastKey, kPastValue}, {1, 2}, kScoreBias};

struct Heads {
  int64_t q = 0, kv = 0, size = 0;
  bool packed = false;
  StoredForm key, value;
};

Heads ReadHeads(Lowering& l, NodeId n) {
  const auto& node = l.graph().node(n);
  Heads h;
  h.q = IntAttribute(node, "num_heads", 0);
  h.kv = IntAttribute(node, "kv_num_heads", 0);
  h.packed = !l.has(n, kKey) && !l.has(n, kValue);
  constexpr int64_t kMaxHeads = 1 << 20;
  if (std::max(h.q, h.kv) > kMaxHeads) return h;
  const int64_t parts = h.packed ? h.q + 2 * h.kv : h.q;
  const int64_t width = l.Extent(n, kQuery, 2);
  if (h.q > 0 && h.kv > 0 && parts > 0 && width % parts == 0) h.size = width / parts;
  return h;
}

// Returns true if past and present are one buffer that keeps all rows: the past has a constant
// number of slots.
bool IsBuffer(Lowering& l, NodeId n) {
  return l.Extent(n, kPastKey, 2) != 0 && !HasSlidingBuffers(l.graph().node(n));
}

// Returns why the node is not lowered; empty if it is.
std::string WhyNotGroupQuery(Lowering& l, NodeId n, const Heads& heads) {
  const auto& node = l.graph().node(n);
  for (const auto& attribute : node.attribute()) {
    static constexpr std::string_view kRead[] = {"num_heads",
                                                 "kv_num_heads",
                                                 "scale",
                                                 "softcap",
                                                 "local_window_size",
                                                 "do_rotary",
                                                 "rotary_interleaved",
                                                 "k_quant_type",
                                                 "v_quant_type",
                                                 "kv_cache_bit_width",
                                                 "smooth_softmax",
                                                 "qk_norm_epsilon",
                                                 "rotary_embedding_dim"};
    const std::string_view name = attribute.name();
    if (std::find(std::begin(kRead), std::end(kRead), name) != std::end(kRead)) continue;
    const bool neutral = name == "causal" ? attribute.i() == 1
                         : attribute.type() == onnx::AttributeProto::STRING
                             ? attribute.s().empty() || attribute.s() == "NONE"
                             : attribute.type() == onnx::AttributeProto::INT && attribute.i() <= 0;
    if (name == "sliding_window_cache" && attribute.i() == 1) continue;
    if (!neutral) return fmt::format("needs no {}", attribute.name());
  }
  // ONNX Runtime takes -1 for no window; what it does with 0 depends on its version.
  const int64_t window = IntAttribute(node, "local_window_size", -1);
  if (window <= 0 && window != -1) {
    return fmt::format("needs a local_window_size of -1 or more than 0, found {}", window);
  }
  if (l.graph().inputs(n).size() > kKeyNorm + 1) return "needs no operands behind the norms";
  if (l.has(n, kQueryNorm) != l.has(n, kKeyNorm)) {
    return "needs norms of queries and of keys, or none";
  }
  if (l.has(n, kSink) && l.Extent(n, kSink, 0) != heads.q) return "needs a sink for each head";
  if (!l.out(n, 3).empty()) return "needs no output of scores";
  if (!l.has(n, kPastKey) || !l.has(n, kPastValue) || l.out(n, 1).empty() || l.out(n, 2).empty()) {
    return "needs a past and a present of keys and of values";
  }
  if (heads.size == 0 || l.Rank(n, kQuery) != 3 || l.Rank(n, kPastKey) != 4 ||
      l.Rank(n, kPastValue) != 4) {
    return "needs head counts and a constant head size";
  }
  if (!heads.packed && (l.Rank(n, kKey) != 3 || l.Rank(n, kValue) != 3)) {
    return "needs queries, keys and values of rank 3";
  }
  if (!l.has(n, kSeqlens) || !l.has(n, kTotal)) {
    return "needs seqlens_k and a total_sequence_length";
  }
  const bool same = heads.key.quantized()
                        ? l.SameTypes(n, {kQuery, kKey, kValue})
                        : l.SameTypes(n, {kQuery, kKey, kValue, kPastKey, kPastValue});
  if (!same) return "needs keys, values and caches of the type of the queries";
  const std::vector<int64_t> present = {0, heads.kv, 0, heads.key.stored_size()};
  if (!l.MayGive(n, 0, {0, 0, heads.q * heads.size}) ||
      !l.MayGive(n, 1, present, l.Type(n, kPastKey)) ||
      !l.MayGive(n, 2, present, l.Type(n, kPastValue))) {
    return "needs outputs that are declared as what it gives";
  }
  for (const int past : {kPastKey, kPastValue}) {
    const std::vector<Expr>& shape = l.Form(n, past).shape;
    const auto differs = [](Expr extent, int64_t size) {
      return extent->kind() == Kind::kInteger && extent->value() != size;
    };
    if (differs(shape[1], heads.kv) || differs(shape[3], heads.key.stored_size())) {
      return fmt::format("needs pasts of {} heads with {} elements", heads.kv,
                         heads.key.stored_size());
    }
  }
  if (HasSlidingBuffers(node)) {
    if (std::string why = WhyNotSliding(l, n, kSliding); !why.empty()) return why;
  } else if (IsBuffer(l, n)) {
    if (l.has(n, kScoreBias)) return "needs no attention_bias beside a buffer of fixed capacity";
  } else if (l.Form(n, kPastKey).shape[2]->kind() != Kind::kDim) {
    return "needs a past whose number of rows is a constant or a symbol";
  }
  if (IntAttribute(node, "do_rotary", 0) != 0 &&
      (!l.has(n, kCos) || !l.has(n, kSin) || WidthOfTable(l, n, kCos) == 0 ||
       ReadChosenTable(l, n, kCos).has_value() != ReadChosenTable(l, n, kSin).has_value())) {
    return "needs tables of cosines and sines of a constant width";
  }
  const int64_t rotated = IntAttribute(node, "rotary_embedding_dim", 0);
  if (IntAttribute(node, "do_rotary", 0) != 0 && rotated > 0 &&
      rotated != 2 * WidthOfTable(l, n, kCos)) {
    return fmt::format(
        "needs a rotary_embedding_dim of 0 or {}, twice the width of its tables, "
        "found {}",
        2 * WidthOfTable(l, n, kCos), rotated);
  }
  if (l.has(n, kPositions) && l.Rank(n, kPositions) != 2) {
    return "needs position_ids of rank 2";
  }
  if (l.has(n, kScoreBias) && l.Rank(n, kScoreBias) != 4) {
    return "needs an attention_bias of rank 4";
  }
  return {};
}

struct Projections {
  std::string q, k, v;  // [B, heads, S, D]
};

Projections Split(Lowering& l, NodeId n, const Heads& h) {
  NodeBuilder& nodes = l.nodes();
  std::string q = l.in(n, kQuery), k = l.in(n, kKey), v = l.in(n, kValue);
  if (h.packed) {
    const auto part = [&](int64_t first, int64_t count, std::string_view role) {
      return nodes.Add("Slice",
                       {l.in(n, kQuery), nodes.Int64s({first * h.size}),
                        nodes.Int64s({(first + count) * h.size}), nodes.Int64s({2})},
                       role);
    };
    q = part(0, h.q, "query_part");
    k = part(h.q, h.kv, "key_part");
    v = part(h.q + h.kv, h.kv, "value_part");
  }
  return {l.SplitHeads(q, h.q, "query"), l.SplitHeads(k, h.kv, "key"),
          l.SplitHeads(v, h.kv, "value")};
}

std::string Cast(Lowering& l, const std::string& x, int32_t type, std::string_view role) {
  return l.nodes().Add("Cast", {x}, role, {MakeAttribute("to", int64_t{type})});
}

// Returns the slot of the first new row of each sequence in a buffer, int64 [B]:
// seqlens_k + 1 - S, or 0 in the first step, in which total_sequence_length is S.
std::string FirstSlots(Lowering& l, NodeId n) {
  NodeBuilder& nodes = l.nodes();
  const auto integers = [&](int input, std::string_view role) {
    return nodes.Add("Reshape",
                     {Cast(l, l.in(n, input), onnx::TensorProto::INT64, role), nodes.Int64s({-1})},
                     role);
  };
  const std::string added = l.Length(l.in(n, kQuery), 1, "new_length");
  const std::string last = integers(kSeqlens, "last_slots");
  const std::string end = nodes.Add("Add", {last, nodes.Int64s({1})}, "lengths");
  const std::string later = nodes.Add("Sub", {end, added}, "past_lengths");
  const std::string first_step =
      nodes.Add("Equal", {integers(kTotal, "total_length"), added}, "first_step");
  return nodes.Add("Where", {first_step, nodes.Int64s({0}), later}, "first_slots");
}

// Returns the slot of each new row in a buffer, int64 [B, S], from FirstSlots.
std::string SlotsOfRows(Lowering& l, NodeId n, const std::string& first) {
  NodeBuilder& nodes = l.nodes();
  const std::string added = l.Length(l.in(n, kQuery), 1, "new_length");
  const std::string rows = nodes.Add(
      "Range", {nodes.Int64(0), nodes.Add("Squeeze", {added}, "end"), nodes.Int64(1)}, "rows");
  const std::string column = nodes.Add("Unsqueeze", {first, nodes.Int64s({1})}, "first_column");
  return nodes.Add("Add", {column, rows}, "slots");
}

// Returns the positions, int64 [B, S]: the operand position_ids, or else the slots of the new rows.
// first: FirstSlots; empty if the cache grows, so that the slots are P + s.
std::string Positions(Lowering& l, NodeId n, const std::string& first) {
  if (l.has(n, kPositions)) return l.in(n, kPositions);
  if (!first.empty()) return SlotsOfRows(l, n, first);
  NodeBuilder& nodes = l.nodes();
  const std::string past = l.Length(l.in(n, kPastKey), 2, "past_length");
  const std::string added = l.Length(l.in(n, kQuery), 1, "new_length");
  const std::string begin = nodes.Add("Squeeze", {past}, "first");
  const std::string end =
      nodes.Add("Squeeze", {nodes.Add("Add", {past, added}, "total_length")}, "end");
  const std::string row = nodes.Add(
      "Unsqueeze", {nodes.Add("Range", {begin, end, nodes.Int64(1)}, "places"), nodes.Int64s({0})},
      "place_row");
  const std::string batch = l.Length(l.in(n, kQuery), 0, "batch");
  const std::string shape = nodes.Add("Concat", {batch, nodes.Int64s({1})}, "positions_shape",
                                      {MakeAttribute("axis", int64_t{0})});
  return nodes.Add("Expand", {row, shape}, "positions");
}

// Divides each head of the queries and keys by its root mean square, times a weight.
void NormalizeHeads(Lowering& l, NodeId n, Projections* p) {
  if (!l.has(n, kQueryNorm)) return;
  const float epsilon = FloatAttribute(l.graph().node(n), "qk_norm_epsilon", 1e-6F);
  for (const auto& [x, weight] : {std::pair(&p->q, kQueryNorm), {&p->k, kKeyNorm}}) {
    *x = l.nodes().Add("RMSNormalization", {*x, l.in(n, weight)}, "normalized",
                       {MakeAttribute("axis", int64_t{-1}), MakeAttribute("epsilon", epsilon)});
  }
}

void Rotate(Lowering& l, NodeId n, const Heads& h, const std::string& first, Projections* p) {
  const auto& node = l.graph().node(n);
  if (IntAttribute(node, "do_rotary", 0) == 0) return;
  const std::string positions = Positions(l, n, first);
  NodeBuilder::Attributes attributes;
  if (IntAttribute(node, "rotary_interleaved", 0) != 0) {
    attributes.push_back(MakeAttribute("interleaved", int64_t{1}));
  }
  const int64_t rotated = 2 * WidthOfTable(l, n, kCos);
  if (rotated != h.size) attributes.push_back(MakeAttribute("rotary_embedding_dim", rotated));
  NodeBuilder::Inputs tables = {l.in(n, kCos), l.in(n, kSin), positions};
  const auto cosines = ReadChosenTable(l, n, kCos), sines = ReadChosenTable(l, n, kSin);
  if (cosines && sines) {
    tables = {RowsOfChosenTable(l, *cosines, positions), RowsOfChosenTable(l, *sines, positions)};
  }
  for (std::string* x : {&p->q, &p->k}) {
    NodeBuilder::Inputs inputs = {*x};
    inputs.insert(inputs.end(), tables.begin(), tables.end());
    *x = l.nodes().Add("RotaryEmbedding", inputs, "rotated", attributes);
  }
}

// Returns bool [B, 1, S, M]: the slots of a buffer that the new rows see.
std::string SeenSlots(Lowering& l, NodeId n, const std::string& first) {
  NodeBuilder& nodes = l.nodes();
  const std::string rows =
      nodes.Add("Unsqueeze", {SlotsOfRows(l, n, first), nodes.Int64s({1, 3})}, "row_slots");
  const std::string end = nodes.Add("Squeeze", {l.Length(l.in(n, kPastKey), 2, "capacity")}, "end");
  const std::string slots =
      nodes.Add("Range", {nodes.Int64(0), end, nodes.Int64(1)}, "slots_of_buffer");
  const std::string seen = nodes.Add("LessOrEqual", {slots, rows}, "order");
  const int64_t window = IntAttribute(l.graph().node(n), "local_window_size", -1);
  if (window <= 0) return seen;
  const std::string far = nodes.Add("Sub", {rows, nodes.Int64(window)}, "too_far");
  return nodes.Add("And", {seen, nodes.Add("Greater", {slots, far}, "near")}, "seen");
}

std::string GroupQueryMask(Lowering& l, NodeId n, const std::string& queries) {
  NodeBuilder& nodes = l.nodes();
  const auto& node = l.graph().node(n);
  std::string seen = l.CausalOrder(l.in(n, kPastKey), queries);
  if (const int64_t window = IntAttribute(node, "local_window_size", -1); window > 0) {
    seen = nodes.Add("And", {seen, l.Near(l.in(n, kPastKey), queries, window)}, "seen");
  }
  if (!l.has(n, kScoreBias)) return seen;
  return l.Masked(seen, l.in(n, kScoreBias), -std::numeric_limits<double>::infinity(),
                  l.Type(n, kQuery));
}

// Makes the present from the past and the new rows. Returns the rows of it that attention reads,
// which are dequantised if the cache is quantised. first: FirstSlots; empty if the cache grows.
std::string Append(Lowering& l, NodeId n, const StoredForm& stored, const std::string& first,
                   std::string rows, const std::string& role) {
  const size_t past = role == "key" ? kPastKey : kPastValue;
  const std::string present = l.out(n, past - kPastKey + 1);
  if (stored.quantized()) {
    if (l.Type(n, kQuery) != onnx::TensorProto::FLOAT) {
      rows = Cast(l, rows, onnx::TensorProto::FLOAT, role + "_wide");
    }
    rows = Stored(l, stored, rows, role);
  }
  const NodeBuilder::Attributes axis = {MakeAttribute("axis", int64_t{2})};
  if (first.empty()) {
    l.nodes().AddNamed("Concat", {l.in(n, past), rows}, "present_" + role, present, axis);
  } else {
    l.nodes().AddNamed("TensorScatter", {l.in(n, past), rows, first}, "present_" + role, present,
                       axis);
  }
  return stored.quantized() ? Restored(l, stored, present, role) : present;
}

bool HasSink(Lowering& l, NodeId n) {
  return l.has(n, kSink) || IntAttribute(l.graph().node(n), "smooth_softmax", 0) == 1;
}

// Returns rows [B, Nk, T, D] with each head repeated for the queries of its group.
std::string ForQueryHeads(Lowering& l, const Heads& h, const std::string& rows) {
  if (h.q == h.kv) return rows;
  NodeBuilder& nodes = l.nodes();
  const std::string apart = nodes.Add("Unsqueeze", {rows, nodes.Int64s({2})}, "groups");
  const std::string all =
      nodes.Add("Expand", {apart, nodes.Int64s({1, 1, h.q / h.kv, 1, 1})}, "groups");
  return nodes.Add("Reshape", {all, nodes.Int64s({0, h.q, -1, h.size})}, "repeated");
}

// Writes the attention out with a sink: its score is one more of the softmax, and its weight is cut
// off. `mask`: bool, true for visible keys, or what is added to scores. Returns [B, N, S, D].
std::string AttendWithSink(Lowering& l, NodeId n, const Heads& h, const std::string& query,
                           const std::string& keys, const std::string& values,
                           const std::string& mask, int32_t type) {
  NodeBuilder& nodes = l.nodes();
  const auto& node = l.graph().node(n);
  const auto number = [&](double value) { return nodes.Scalar(value, type); };
  const std::string turned = nodes.Add("Transpose", {ForQueryHeads(l, h, keys)}, "keys",
                                       {MakeAttribute("perm", std::vector<int64_t>{0, 1, 3, 2})});
  const double given = FloatAttribute(node, "scale", 0.0F);
  const double scale = given != 0 ? given : 1 / std::sqrt(static_cast<double>(h.size));
  const double cap = FloatAttribute(node, "softcap", 0.0F);
  l.NoteScores(scale, cap);
  std::string scores = nodes.Add("MatMul", {query, turned}, "product");
  scores = nodes.Add("Mul", {scores, number(scale)}, "scores");
  if (cap != 0) {
    scores = nodes.Add("Tanh", {nodes.Add("Div", {scores, number(cap)}, "scores")}, "scores");
    scores = nodes.Add("Mul", {scores, number(cap)}, "scores");
  }
  const double hidden = -std::numeric_limits<double>::infinity();
  scores = l.has(n, kScoreBias) ? nodes.Add("Add", {scores, mask}, "scores")
                                : nodes.Add("Where", {mask, scores, number(hidden)}, "scores");
  std::string sink = number(0);
  if (l.has(n, kSink)) {
    sink = l.in(n, kSink);
    if (l.Type(n, kSink) != type) sink = Cast(l, sink, type, "sink");
    sink = nodes.Add("Reshape", {sink, nodes.Int64s({1, h.q, 1, 1})}, "sink");
  }
  const std::string lead =
      nodes.Add("Shape", {scores}, "sink_shape", {MakeAttribute("end", int64_t{3})});
  const std::string shape = nodes.Add("Concat", {lead, nodes.Int64s({1})}, "sink_shape",
                                      {MakeAttribute("axis", int64_t{0})});
  const std::string column = nodes.Add("Expand", {sink, shape}, "sinks");
  const std::string all =
      nodes.Add("Concat", {scores, column}, "with_sink", {MakeAttribute("axis", int64_t{3})});
  const std::string soft =
      nodes.Add("Softmax", {all}, "weights", {MakeAttribute("axis", int64_t{-1})});
  const std::string weights = nodes.Add(
      "Slice", {soft, nodes.Int64s({0}), nodes.Int64s({-1}), nodes.Int64s({3})}, "of_keys");
  return nodes.Add("MatMul", {weights, ForQueryHeads(l, h, values)}, "Attention");
}

// Declares the head size of the projections for caches, which may declare a symbol for it.
void DeclareHeadSize(Lowering& l, NodeId n, const Heads& h) {
  const auto declare = [&](const auto& infos, const std::string& name) {
    for (const auto& info : infos) {
      if (info.name() != name || !info.type().tensor_type().has_shape()) continue;
      onnx::TypeProto type = info.type();
      auto* shape = type.mutable_tensor_type()->mutable_shape();
      if (shape->dim_size() == 4) {
        shape->mutable_dim(3)->set_dim_value(h.key.stored_size());
        l.patch().retype[name] = type;
      }
    }
  };
  const auto& graph = l.graph().proto();
  for (int k : {kPastKey, kPastValue}) declare(graph.input(), l.in(n, k));
  for (int k : {1, 2}) declare(graph.output(), l.out(n, k));
}

}  // namespace

bool LowerGroupQueryAttention(Lowering& l, NodeId n) {
  const auto& node = l.graph().node(n);
  if (node.domain() != "com.microsoft" || node.op_type() != "GroupQueryAttention") return false;
  Heads heads = ReadHeads(l, n);
  std::vector<ValueId> masks;
  std::string why;
  if (heads.size > 0) {
    why = ReadStoredRows(l, n, heads.kv, heads.size, &heads.key, &heads.value);
  }
  if (why.empty()) why = WhyNotGroupQuery(l, n, heads);
  const bool buffer = why.empty() && IsBuffer(l, n);
  if (why.empty() && !buffer) {
    LengthsGiven given = {n, kPastKey, kQuery, kSeqlens, kTotal, nullptr};
    if (HasSlidingBuffers(node)) given.rows = PastLength(l, kSliding);
    why = WhyNotWholeLengths(l, given, &masks);
  }
  if (!why.empty()) {
    l.Refuse(n, why);
    return true;
  }
  l.Scope(n);
  for (ValueId mask : masks) l.AllOnes(mask);
  DeclareHeadSize(l, n, heads);
  if (HasSlidingBuffers(node)) DeclareAllRows(l, n, kSliding);
  Projections p = Split(l, n, heads);
  NormalizeHeads(l, n, &p);
  const std::string first = buffer ? FirstSlots(l, n) : std::string();
  Rotate(l, n, heads, first, &p);
  NodeBuilder& nodes = l.nodes();
  const std::string keys = Append(l, n, heads.key, first, p.k, "key");
  const std::string values = Append(l, n, heads.value, first, p.v, "value");
  const int32_t type = l.Type(n, kQuery);
  const bool narrow = heads.key.quantized() && type != onnx::TensorProto::FLOAT;
  if (narrow) p.q = Cast(l, p.q, onnx::TensorProto::FLOAT, "wide");
  NodeBuilder::Attributes attributes;
  for (const char* name : {"scale", "softcap"}) {
    const float value = FloatAttribute(node, name, 0.0F);
    if (value != 0.0F) attributes.push_back(MakeAttribute(name, value));
  }
  const std::string mask = buffer ? SeenSlots(l, n, first) : GroupQueryMask(l, n, p.q);
  l.patch().remove_nodes.insert(n);
  const int32_t computed = narrow ? int32_t{onnx::TensorProto::FLOAT} : type;
  std::string y = HasSink(l, n)
                      ? AttendWithSink(l, n, heads, p.q, keys, values, mask, computed)
                      : nodes.Add("Attention", {p.q, keys, values, mask}, "Attention", attributes);
  if (narrow) y = Cast(l, y, type, "result");
  l.JoinHeads(y, heads.q * heads.size, l.out(n, 0));
  return true;
}

}  // namespace kvlift::fused
