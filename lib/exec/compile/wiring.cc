#include "exec/compile/wiring.h"

#include <algorithm>

#include "exec/compile/shape_reads.h"

namespace kvlift::exec {
namespace {

class Wirer {
 public:
  Wirer(const Graph& graph, const Plan& plan) : graph_(graph), plan_(plan) {
    wiring_.last_use.assign(graph.num_values(), -1);
    wiring_.step_of.assign(graph.num_values(), -1);
    wiring_.may_have_pitch.assign(graph.num_values(), true);
  }

  Wiring Run() {
    for (size_t s = 0; s < plan_.steps.size(); ++s) AddStep(static_cast<int>(s));
    for (const ValueId v : graph_.graph_outputs()) {
      wiring_.last_use[v] = static_cast<int>(plan_.steps.size());
      wiring_.may_have_pitch[v] = false;
    }
    wiring_.operands_of = ByValue<int>(graph_.num_values(), operands_);
    wiring_.consumers_of = ByValue<Consumer>(graph_.num_values(), consumers_);
    return std::move(wiring_);
  }

 private:
  int AddOperands(absl::Span<const ValueId> values) {
    const int begin = wiring_.num_operands;
    for (const ValueId v : values) {
      if (v != kNoValue) operands_.emplace_back(v, wiring_.num_operands);
      ++wiring_.num_operands;
    }
    return begin;
  }

  void AddStep(int s) {
    const StepPlan& step = plan_.steps[s];
    const auto inputs = graph_.inputs(step.node), outputs = graph_.outputs(step.node);
    for (const auto& list : {inputs, outputs, graph_.captures(step.node)}) {
      for (const ValueId v : list) {
        if (v != kNoValue) wiring_.last_use[v] = std::max(wiring_.last_use[v], s);
      }
    }
    for (const ValueId v : outputs) {
      if (v != kNoValue) wiring_.step_of[v] = s;
    }
    for (const ValueId v : graph_.captures(step.node)) wiring_.may_have_pitch[v] = false;
    // A part of a part could only be found after the first part has its place.
    const bool parts = step.def == nullptr || step.def->part != nullptr;
    const uint32_t pitched = parts ? 0 : step.def->pitched_inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] != kNoValue && (i >= 32 || (pitched >> i & 1) == 0)) {
        wiring_.may_have_pitch[inputs[i]] = false;
      }
    }
    Wiring::Operands operands;
    if (step.timing != Timing::kLate) {
      operands.inputs = AddOperands(inputs);
      operands.num_inputs = static_cast<int>(inputs.size());
      operands.outputs = AddOperands(outputs);
      operands.num_outputs = static_cast<int>(outputs.size());
      AddConsumer(s, inputs);
    }
    wiring_.operands.push_back(operands);
  }

  void AddConsumer(int s, absl::Span<const ValueId> inputs) {
    const StepPlan& step = plan_.steps[s];
    const uint32_t reads = ShapeReads(*step.def);
    const bool computes = step.timing == Timing::kEarly && !IsOfShapeAlone(*step.def);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == kNoValue) continue;
      const uint8_t on_elements =
          (ReadsInput(reads, i) ? kNewShape : uint8_t{0}) | (computes ? kNewElements : uint8_t{0});
      consumers_.emplace_back(inputs[i], Consumer{s, on_elements});
    }
  }

  const Graph& graph_;
  const Plan& plan_;
  Wiring wiring_;
  std::vector<std::pair<ValueId, int>> operands_;
  std::vector<std::pair<ValueId, Consumer>> consumers_;
};

}  // namespace

Wiring Wire(const Graph& graph, const Plan& plan) { return Wirer(graph, plan).Run(); }

}  // namespace kvlift::exec
