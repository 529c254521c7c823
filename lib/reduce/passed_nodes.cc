#include <algorithm>
#include <utility>

#include "ir/patch.h"
#include "reduce/edits.h"
#include "reduce/reductions.h"

namespace kvlift {
namespace {

class PassedNodes : public Reduction {
 public:
  std::string_view name() const override { return "nodes in between"; }

  std::vector<std::string> Elements(const SubjectGraphs& graphs) const override {
    std::vector<std::string> names;
    for (const SharedValue& value : graphs.values()) {
      if (!Operand(graphs, value).empty()) names.push_back(value.name);
    }
    return names;
  }

  absl::StatusOr<Subject> Without(const SubjectGraphs& graphs,
                                  absl::Span<const std::string> elements) const override {
    absl::flat_hash_map<std::string, std::string> read;
    for (const std::string& name : elements) {
      const SharedValue* value = graphs.Find(name);
      const std::string operand = value == nullptr ? "" : Operand(graphs, *value);
      if (operand.empty()) return absl::FailedPreconditionError("there is no such value");
      read[name] = operand;
    }
    Patch patch;
    patch.drop_value_info = false;
    for (const auto& [name, first] : read) {
      std::string last = first;
      for (auto next = read.find(last); next != read.end(); next = read.find(last)) {
        last = next->second;
      }
      patch.replace_uses[name] = last;
    }
    return EditEach(graphs, [&](const Graph& graph) { return Apply(graph, patch); });
  }

 private:
  // Returns the first operand, in both models of a pair, with the type of the value. Returns an
  // empty name if no operand has that type, if the value is an output, or if no node reads the
  // value.
  static std::string Operand(const SubjectGraphs& graphs, const SharedValue& value) {
    if (!IsKnown(value.type) || !MayBePassed(graphs.before(), value.before)) return {};
    const bool pair = graphs.subject().is_pair();
    if (pair && !MayBePassed(graphs.after(), value.after)) return {};
    for (const ValueId v : graphs.before().inputs(graphs.before().producer(value.before))) {
      if (v == kNoValue || !HasType(graphs, graphs.before(), v, value.type)) continue;
      const std::string& name = graphs.before().name(v);
      if (!pair) return name;
      const auto& operands = graphs.after().inputs(graphs.after().producer(value.after));
      const ValueId w = graphs.after().Find(name);
      if (w == kNoValue || !HasType(graphs, graphs.after(), w, value.type)) continue;
      if (std::find(operands.begin(), operands.end(), w) != operands.end()) return name;
    }
    return {};
  }

  static bool MayBePassed(const Graph& graph, ValueId v) {
    return !graph.is_graph_output(v) && !graph.uses(v).empty();
  }

  static bool HasType(const SubjectGraphs& graphs, const Graph& graph, ValueId v,
                      const TensorType& type) {
    const SharedValue* value = graphs.Find(graph.name(v));
    const TensorType& own = value != nullptr ? value->type : graph.type(v);
    return own == type;
  }
};

}  // namespace

const Reduction& PassedNodesReduction() {
  static const PassedNodes kReduction;
  return kReduction;
}

}  // namespace kvlift
