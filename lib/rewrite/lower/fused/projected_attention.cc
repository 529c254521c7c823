// Lowers Attention of com.microsoft: it projects its input to queries, keys and values with equal
// head counts, and appends keys and values to one past, [2, B, N, P, D].
// Source: the contrib operator text of ONNX Runtime 1.31.
#include "rewrite/lower/fused/fused_lowering.h"

namespace kvlift::fused {
namespace {

enum ProjectedInput { kRows, kWeights, kBias, kPadding, kPast, kScoreBias, kPastLength };

// Returns why the node is not lowered; empty if it is.
std::string WhyNotProjected(Lowering& l, NodeId n) {
  const auto& node = l.graph().node(n);
  const int64_t heads = IntAttribute(node, "num_heads", 0);
  if (heads < 1) return "needs num_heads";
  bool shares = IntAttribute(node, "past_present_share_buffer", 0) != 0;
  for (size_t k = kPastLength; k < l.graph().inputs(n).size(); ++k) shares |= l.has(n, k);
  if (shares) return "needs no buffer that past and present share";
  if (IntAttribute(node, "do_rotary", 0) != 0) return "needs no rotation of its own";
  if (FloatAttribute(node, "scale", 0) < 0) return "needs a positive scale";
  if (l.Rank(n, kRows) != 3 || l.Rank(n, kWeights) != 2 || l.Rank(n, kPast) != 5) {
    return "needs an input of rank 3, weights of rank 2 and a past of rank 5";
  }
  if (l.has(n, kPadding) && l.Rank(n, kPadding) != 2) return "needs a mask_index of rank 2";
  if (l.has(n, kScoreBias) && l.Rank(n, kScoreBias) != 4) {
    return "needs an attention_bias of rank 4";
  }
  if (!l.SameTypes(n, {kRows, kWeights, kBias, kPast, kScoreBias})) {
    return "needs weights, biases and a past of the type of its input";
  }
  const int64_t width = l.Extent(n, kWeights, 1), hidden = width / 3;
  const int64_t size = hidden / heads;
  if (width == 0 || hidden * 3 != width || size * heads != hidden || l.Extent(n, kPast, 0) != 2 ||
      l.Extent(n, kPast, 2) != heads || l.Extent(n, kPast, 4) != size) {
    return "needs weights of 3 * hidden_size columns and a past [2, B, N, P, D]";
  }
  for (const int64_t part : IntsAttribute(node, "qkv_hidden_sizes")) {
    if (part != hidden) return "needs queries, keys and values of one hidden size";
  }
  if (!l.MayGive(n, 0, {0, 0, hidden}) || !l.MayGive(n, 1, {2, 0, heads, 0, size})) {
    return "needs outputs that are declared as what it gives";
  }
  return {};
}

}  // namespace

bool LowerProjectedAttention(Lowering& l, NodeId n) {
  const auto& node = l.graph().node(n);
  if (node.domain() != "com.microsoft" || node.op_type() != "Attention") return false;
  if (!l.has(n, kPast) || l.out(n, 1).empty()) return false;
  if (const std::string why = WhyNotProjected(l, n); !why.empty()) {
    l.Refuse(n, why);
    return true;
  }
  l.Scope(n);
  NodeBuilder& nodes = l.nodes();
  const int64_t heads = IntAttribute(node, "num_heads", 1);
  const int64_t hidden = l.Extent(n, kWeights, 1) / 3;
  std::string rows = nodes.Add("MatMul", {l.in(n, kRows), l.in(n, kWeights)}, "projected");
  if (l.has(n, kBias)) rows = nodes.Add("Add", {rows, l.in(n, kBias)}, "projected_with_bias");
  const auto part = [&](int64_t first, std::string_view role) {
    const std::string own = nodes.Add(
        "Slice", {rows, nodes.Int64s({first}), nodes.Int64s({first + hidden}), nodes.Int64s({2})},
        std::string(role) + "_rows");
    return l.SplitHeads(own, heads, role);
  };
  const std::string query = part(0, "query");
  const auto joined = [&](int64_t which, std::string_view role, std::string* past) {
    *past = nodes.Add("Gather", {l.in(n, kPast), nodes.Int64(which)}, "past_" + std::string(role),
                      {MakeAttribute("axis", int64_t{0})});
    return nodes.Add("Concat", {*past, part((which + 1) * hidden, role)},
                     "all_" + std::string(role), {MakeAttribute("axis", int64_t{2})});
  };
  std::string past_key, past_value;
  const std::string keys = joined(0, "key", &past_key), values = joined(1, "value", &past_value);
  const auto alone = [&](const std::string& all, std::string_view role) {
    return nodes.Add("Unsqueeze", {all, nodes.Int64s({0})}, role);
  };
  nodes.AddNamed("Concat", {alone(keys, "present_key"), alone(values, "present_value")}, "present",
                 l.out(n, 1), {MakeAttribute("axis", int64_t{0})});
  NodeBuilder::Inputs inputs = {query, keys, values};
  const std::string mask = l.MaskOfFused(n, {kPadding, kScoreBias}, past_key, query);
  if (!mask.empty()) inputs.push_back(mask);
  l.JoinHeads(nodes.Add("Attention", inputs, "Attention", ScaleOfFused(node)), hidden, l.out(n, 0));
  l.patch().remove_nodes.insert(n);
  return true;
}

}  // namespace kvlift::fused
