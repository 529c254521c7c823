// Runs the source a few times before any plan, to choose between several meanings that its inputs
// may have, and to find out which steps it takes.
//
// With the right meanings the source writes the new rows into slots [P, P+S) and nowhere else, and
// its outputs depend on the past and on no slot behind the new rows. Among meanings that satisfy
// this, those that make more keys visible are preferred.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "verify/inputs/stimulus.h"
#include "verify/steps/drive.h"

namespace kvlift {

struct SourceFacts {
  bool prefill = true;           // takes several new tokens with an empty past
  bool chunks = true;            // takes several new tokens behind a past
  bool causal = true;            // no token sees a later one
  bool reads_unused = false;     // outputs depend on slots that hold no token
  bool reads_garbage = false;    // outputs do so if these slots hold very large numbers
  std::optional<int64_t> kept;   // most rows that a window keeps; nullopt: no window was found
  std::optional<int64_t> batch;  // the only number of sequences that was found to run; nullopt: any
};

// Chooses readings and open sizes in `stimulus`, and sets the windows of `driver`, which refers to
// `stimulus`. capacity: slots of the caches that do not grow. garbage: the factor by which unused
// slots are made very large. FailedPrecondition says why no reading makes the source append.
absl::StatusOr<SourceFacts> ProbeSource(Runner& source, const Graph& after,
                                        const Manifest& relation, int64_t capacity, double garbage,
                                        Stimulus* stimulus, Driver* driver);

}  // namespace kvlift
