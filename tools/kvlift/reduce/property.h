// The property that `reduce` keeps while it makes models smaller, and the test whether the end of a
// process shows it.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kvlift/fleet/outcome.h"

namespace kvlift::cli {

// The result of a process that ran `verify` or `convert`.
struct Observation {
  FleetResult result;
  // Plans of `verify`, by whether the two models agreed.
  std::set<std::string> passed, failed;
};
// `command` is "verify" or "convert". limits: those of the process.
Observation Observe(const std::string& command, const ProcessEnd& end, const ProcessOutput& printed,
                    const ProcessLimits& limits = {});

// Returns true if a process reached one of its limits, so that its end says nothing about the
// models.
bool ReachedLimit(const Observation& seen);

class Property {
 public:
  // Returns the property that the observation of the given models shows: that two models differ or
  // are not shown to be equal, that a model is refused, or that the program crashes. keep: empty,
  // or the word of --keep (KeepWordError), which asks for one of these. Returns nullopt if it is
  // not shown.
  static std::optional<Property> Of(const Observation& seen, const std::string& keep);

  // Returns true if an observation of smaller models shows the same. Plans in which the given
  // models agreed do not count as differences.
  bool IsShown(const Observation& seen) const;
  // Returns the finding's code; empty if it has none, as crashes.
  const std::string& code() const { return code_; }
  // Returns a word: "different", "inconclusive", "refused", "invalid", "crash".
  std::string Word() const;
  // Returns a text for people: "refused with KV205".
  std::string Text() const;

 private:
  std::string outcome_;  // one of FleetOutcomes
  std::string code_;
  int exit_code_ = 0;
  std::set<std::string> passed_;
};

// Returns an empty string, or what is wrong with a word of --keep.
std::string KeepWordError(const std::string& word);

}  // namespace kvlift::cli
