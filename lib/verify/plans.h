// What is run: named sequences of steps, as far as the models allow them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "verify/stimulus.h"

namespace kvlift {

struct Plan {
  std::string name;
  std::string shows;  // what a pass of it says
  std::vector<StepSpec> steps;
  std::string skipped;  // why it does not apply; then there are no steps
};

struct PlanLimits {
  int64_t capacity = 16;
  std::optional<int64_t> batch, tokens;  // fixed by the models
  bool uniform = false;
  bool mask = false;  // an input says which keys are pads
  bool full = false;
};

std::vector<Plan> MakePlans(const PlanLimits& limits);

}  // namespace kvlift
