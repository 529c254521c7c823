// Dependences between the steps and values of a compiled graph, as tables that a frame reads.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "exec/compile/plan.h"
#include "ir/graph.h"

namespace kvlift::exec {

// Reasons to visit a step again before a run.
// An input has another shape, or other elements that the shape function reads.
inline constexpr uint8_t kNewShape = 1;
inline constexpr uint8_t kNewElements = 2;  // an early step has an input with other elements

// Lists of items, one list per value, stored in one array.
template <typename T>
class ByValue {
 public:
  ByValue() = default;
  // `items` are pairs of value and item; a value's list keeps their order.
  ByValue(int num_values, const std::vector<std::pair<ValueId, T>>& items)
      : begin_(num_values + 1, 0), items_(items.size()) {
    for (const auto& [v, item] : items) ++begin_[v + 1];
    for (int v = 0; v < num_values; ++v) begin_[v + 1] += begin_[v];
    std::vector<int> next(begin_.begin(), begin_.end() - 1);
    for (const auto& [v, item] : items) items_[next[v]++] = item;
  }
  absl::Span<const T> operator[](ValueId v) const {
    return absl::MakeSpan(items_).subspan(begin_[v], begin_[v + 1] - begin_[v]);
  }

 private:
  std::vector<int> begin_;
  std::vector<T> items_;
};

struct Consumer {
  int step = 0;
  // Bits of kNewShape and kNewElements: why other elements of the value concern the step.
  uint8_t on_elements = 0;
};

struct Wiring {
  // The operands of all steps in one array: inputs, then outputs, step by step.
  struct Operands {
    int inputs = 0, num_inputs = 0, outputs = 0, num_outputs = 0;
  };
  std::vector<Operands> operands;  // by step
  int num_operands = 0;
  ByValue<int> operands_of;        // by value: its positions in that array
  ByValue<Consumer> consumers_of;  // by value: the steps that read it and are not late
  // The last step that reads or makes a value, by value; the number of steps for graph outputs.
  std::vector<int> last_use;
  std::vector<int> step_of;          // by value: the step that makes it, or -1
  std::vector<bool> may_have_pitch;  // by value: all readers accept a pitch
};

Wiring Wire(const Graph& graph, const Plan& plan);

}  // namespace kvlift::exec
