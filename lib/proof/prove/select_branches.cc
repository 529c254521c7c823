#include "proof/prove/select_branches.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "ir/graph.h"
#include "ir/operators/operator_changes.h"
#include "ir/operators/operator_traits.h"
#include "proof/facts/needs.h"
#include "proof/lower/inline_branch.h"
#include "sym/forms/forms.h"

namespace kvlift {
namespace {

using onnx::GraphProto;
using onnx::ModelProto;
using onnx::NodeProto;

// An If that both branches and a Where per result replace.
struct SelectedIf {
  std::shared_ptr<ModelProto> model;
  std::string condition;
  // The names of the results of the branches: those for a true and for a false condition.
  std::vector<std::pair<std::string, std::string>> results;
  absl::flat_hash_set<std::string> computed;  // all values of both branches
};

// Returns nullopt if a branch cannot be inlined.
std::optional<SelectedIf> WithBothBranches(const ModelProto& model, int place) {
  SelectedIf selected;
  selected.model = std::make_shared<ModelProto>(model);
  GraphProto* graph = selected.model->mutable_graph();
  graph->clear_node();
  BranchInliner inliner(model.graph());
  for (int k = 0; k < model.graph().node_size(); ++k) {
    const NodeProto& node = model.graph().node(k);
    if (k != place) {
      *graph->add_node() = node;
      continue;
    }
    const int first = graph->node_size();
    constexpr auto kOwn = BranchInliner::Outputs::kGetOwnNames;
    const auto yes = inliner.Inline(node, true, kOwn, graph);
    const auto no = inliner.Inline(node, false, kOwn, graph);
    if (!yes.ok() || !no.ok()) return std::nullopt;
    for (int inner = first; inner < graph->node_size(); ++inner) {
      const auto& outputs = graph->node(inner).output();
      selected.computed.insert(outputs.begin(), outputs.end());
    }
    selected.condition = node.input(0);
    for (int output = 0; output < node.output_size(); ++output) {
      if (node.output(output).empty()) continue;
      NodeProto* where = graph->add_node();
      where->set_name(node.name());
      where->set_op_type("Where");
      where->add_input(node.input(0));
      where->add_input((*yes)[output]);
      where->add_input((*no)[output]);
      where->add_output(node.output(output));
      selected.results.emplace_back((*yes)[output], (*no)[output]);
    }
  }
  return selected;
}

// Returns true for operators that run for all numbers and sizes but those that NeedsOf and the
// assumptions of the forms exclude. A look-up, say, may have an index outside of its table, which
// neither states where sizes decide.
bool RunsForAll(const onnx::NodeProto& node) {
  static constexpr std::string_view kOps[] = {"Cast",   "Concat",  "Constant",  "Identity",
                                              "MatMul", "Reshape", "Shape",     "Size",
                                              "Slice",  "Squeeze", "Transpose", "Unsqueeze"};
  if (!IsDefaultDomain(node.domain())) return false;
  return FindElementwise(node) != nullptr || absl::c_linear_search(kOps, node.op_type());
}

// Returns true if no number and no size keeps the node from running, apart from the assumptions
// that the forms record.
bool AlwaysRuns(sym::Forms& forms, NodeId n) {
  const Graph& graph = forms.graph();
  if (!RunsForAll(graph.node(n))) return false;
  const auto outputs = graph.outputs(n);
  const bool sized = std::all_of(outputs.begin(), outputs.end(), [&](ValueId v) {
    return v == kNoValue || TellsExtents(forms, v, forms.Of(v));
  });
  return sized && StatesAllNeeds(forms, n) && NeedsOf(forms, n).empty();
}

// Returns true if the Where nodes give what the If gives, for all that a host may feed.
absl::StatusOr<bool> GivesTheSame(const SelectedIf& selected) {
  KV_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(selected.model));
  sym::Forms forms(graph);
  const sym::Form condition = forms.Of(graph.Find(selected.condition));
  const bool one =
      condition.known_rank && std::all_of(condition.shape.begin(), condition.shape.end(),
                                          [](sym::Expr extent) { return extent->is_integer(1); });
  if (!one) return false;
  for (const auto& [yes, no] : selected.results) {
    const ValueId x = graph.Find(yes), y = graph.Find(no);
    if (x == kNoValue || y == kNoValue) return false;
    const sym::Form a = forms.Of(x), b = forms.Of(y);
    const bool alike = a.known_rank && b.known_rank && a.shape == b.shape &&
                       a.shape.size() >= condition.shape.size() && forms.ElementType(x) != 0 &&
                       forms.ElementType(x) == forms.ElementType(y);
    if (!alike) return false;
  }
  absl::flat_hash_set<NodeId> inside;
  for (const std::string& name : selected.computed) {
    const ValueId v = name.empty() ? kNoValue : graph.Find(name);
    if (v != kNoValue && graph.producer(v) != kNoNode) inside.insert(graph.producer(v));
  }
  if (!std::all_of(inside.begin(), inside.end(), [&](NodeId n) { return AlwaysRuns(forms, n); })) {
    return false;
  }
  const auto assumptions = forms.assumptions();
  return std::none_of(assumptions.begin(), assumptions.end(),
                      [&](const sym::FormAssumption& a) { return inside.contains(a.node); });
}

}  // namespace

absl::StatusOr<ModelProto> SelectBranches(ModelProto model) {
  for (int k = 0; k < model.graph().node_size(); ++k) {
    if (!IsIf(model.graph().node(k))) continue;
    auto selected = WithBothBranches(model, k);
    if (!selected) continue;
    KV_ASSIGN_OR_RETURN(const bool same, GivesTheSame(*selected));
    if (same) model = std::move(*selected->model);
  }
  return model;
}

}  // namespace kvlift
