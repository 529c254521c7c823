// Draws pairs of models, asks the proof for each, and holds what it says against the oracle. A pair
// that differs at some small shape, and of which all facts hold, is a failure of the proof.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace kvlift::soundness {

struct Limits {
  int64_t pairs = 0;   // 0: no limit
  double seconds = 0;  // 0: no limit
  std::string folder;  // where failures are written; empty: nowhere
  uint64_t seed = 1;
  std::optional<uint64_t> base;  // the pairs of one source alone, by its seed
};

// Failures that were made by the same change at the same kind of place.
struct Kind {
  int64_t count = 0;
  uint64_t seed = 0;  // of the first base
  std::string first;
};

struct Tally {
  int64_t bases = 0, pairs = 0, proved = 0;
  int64_t sampled = 0, sampled_differ = 0;  // of those that were not proved
  int64_t unjudged = 0;                     // proved, and the oracle could not run them
  // Proved, and different where values inside the source break an entry of the ledger: what they
  // are is not known, and not told from a fault of the proof.
  int64_t conditional = 0;
  std::map<std::string, Kind> failures, unjudged_kinds;
  double seconds = 0;

  void Merge(const Tally& other);
  // One line of numbers.
  std::string Summary() const;
  // That line, and one for each kind of failure and of what the oracle could not run.
  std::string Text() const;
  std::string Serialized() const;
  static Tally Parsed(const std::string& text);
};

Tally Run(const Limits& limits);

}  // namespace kvlift::soundness
