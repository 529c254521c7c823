// Lowers Attention-24 to Attention-23. What opset 24 added becomes part of the mask: the keys that
// nonpad_kv_seqlen hides, its alignment of is_causal, and the columns that a mask lacks. Source:
// ONNX Attention-23 and Attention-24 with the errata of ONNX 1.23.
#include <vector>

#include "fmt/format.h"
#include "lower/attention_operands.h"

namespace kvlift::lower {
namespace {

// Adds nodes for the whole mask of the node, bool or float, with extents that broadcast to [B, N,
// S, T]. The axis of queries is expanded to S, since runtimes refuse masks that have one row for
// all queries.
std::string DrawnMask(Lowering& l, const AttentionOperands& site) {
  NodeBuilder& nodes = l.nodes();
  const NodeId n = site.node;
  std::string shown = ShownKeys(l, site);
  l.ScopeShared();
  if (!shown.empty() && !site.causal) {
    const std::string one = l.Literal(1);
    const std::string rows =
        l.Join({one, one, l.Extent(n, kQuery, site.seq), one}, "rows_of_queries");
    shown = nodes.Add("Expand", {shown, rows}, "shown_to_queries");
  }
  l.ScopeOf(n);
  if (!site.has_mask) return shown;
  const std::string mask = MaskForAllKeys(l, site);
  if (shown.empty()) return mask;
  if (!site.float_mask) return nodes.Add("And", {shown, mask}, "mask");
  return nodes.Add("Where", {shown, mask, nodes.Scalar(kHidden, l.Type(n, kMask))}, "mask");
}

// Returns true if the node means the same in opset 23.
bool IsOfOpset23(const AttentionOperands& site) {
  return !site.has_nonpad && (!site.has_mask || site.whole_mask);
}

}  // namespace

void KeepAttention(Lowering& l, NodeId n) {
  if (l.graph().opset() < 24) return;
  AttentionOperands site;
  if (!ReadAttention(l, n, &site).empty() || !IsOfOpset23(site)) l.Pin(n);
}

bool LowerAttention(Lowering& l, NodeId n, AttentionForm form) {
  AttentionOperands site;
  std::string why = ReadAttention(l, n, &site);
  if (why.empty() && form == AttentionForm::kDecomposed) {
    why = Decompose(l, site);
  } else if (why.empty()) {
    if (l.graph().opset() < 24 || IsOfOpset23(site)) return false;
    for (int k = kPresentKey; k <= kScores; ++k) {
      if (l.gives(n, k)) why = "it has outputs besides Y, and needs a mask tensor";
    }
  }
  if (!why.empty()) {
    l.Refuse(n, why);
    return false;
  }
  l.patch().remove_nodes.insert(n);
  if (form == AttentionForm::kDecomposed) return true;
  const std::string mask = DrawnMask(l, site);
  NodeBuilder::Attributes attributes;
  for (const auto& attribute : l.graph().node(n).attribute()) {
    // With nonpad_kv_seqlen the mask contains the causal order; otherwise is_causal still applies
    // it.
    if (attribute.name() == "is_causal" && site.has_nonpad) continue;
    attributes.push_back(attribute);
  }
  NodeBuilder::Inputs inputs = {l.in(n, kQuery), l.in(n, kKey), l.in(n, kValue), mask};
  if (site.has_past) {
    inputs.push_back(l.in(n, kPastKey));
    inputs.push_back(l.in(n, kPastValue));
  }
  l.nodes().AddNamed("Attention", inputs, "Attention", l.out(n, kResult), attributes);
  return true;
}

}  // namespace kvlift::lower
