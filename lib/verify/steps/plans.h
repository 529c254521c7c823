// Plans: named sequences of steps (prefill, decode, ragged batches, ...) that both models are run
// on, as far as the models allow them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "verify/inputs/step.h"

namespace kvlift {

struct Plan {
  std::string name;
  std::string shows;  // what is shown if the plan passes
  std::vector<StepSpec> steps;
  int64_t capacity = 16;  // M: slots of each cache but rings
  bool rings = false;     // rings have as few slots as the steps need
  bool noise = false;     // slots behind the past of the source's caches hold noise, not zeros
  // The plan reaches a size that no other plan has, or feeds inputs freely, in a few steps. No
  // mutant is run on it, and the oracle computes no bounds.
  bool extra = false;
  // Shorter plans, of which the first that the source runs replaces this one; may be empty.
  std::vector<Plan> instead;
  // The assumption that the verdict rests on if no step can be run; empty: `shows` was not run.
  std::string covers;
  std::string skipped;  // why the plan does not apply (then it has no steps); empty: it applies
};

// Returns true if a step ends behind the last slot, so that rows wrap around and overwrite the
// oldest ones. This holds for every plan with small rings.
bool WrapsAround(const Plan& plan);

// The steps that the two models and their relation allow. Lengths are in tokens.
struct PlanLimits {
  int64_t capacity = 16;      // M
  bool free_capacity = true;  // neither a cache (rings apart) nor a mask declares a number of slots
  // B and S where a model declares them as constants; nullopt: dynamic.
  std::optional<int64_t> batch, tokens;
  // The source declares any number of sequences, and runs `batch` of them and not three.
  bool batch_was_found = false;
  // Only the converted model fixes B and S: the source runs a sequence alone, and fewer tokens than
  // `tokens`, which the converted model is given with padding tokens behind them.
  bool short_steps = false;
  std::optional<int64_t> tokens_with_past;  // the largest S of a step with a past; nullopt: any
  bool prefill = true;                      // a step with an empty past may have several new tokens
  bool causal = true;                       // no token sees a later one
  bool uniform = false;                     // all sequences of a batch have the same past length
  bool growing = true;                      // all caches of the source grow
  bool circular = false;                    // caches are ring buffers: P + S may exceed M
  bool mask = false;                        // an input is a mask
  bool pads = true;             // steps with padding tokens are allowed by the preconditions
  bool shows_a_key = true;      // padding that a mask hides leaves each token a key
  bool free_positions = false;  // an input holds positions that may be any numbers
  int64_t row_bytes = 0;  // bytes of a token of a sequence in all caches but rings, 4 per number
  bool free_lengths = false;  // an input has a length that no step determines (Axis::free_length)
  std::vector<int64_t> thresholds;     // numbers that occur in one model only (thresholds.h)
  std::vector<int64_t> table_rows;     // sizes of axes of stored tables (thresholds.h)
  bool reorders = false;               // an input reorders the sequences of the past (beam search)
  std::optional<int64_t> kept;         // most rows that a source's window keeps; nullopt: no window
  std::vector<int64_t> rings;          // the windows of caches that are rings, in rows, each once
  bool all_rings = false;              // every cache is a ring
  std::optional<int64_t> most_tokens;  // the largest S that rings of fixed size take; nullopt: any
  bool full = false;                   // also plans of --plan full
  bool proved = false;                 // all facts of the proof hold
};

// Returns all plans. One that the limits do not allow has no steps and says why in `skipped`.
std::vector<Plan> MakePlans(const PlanLimits& limits);

}  // namespace kvlift
