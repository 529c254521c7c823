// Draws pairs of models, runs the proof on each, and compares its answer with the oracle. A pair
// that differs at some small shape although all facts are proved is a failure of the proof.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace kvlift::soundness {

struct Limits {
  int64_t pairs = 0;   // 0: no limit
  double seconds = 0;  // 0: no limit
  std::string folder;  // folder for failures; empty: they are not written
  uint64_t seed = 1;
  std::optional<uint64_t> base;  // only the pairs of the source with this seed
};

// Failures that were made by the same change at the same kind of place.
struct Kind {
  int64_t count = 0;
  uint64_t seed = 0;  // of the first source
  std::string first;
};

// The counts of a run.
struct Tally {
  int64_t bases = 0, pairs = 0, proved = 0;
  // Pairs that were not proved but run, and those that differ.
  int64_t sampled = 0, sampled_differ = 0;
  int64_t unjudged = 0;  // proved, but the oracle could not run them
  // Pairs that were proved and differ where values inside the source violate an entry of the
  // ledger. Such values cannot be observed, so this is not counted as a failure of the proof.
  int64_t conditional = 0;
  std::map<std::string, Kind> failures, unjudged_kinds;
  double seconds = 0;

  void Merge(const Tally& other);
  // Returns one line of numbers.
  std::string Summary() const;
  // Returns that line, then one for each kind of failure and of pairs that the oracle could not
  // run.
  std::string Text() const;
  std::string Serialized() const;
  static Tally Parsed(const std::string& text);
};

Tally Run(const Limits& limits);

}  // namespace kvlift::soundness
