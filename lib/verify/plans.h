// What is run: named sequences of steps, as far as the models allow them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "verify/step.h"

namespace kvlift {

struct Plan {
  std::string name;
  std::string shows;  // what a pass of it says
  std::vector<StepSpec> steps;
  int64_t capacity = 16;
  bool rings = false;  // the rings of windows have as few slots as the steps need
  bool noise = false;  // the source's slots behind the past hold noise, not zeros
  // Reaches a size that no other plan has, or feeds inputs freely, in few steps: mutants are not
  // held against it, and the oracle does not run.
  bool extra = false;
  std::vector<Plan> instead;  // the first of these that the source runs, where it does not run this
  // What the verdict takes for granted where no step of the plan can be run; empty: nothing.
  std::string covers;
  std::string skipped;  // why it does not apply; then there are no steps
};

// Some step ends behind the last slot: rows wrap around, and the first ones are lost. All steps of
// a plan with small rings count as such.
bool GoesAround(const Plan& plan);

struct PlanLimits {
  int64_t capacity = 16;
  bool free_capacity = true;  // any number of tokens: no cache but rings, and no mask, has a size
  std::optional<int64_t> batch, tokens;     // fixed by the models
  std::optional<int64_t> tokens_with_past;  // at most
  bool prefill = true;                      // several tokens with an empty past
  bool causal = true;                       // no token sees a later one
  bool uniform = false;
  bool growing = true;
  bool circular = false;               // may be longer than the capacity
  bool mask = false;                   // an input says which keys are pads
  bool pads = true;                    // no precondition rules out steps with padding
  bool free_positions = false;         // an input holds positions that may be any numbers
  int64_t row_bytes = 0;               // of all caches, per token and sequence
  std::vector<int64_t> thresholds;     // numbers that one model has and the other has not
  bool reorders = false;               // an input says of which sequence each one goes on
  std::optional<int64_t> kept;         // most rows that a window keeps
  std::vector<int64_t> rings;          // of caches that are rings: the window, each once
  bool all_rings = false;              // every cache is one
  std::optional<int64_t> most_tokens;  // of a step, where a ring has a fixed number of slots
  bool full = false;
};

std::vector<Plan> MakePlans(const PlanLimits& limits);

}  // namespace kvlift
