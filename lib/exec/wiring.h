// Who depends on what in a compiled graph: tables that a frame walks step by step.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "exec/plan.h"
#include "ir/graph.h"

namespace kvlift::exec {

// Why a step has to be looked at again.
inline constexpr uint8_t kNewShape = 1;  // of an input, or elements that its shape function reads
inline constexpr uint8_t kNewElements = 2;  // of an input of an early step

// Items by value, in one array.
template <typename T>
class ByValue {
 public:
  ByValue() = default;
  // `items`: pairs of value and item, in the order in which they are to be listed.
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
  uint8_t on_elements = 0;  // what new elements of the value mean to the step
};

struct Wiring {
  // Operands of all steps in one array: inputs, then outputs, step by step.
  struct Operands {
    int inputs = 0, num_inputs = 0, outputs = 0, num_outputs = 0;
  };
  std::vector<Operands> operands;  // by step
  int num_operands = 0;
  ByValue<int> operands_of;        // where in that array a value stands
  ByValue<Consumer> consumers_of;  // steps that are not late
  // Last step that reads or makes a value, by value; the number of steps for graph outputs.
  std::vector<int> last_use;
  std::vector<int> step_of;          // that makes a value, -1 for others
  std::vector<bool> may_have_pitch;  // by value: all readers accept it
};

Wiring Wire(const Graph& graph, const Plan& plan);

}  // namespace kvlift::exec
