// Lowers MultiHeadAttention of com.microsoft: 3-D queries, keys and values with equal head counts,
// a past, a bias of the projections, a key_padding_mask and a bias of the scores.
// Source: the contrib operator text of ONNX Runtime 1.31.
#include "rewrite/lower/fused/fused_lowering.h"

namespace kvlift::fused {
namespace {

enum MultiHeadInput {
  kQuery,
  kKey,
  kValue,
  kBias,
  kPadding,
  kScoreBias,
  kPastKey,
  kPastValue,
  kPastLength
};

// Returns why the node is not lowered; empty if it is.
std::string WhyNotMultiHead(Lowering& l, NodeId n) {
  const auto& node = l.graph().node(n);
  if (IntAttribute(node, "num_heads", 0) < 1) return "needs num_heads";
  if (FloatAttribute(node, "scale", 0) < 0) return "needs a positive scale";
  if (!l.has(n, kKey) || !l.has(n, kValue) || l.Rank(n, kQuery) != 3 || l.Rank(n, kKey) != 3 ||
      l.Rank(n, kValue) != 3) {
    return "needs queries, keys and values of rank 3, not packed";
  }
  if (l.has(n, kPastKey) != l.has(n, kPastValue)) return "needs keys and values of the past";
  if (IntAttribute(node, "unidirectional", 0) == 1 && !l.has(n, kPastKey)) {
    return "needs a past where it is unidirectional, since it hides no key from the last query";
  }
  for (size_t k = kPastLength; k < l.graph().inputs(n).size(); ++k) {
    if (l.has(n, k)) return "needs no buffer that past and present share";
  }
  if (!l.out(n, 3).empty()) return "needs no output of scores";
  if (l.has(n, kPadding) && l.Rank(n, kPadding) != 2) {
    return "needs a key_padding_mask of rank 2";
  }
  if (l.has(n, kScoreBias) && l.Rank(n, kScoreBias) != 4) {
    return "needs an attention_bias of rank 4";
  }
  if (l.Extent(n, kQuery, 2) == 0 || l.Extent(n, kValue, 2) == 0) {
    return "needs constant hidden sizes";
  }
  if (!l.SameTypes(n, {kQuery, kKey, kValue, kBias, kScoreBias, kPastKey, kPastValue})) {
    return "needs keys, values, biases and caches of the type of the queries";
  }
  const int64_t heads = IntAttribute(node, "num_heads", 1);
  const int64_t width = l.Extent(n, kValue, 2);
  if (l.Extent(n, kQuery, 2) % heads != 0 || width % heads != 0) {
    return "needs hidden sizes that are whole heads";
  }
  if (!l.MayGive(n, 0, {0, 0, width}) ||
      !l.MayGive(n, 1, {0, heads, 0, l.Extent(n, kQuery, 2) / heads}) ||
      !l.MayGive(n, 2, {0, heads, 0, width / heads})) {
    return "needs outputs that are declared as what it gives";
  }
  return {};
}

std::string Projected(Lowering& l, NodeId n, size_t input, int64_t first, std::string_view role) {
  const std::string value = l.in(n, input);
  if (!l.has(n, kBias)) return value;
  NodeBuilder& nodes = l.nodes();
  const std::string bias =
      nodes.Add("Slice",
                {l.in(n, kBias), nodes.Int64s({first}),
                 nodes.Int64s({first + l.Extent(n, input, 2)}), nodes.Int64s({0})},
                std::string(role) + "_bias");
  return nodes.Add("Add", {value, bias}, std::string(role) + "_with_bias");
}

// Returns true if the node has a past, or if its keys are made of an input that may be one.
bool ReadsPast(Lowering& l, NodeId n) {
  if (l.has(n, kPastKey)) return true;
  if (!l.has(n, kKey) || l.Rank(n, kKey) == 4) return false;  // cross-attention
  const sym::Form form = l.Form(n, kKey);
  if (!form.known_rank || form.opaque) return false;
  for (ValueId source : sym::SourcesOf(form.element)) {
    const auto& shape = l.graph().type(source).shape;
    if (l.graph().is_graph_input(source) && shape && shape->size() >= 3) return true;
  }
  return false;
}

}  // namespace

bool LowerMultiHeadAttention(Lowering& l, NodeId n) {
  const auto& node = l.graph().node(n);
  if (node.domain() != "com.microsoft" || node.op_type() != "MultiHeadAttention") return false;
  if (!ReadsPast(l, n)) return false;
  if (const std::string why = WhyNotMultiHead(l, n); !why.empty()) {
    l.Refuse(n, why);
    return true;
  }
  l.Scope(n);
  NodeBuilder& nodes = l.nodes();
  const int64_t heads = IntAttribute(node, "num_heads", 1);
  const int64_t size = l.Extent(n, kQuery, 2), value_size = l.Extent(n, kValue, 2);
  const std::string q = l.SplitHeads(Projected(l, n, kQuery, 0, "query"), heads, "query");
  std::string k = l.SplitHeads(Projected(l, n, kKey, size, "key"), heads, "key");
  std::string v = l.SplitHeads(Projected(l, n, kValue, 2 * size, "value"), heads, "value");
  const auto put = [&](int past, int output, std::string_view role, std::string* value) {
    const std::string present = l.out(n, output);
    if (!l.has(n, past)) {
      if (!present.empty()) nodes.AddNamed("Identity", {*value}, role, present);
      return;
    }
    const auto axis = MakeAttribute("axis", int64_t{2});
    const NodeBuilder::Inputs parts = {l.in(n, past), *value};
    if (present.empty()) {
      *value = nodes.Add("Concat", parts, role, {axis});
      return;
    }
    nodes.AddNamed("Concat", parts, role, present, {axis});
    *value = present;
  };
  put(kPastKey, 1, "present_key", &k);
  put(kPastValue, 2, "present_value", &v);
  NodeBuilder::Inputs inputs = {q, k, v};
  const std::string mask = l.MaskOfFused(n, {kPadding, kScoreBias}, l.in(n, kPastKey), q);
  if (!mask.empty()) inputs.push_back(mask);
  l.patch().remove_nodes.insert(n);
  l.JoinHeads(nodes.Add("Attention", inputs, "Attention", ScaleOfFused(node)), value_size,
              l.out(n, 0));
  return true;
}

}  // namespace kvlift::fused
