// The part of AttentionEmitter that builds the mask operand of an Attention.
#include <limits>

#include "base/status.h"
#include "rewrite/emit/emit_attention.h"

namespace kvlift::internal {

using onnx::TensorProto;

namespace {

// Returns the bias of hidden keys where it must be finite, because some runtimes give NaN for a row
// of -inf: half of the lowest number, so that its sum with a score is finite, too.
double FarBelowScores(int32_t type) {
  switch (type) {
    case TensorProto::DOUBLE:
      return std::numeric_limits<double>::lowest() / 2;
    case TensorProto::FLOAT16:
      return -32752;
    default:
      return std::numeric_limits<float>::lowest() / 2;
  }
}

}  // namespace

absl::StatusOr<std::string> AttentionEmitter::Mask(const AttentionSite& site,
                                                   const PlannedAttention& planned,
                                                   const Slots& slots) {
  s_.nodes.set_scope("shared");
  std::string mask;
  if (planned.mask) {
    s_.emitter.BindDim(KeysSymbol(), {slots.keys, false});
    KV_ASSIGN_OR_RETURN(mask, s_.emitter.Tensor(*planned.mask));
  }
  if (planned.tree) mask = WithTree(mask, slots);
  if (!planned.biases.empty()) {
    KV_ASSIGN_OR_RETURN(mask, MaskOfBiases(site, planned, slots, mask));
  } else if (planned.additive && !mask.empty()) {
    const int32_t type = s_.forms.ElementType(site.query);
    mask = s_.nodes.Add(
        "Where", {mask, s_.nodes.Scalar(0, type), s_.nodes.Scalar(FarBelowScores(type), type)},
        "bias");
  }
  if (planned.sink) {
    KV_ASSIGN_OR_RETURN(mask, WithSink(mask, site, planned, slots));
  }
  if (!planned.groups_as_tokens || mask.empty()) return mask;
  return MaskOfGroupsAsTokens(mask, site, planned.mask_has_heads);
}

// Returns the mask for groups as tokens from a mask of rank 4 with an axis of N heads, or of 1.
std::string AttentionEmitter::MaskOfGroupsAsTokens(const std::string& mask,
                                                   const AttentionSite& site, bool has_heads) {
  const int64_t groups = site.key.view.heads;
  if (!has_heads) {
    const NodeBuilder::Inputs copies(site.q_heads / groups, mask);
    return s_.nodes.Add("Concat", copies, "mask_groups", {MakeAttribute("axis", int64_t{2})});
  }
  const std::string keys = s_.nodes.Extent(mask, 3, "keys");
  const std::string shape = s_.nodes.Add("Concat", {s_.nodes.Int64s({0, groups, -1}), keys},
                                         "shape", {MakeAttribute("axis", int64_t{0})});
  return s_.nodes.Add("Reshape", {mask, shape}, "mask_groups");
}

// Returns [B or 1, N or 1, S, W] of the type of the keys: the sum of the biases, and -inf where
// `mask`, which may be empty, hides the key.
absl::StatusOr<std::string> AttentionEmitter::MaskOfBiases(const AttentionSite& site,
                                                           const PlannedAttention& planned,
                                                           const Slots& slots,
                                                           const std::string& mask) {
  std::string sum;
  for (const PlannedBias& bias : planned.biases) {
    std::string added = s_.graph.name(bias.value);
    if (bias.cut_to_keys) {
      added = s_.nodes.Add(
          "Slice", {added, s_.nodes.Int64s({0}), slots.keys, s_.nodes.Int64s({-1})}, "bias");
    }
    if (bias.splits_heads) added = SplitBatchAndHeads(added, site.q_heads);
    if (bias.joined_heads > 0) added = JoinAxesOfHeads(added, bias.joined_heads);
    if (bias.in_ring_order) {
      KV_ASSIGN_OR_RETURN(added, s_.emitter.Tensor(*bias.in_ring_order));
    }
    sum = sum.empty() ? added : s_.nodes.Add("Add", {sum, added}, "bias");
  }
  if (!mask.empty()) {
    const int32_t type = s_.forms.ElementType(planned.biases[0].value);
    const double hidden =
        planned.additive ? FarBelowScores(type) : -std::numeric_limits<double>::infinity();
    return s_.nodes.Add("Where", {mask, sum, s_.nodes.Scalar(hidden, type)}, "bias");
  }
  if (!planned.expands_biases) return sum;
  // ONNX Runtime 1.31 needs rank 4 and the full extents of queries and keys.
  const std::string rows = QueryExtent(site);
  const std::string one = s_.nodes.Int64s({1});
  const std::string shape = s_.nodes.Add("Concat", {one, one, rows, slots.keys}, "shape",
                                         {MakeAttribute("axis", int64_t{0})});
  return s_.nodes.Add("Expand", {sum, shape}, "bias");
}

absl::StatusOr<std::string> AttentionEmitter::WithSink(const std::string& mask,
                                                       const AttentionSite& site,
                                                       const PlannedAttention& planned,
                                                       const Slots& slots) {
  NodeBuilder& nodes = s_.nodes;
  const auto join = [&](const NodeBuilder::Inputs& parts) {
    return nodes.Add("Concat", parts, "shape", {MakeAttribute("axis", int64_t{0})});
  };
  const auto extent = [&](int64_t axis) { return nodes.Extent(mask, axis, "extent"); };
  KV_ASSIGN_OR_RETURN(const std::string sink, s_.emitter.Tensor(*planned.sink));
  const std::string one = nodes.Int64s({1});
  std::string column, rest;
  if (mask.empty()) {
    const std::string rows = QueryExtent(site);
    const std::string zero = nodes.Scalar(0, planned.sink->elem_type);
    rest = nodes.Add("Expand", {zero, join({nodes.Int64s({1, site.q_heads}), rows, slots.keys})},
                     "bias");
    column = nodes.Add("Expand", {sink, join({one, one, rows, one})}, "sinks");
  } else {
    rest = nodes.Add("Expand", {mask, nodes.Int64s({1, site.q_heads, 1, 1})}, "bias");
    column = nodes.Add("Expand", {sink, join({extent(0), one, extent(2), one})}, "sinks");
  }
  return nodes.Add("Concat", {rest, column}, "bias", {MakeAttribute("axis", int64_t{3})});
}

// Returns [B, N, ., .] from [B*N, ., .].
std::string AttentionEmitter::SplitBatchAndHeads(const std::string& value, int64_t heads) {
  NodeBuilder& nodes = s_.nodes;
  const std::string rest =
      nodes.Add("Shape", {value}, "rest", {MakeAttribute("start", int64_t{1})});
  const std::string shape = nodes.Add("Concat", {nodes.Int64s({-1, heads}), rest}, "shape",
                                      {MakeAttribute("axis", int64_t{0})});
  return nodes.Add("Reshape", {value, shape}, "bias");
}

// Returns [., heads, ., .] from [., ., ., ., .], whose axes 1 and 2 have as many elements together.
std::string AttentionEmitter::JoinAxesOfHeads(const std::string& value, int64_t heads) {
  NodeBuilder& nodes = s_.nodes;
  const std::string lead = nodes.Add("Shape", {value}, "batch", {MakeAttribute("end", int64_t{1})});
  const std::string rest =
      nodes.Add("Shape", {value}, "rest", {MakeAttribute("start", int64_t{3})});
  const std::string shape = nodes.Add("Concat", {lead, nodes.Int64s({heads}), rest}, "shape",
                                      {MakeAttribute("axis", int64_t{0})});
  return nodes.Add("Reshape", {value, shape}, "bias");
}

// Writes the tree into a mask of ones, as a square that starts at the write index.
std::string AttentionEmitter::WithTree(const std::string& mask, const Slots& slots) {
  NodeBuilder& nodes = s_.nodes;
  const std::string& tree = std::get<IndexInputs>(s_.plan.index).tree_mask;
  const std::string front =
      nodes.Add("Shape", {tree}, "tokens_of_tree", {MakeAttribute("end", int64_t{3})});
  const std::string shape =
      nodes.Add("Concat", {front, slots.keys}, "shape", {MakeAttribute("axis", int64_t{0})});
  const std::string open = nodes.Add("Expand", {nodes.Scalar(1, TensorProto::BOOL), shape}, "open");
  const std::string drawn = nodes.Add("TensorScatter", {open, tree, slots.write}, "tree",
                                      {MakeAttribute("axis", int64_t{3})});
  return mask.empty() ? drawn : nodes.Add("And", {mask, drawn}, "mask");
}

}  // namespace kvlift::internal
