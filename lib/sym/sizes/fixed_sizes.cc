#include "sym/sizes/fixed_sizes.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "ir/live_nodes.h"
#include "ir/types.h"
#include "sym/forms/forms.h"

namespace kvlift::sym {
namespace {

constexpr int kMostNodes = 24;       // looked at behind one input
constexpr int kMostInputs = 4;       // of each name
constexpr int64_t kFirstOpset = 13;  // of Forms

class SizeFinder {
 public:
  explicit SizeFinder(const Graph& graph) : graph_(graph), forms_(graph) {}

  std::vector<NamedSize> Run() {
    FindNames();
    // Nodes on which no output depends are not counted, because a runtime may skip them and their
    // requirements.
    if (!left_.empty()) live_ = LiveNodes(graph_);
    for (const ValueId input : graph_.graph_inputs()) {
      if (DeclaresWanted(input)) LookBehind(input);
    }
    return std::move(found_);
  }

 private:
  // Collects the names of axes of real inputs that no input of another type declares.
  void FindNames() {
    absl::flat_hash_set<std::string> counts;
    for (const bool real : {false, true}) {
      for (const ValueId input : graph_.graph_inputs()) {
        const TensorType& type = graph_.type(input);
        if (!type.shape || IsFloatType(type.elem_type) != real) continue;
        for (const Dim& dim : *type.shape) {
          if (dim.value || dim.param.empty()) continue;
          if (!real) counts.insert(dim.param);
          if (real && !counts.contains(dim.param)) left_[dim.param] = kMostInputs;
        }
      }
    }
  }

  // Returns true if the input declares a name that was not found behind enough other inputs.
  bool DeclaresWanted(ValueId input) {
    if (!graph_.type(input).shape) return false;
    bool wanted = false;
    for (const Dim& dim : *graph_.type(input).shape) {
      const auto it = left_.find(dim.param);
      if (dim.value || it == left_.end() || it->second == 0) continue;
      --it->second;
      wanted = true;
    }
    return wanted;
  }

  // Computes the forms of what reads the input, nearest first, and takes the extents that operators
  // made equal.
  void LookBehind(ValueId input) {
    std::deque<ValueId> queue = {input};
    absl::flat_hash_set<NodeId> seen;
    while (!queue.empty() && seen.size() < kMostNodes) {
      const ValueId v = queue.front();
      queue.pop_front();
      for (const Use& use : graph_.uses(v)) {
        if (!live_.contains(use.node) || !seen.insert(use.node).second) continue;
        for (const ValueId output : graph_.outputs(use.node)) {
          if (output == kNoValue) continue;
          forms_.Of(output);
          queue.push_back(output);
        }
        if (seen.size() >= kMostNodes) break;
      }
    }
    TakeEqualExtents();
  }

  void TakeEqualExtents() {
    const auto all = forms_.assumptions();
    for (; taken_ < all.size(); ++taken_) {
      const FormAssumption& assumption = all[taken_];
      const bool broadcast = assumption.reason == AssumptionReason::kBroadcast;
      if (!broadcast && assumption.reason != AssumptionReason::kEqualExtents) continue;
      if (assumption.predicate->kind() != Kind::kEq) continue;
      auto size = Solved(assumption.predicate->args()[0]);
      if (!size || (broadcast && size->name != absl::StrCat(size->size))) continue;
      Take(*std::move(size));
    }
  }

  // Solves a * name + b == 0.
  static std::optional<NamedSize> Solved(Expr zero) {
    if (zero->kind() != Kind::kSum || zero->terms().size() != 2) return std::nullopt;
    const bool constant_first = zero->terms()[0].atoms.empty();
    const Term& constant = zero->terms()[constant_first ? 0 : 1];
    const Term& term = zero->terms()[constant_first ? 1 : 0];
    if (!constant.atoms.empty() || term.atoms.size() != 1) return std::nullopt;
    const Expr dim = term.atoms[0];
    if (dim->kind() != Kind::kDim || dim->dim().is_internal()) return std::nullopt;
    if (constant.coefficient % term.coefficient != 0) return std::nullopt;
    return NamedSize{dim->dim().name(), -(constant.coefficient / term.coefficient)};
  }

  void Take(NamedSize size) {
    const auto it = left_.find(size.name);
    if (it == left_.end() || size.size <= 0) return;
    left_.erase(it);
    found_.push_back(std::move(size));
  }

  const Graph& graph_;
  Forms forms_;
  absl::flat_hash_set<NodeId> live_;
  absl::flat_hash_map<std::string, int> left_;  // by name that is open: inputs still to look behind
  size_t taken_ = 0;                            // assumptions of forms_ that were read
  std::vector<NamedSize> found_;
};

}  // namespace

std::vector<NamedSize> FixedSizesOf(const Graph& graph) {
  if (graph.opset() < kFirstOpset) return {};
  return SizeFinder(graph).Run();
}

}  // namespace kvlift::sym
