#include "verify/inputs/step.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace kvlift {

int64_t StepSpec::longest() const { return *std::max_element(past.begin(), past.end()); }

bool StepSpec::ragged() const {
  const auto differ = [](const std::vector<int64_t>& v) {
    return std::adjacent_find(v.begin(), v.end(), std::not_equal_to<>()) != v.end();
  };
  return differ(past) || differ(real) || (!real.empty() && real[0] != new_tokens);
}

StepSpec StepSpec::Alone(int b) const {
  StepSpec one = *this;
  one.past = {past[b]};
  one.new_tokens = real_of(b);
  one.real.clear();
  one.sequences = {sequences[b]};
  one.order.clear();
  if (!pads.empty()) one.pads = {pads[b]};
  if (!hidden.empty()) one.hidden = {hidden[b]};
  return one;
}

StepSpec EvenStep(int64_t batch, int64_t past, int64_t tokens) {
  StepSpec step;
  step.past.assign(batch, past);
  step.new_tokens = tokens;
  step.sequences.resize(batch);
  std::iota(step.sequences.begin(), step.sequences.end(), 0);
  return step;
}

}  // namespace kvlift
