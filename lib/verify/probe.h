// Runs the source a few times before any plan, to settle what its interface leaves open, and to see
// which steps it takes at all.
//
// The measure: a right reading of the inputs makes the source write the new rows into the slots
// [P, P+S) and nowhere else, makes its outputs depend on the past, and on no slot behind the new
// rows. Among readings that do all that, those by which more is visible are preferred.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "verify/drive.h"
#include "verify/stimulus.h"

namespace kvlift {

struct SourceFacts {
  bool prefill = true;           // takes several tokens with an empty past
  bool chunks = true;            // and behind one
  bool causal = true;            // no token sees a later one
  bool reads_unused = false;     // outputs depend on slots that hold no token
  bool reads_garbage = false;    // they do if such slots hold very large numbers
  std::optional<int64_t> kept;   // most rows that a window keeps
  std::optional<int64_t> batch;  // the only number of sequences that it was seen to run with
};

// Settles readings and sizes in `stimulus`, windows in `driver`, which refers to it.
// `garbage` is the size of very large numbers. FailedPrecondition says why no reading fits.
absl::StatusOr<SourceFacts> ProbeSource(Runner& source, const Graph& after,
                                        const Manifest& relation, int64_t capacity, double garbage,
                                        Stimulus* stimulus, Driver* driver);

}  // namespace kvlift
