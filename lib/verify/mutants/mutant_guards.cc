#include "verify/mutants/mutant_guards.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "ir/types.h"

namespace kvlift {
namespace {

using onnx::NodeProto;

constexpr int kAttentionMask = 3, kNonpad = 6;

ValueId Operand(const Graph& graph, NodeId n, int k) {
  return k < static_cast<int>(graph.inputs(n).size()) ? graph.inputs(n)[k] : kNoValue;
}

// Whether a matrix product reaches the value through elementwise operators and moves.
bool IsProduct(const Graph& graph, ValueId v) {
  for (int depth = 0; v != kNoValue && depth < 12; ++depth) {
    const NodeId n = graph.producer(v);
    if (n == kNoNode) return false;
    const std::string& op = graph.node(n).op_type();
    if (op == "MatMul" || op == "Einsum" || op == "FusedMatMul" || op == "Gemm") return true;
    if (op != "Mul" && op != "Div" && op != "Cast" && op != "Reshape" && op != "Add" &&
        op != "Tanh" && op != "Identity" && op != "Transpose" && op != "Where") {
      return false;
    }
    const int k = op == "Where" ? 1 : 0;
    const bool other = k == 0 && graph.inputs(n).size() > 1 && op != "Reshape" &&
                       !IsFloatType(graph.type(Operand(graph, n, 0)).elem_type) &&
                       graph.constant(Operand(graph, n, 0)) != nullptr;
    v = Operand(graph, n, other ? 1 : k);
  }
  return false;
}

// Returns the mask in front of a softmax, whose operand v is; nullopt if the scores and the mask
// cannot be told apart.
std::optional<MaskSite> MaskBefore(const Graph& graph, ValueId v) {
  for (int depth = 0; v != kNoValue && depth < 8; ++depth) {
    const NodeId n = graph.producer(v);
    if (n == kNoNode) return std::nullopt;
    if (graph.Is(n, "Add")) {
      const bool first = IsProduct(graph, graph.inputs(n)[0]);
      const bool second = IsProduct(graph, graph.inputs(n)[1]);
      if (first == second) return std::nullopt;
      return MaskSite{n, first ? 1 : 0, first ? 0 : 1, false};
    }
    if (graph.Is(n, "Where")) {
      const bool first = IsProduct(graph, graph.inputs(n)[1]);
      const bool second = IsProduct(graph, graph.inputs(n)[2]);
      if (first == second) return std::nullopt;
      return MaskSite{n, 0, first ? 1 : 2, false};
    }
    if (!graph.Is(n, "Cast") && !graph.Is(n, "Reshape") && !graph.Is(n, "Identity") &&
        !graph.Is(n, "Max")) {
      return std::nullopt;
    }
    v = graph.inputs(n)[0];
  }
  return std::nullopt;
}

// Returns the mask that an Attention or a Softmax applies; nullopt if it has none, or if the node
// is another one.
std::optional<MaskSite> MaskAt(const Graph& graph, NodeId n) {
  if (graph.Is(n, "Softmax")) return MaskBefore(graph, graph.inputs(n)[0]);
  if (!graph.Is(n, "Attention") || Operand(graph, n, kAttentionMask) == kNoValue) {
    return std::nullopt;
  }
  return MaskSite{n, kAttentionMask, 0, true};
}

// Returns all masks of attentions by the node that applies them.
absl::flat_hash_map<NodeId, MaskSite> AllMasks(const Graph& graph) {
  absl::flat_hash_map<NodeId, MaskSite> sites;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    if (const auto site = MaskAt(graph, n)) sites.emplace(site->node, *site);
  }
  return sites;
}

// Removes all conditions that hide keys from an Attention node.
void Unguard(NodeProto* node) {
  MutantMaker::Drop(node, "is_causal");
  if (node->input_size() > kNonpad) node->mutable_input()->DeleteSubrange(kNonpad, 1);
  if (node->input_size() > kAttentionMask) node->set_input(kAttentionMask, "");
}

}  // namespace

void DropMask(const MaskSite& site, NodeProto* node) {
  if (site.attention) {
    node->set_input(site.mask, "");
    return;
  }
  const std::string scores = node->input(site.scores);
  *node = MutantMaker::Make("Identity", {scores}, node->output(0));
}

std::optional<NodeId> LastAttention(const Graph& graph) {
  for (NodeId n = graph.num_nodes() - 1; n >= 0; --n) {
    if (graph.Is(n, "Attention") && Operand(graph, n, kNonpad) != kNoValue) return n;
  }
  return std::nullopt;
}

std::optional<MaskSite> LastMask(const Graph& graph) {
  for (NodeId n = graph.num_nodes() - 1; n >= 0; --n) {
    const auto site = MaskAt(graph, n);
    if (site || graph.Is(n, "Attention")) return site;
  }
  return std::nullopt;
}

std::vector<Mutant> MakeUnguarded(const Graph& graph) {
  MutantMaker maker(graph);
  const auto attention = LastAttention(graph);
  const auto site = LastMask(graph);
  if (!attention && !site) return {};
  maker.Add("nothing hidden", {}, [&](NodeId n, NodeProto* node, auto*) {
    if (site && n == site->node && !site->attention) DropMask(*site, node);
    if (node->op_type() == "Attention" &&
        ((site && n == site->node) || (attention && n == *attention))) {
      Unguard(node);
    }
  });
  // The last attention may be read for the last token alone, from which nothing is hidden.
  const absl::flat_hash_map<NodeId, MaskSite> sites = AllMasks(graph);
  if (sites.size() > 1) {
    maker.Add("nothing hidden in any attention", {}, [&](NodeId n, NodeProto* node, auto*) {
      const auto found = sites.find(n);
      if (found == sites.end()) return;
      if (found->second.attention) return Unguard(node);
      DropMask(found->second, node);
    });
  }
  return std::move(maker.mutants());
}

}  // namespace kvlift
