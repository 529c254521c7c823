#include "lower/attention_operands.h"

#include <vector>

#include "fmt/format.h"

namespace kvlift::lower {
namespace {

// Returns why the mask is not lowered; empty if it was read.
std::string ReadMask(Lowering& l, NodeId n, AttentionOperands* site) {
  site->has_mask = l.has(n, kMask);
  if (!site->has_mask) return {};
  const int rank = l.Rank(n, kMask);
  if (rank < 1 || rank > 4) return "the rank of its mask is not known, or is not 1 to 4";
  const int32_t type = l.Type(n, kMask);
  site->float_mask = type != onnx::TensorProto::BOOL;
  if (site->float_mask && type != site->type) return "its mask is of another type than the queries";
  // Opset 23 broadcasts a single column, and opset 24 hides the other keys then.
  site->whole_mask = !site->has_past && l.SameExtent(n, kMask, rank - 1, kKey, site->seq);
  return {};
}

}  // namespace

std::string ReadAttention(Lowering& l, NodeId n, AttentionOperands* site) {
  const auto& node = l.graph().node(n);
  const std::string unknown =
      UnknownAttribute(node, {"is_causal", "kv_num_heads", "q_num_heads", "qk_matmul_output_mode",
                              "scale", "softcap", "softmax_precision"});
  if (!unknown.empty()) return fmt::format("its attribute {} is not known", unknown);
  site->node = n;
  const int rank = l.Rank(n, kQuery);
  if (rank != 3 && rank != 4) return "the rank of its queries is not known, or is not 3 or 4";
  if (l.Rank(n, kKey) != rank || l.Rank(n, kValue) != rank) {
    return "the ranks of keys and values are not known, or are not that of the queries";
  }
  site->rank3 = rank == 3;
  site->seq = site->rank3 ? 1 : 2;
  site->causal = IntAttribute(node, "is_causal", 0) != 0;
  site->has_past = l.has(n, kPastKey);
  if (site->has_past != l.has(n, kPastValue)) return "it has one of past_key and past_value";
  if (site->has_past && l.Rank(n, kPastKey) != 4) return "the rank of past_key is not 4";
  const int64_t precision = IntAttribute(node, "softmax_precision", 0);
  if (precision != 0 && !IsFloatType(static_cast<int32_t>(precision))) {
    return "its softmax_precision is no float type";
  }
  site->has_nonpad = l.has(n, kNonpad);
  if (site->has_nonpad && site->has_past) return "it has a past and nonpad_kv_seqlen";
  site->type = l.Type(n, kQuery);
  if (site->type == 0) return "the element type of its queries is not known";
  return ReadMask(l, n, site);
}

std::string KeyLength(Lowering& l, const AttentionOperands& site) {
  const std::string added = l.Extent(site.node, kKey, site.seq);
  if (!site.has_past) return added;
  return l.nodes().Add("Add", {l.Extent(site.node, kPastKey, 2), added}, "keys");
}

std::string ShownKeys(Lowering& l, const AttentionOperands& site) {
  if (!site.causal && !site.has_nonpad) return {};
  NodeBuilder& nodes = l.nodes();
  const NodeId n = site.node;
  l.ScopeShared();
  const std::string keys = l.Count(KeyLength(l, site));  // [T]
  std::string valid;                                     // [B, 1, 1, 1]
  if (site.has_nonpad) valid = l.Unsqueeze(l.in(n, kNonpad), {1, 2, 3}, "valid");
  if (!site.causal) return nodes.Add("Less", {keys, valid}, "shown");
  std::string last = l.Unsqueeze(l.Count(n, kQuery, site.seq), {1}, "queries");  // [S, 1]
  if (site.has_nonpad) {
    const std::string first =
        nodes.Add("Sub", {valid, l.Extent(n, kQuery, site.seq)}, "first_query");
    last = nodes.Add("Add", {first, last}, "last_key");  // [B, 1, S, 1]
  } else if (site.has_past) {
    last = nodes.Add("Add", {l.Extent(n, kPastKey, 2), last}, "last_key");
  }
  return nodes.Add("LessOrEqual", {keys, last}, "shown");
}

std::string MaskForAllKeys(Lowering& l, const AttentionOperands& site) {
  const NodeId n = site.node;
  if (site.whole_mask || l.graph().opset() < 24) return l.in(n, kMask);
  NodeBuilder& nodes = l.nodes();
  const int rank = l.Rank(n, kMask);
  const std::string missing =
      nodes.Add("Sub", {KeyLength(l, site), l.Extent(n, kMask, rank - 1)}, "missing_columns");
  const std::string pads =
      l.Join({nodes.Int64s(std::vector<int64_t>(2 * rank - 1, 0)), missing}, "mask_pads");
  const int32_t type = l.Type(n, kMask);
  const std::string hidden = nodes.Scalar(site.float_mask ? kHidden : 0, type);
  return nodes.Add("Pad", {l.in(n, kMask), pads, hidden}, "whole_mask");
}

}  // namespace kvlift::lower
