// Counts the write indices, lengths and slots that the steps that were run reached.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "contract/manifest.h"
#include "verify/steps/drive.h"
#include "verify/steps/plans.h"

namespace kvlift {

// Reasons why the models do not allow a step that writes the last slot, a batch whose sequences
// have different lengths, a step with several new tokens, and a step with a past; empty: they allow
// it.
struct CoverageExcuses {
  std::string last_slot, one_length, one_token, no_past;
};

class Coverage {
 public:
  // Adds the first `outcome.steps` steps of a plan.
  void Add(const Plan& plan, const Outcome& outcome);
  // Adds the number of new tokens only: for plans that no mutant is run against (Plan::extra).
  void AddSizes(const Plan& plan, const Outcome& outcome);

  int decodes() const { return decodes_; }                 // steps with a past
  bool last_slot() const { return last_slot_; }            // a step ended exactly in the last slot
  bool around() const { return around_; }                  // rows wrapped around
  bool lengths_differ() const { return lengths_differ_; }  // in one batch
  bool many_tokens() const { return many_tokens_; }        // a step had several new tokens
  bool pads() const { return pads_; }                      // a step had left padding

  // Returns the lines of the report, as name and value, in order.
  std::vector<std::pair<std::string, std::string>> Lines(const Manifest& relation,
                                                         const CoverageExcuses& excuses) const;
  // Returns what the steps lack for the verdict "equal"; empty if they suffice. They need two steps
  // with a past, two write indices of every cache, and everything for which there is no excuse.
  std::string Missing(const Manifest& relation, const CoverageExcuses& excuses) const;

 private:
  // Returns the smallest number of different write indices of any cache, and that cache's id.
  std::pair<size_t, std::string> FewestIndices(const Manifest& relation) const;

  int decodes_ = 0;
  bool last_slot_ = false, around_ = false, lengths_differ_ = false, many_tokens_ = false,
       pads_ = false;
  std::set<int64_t> starts_;                          // past lengths that steps began with
  std::map<std::string, std::set<int64_t>> written_;  // slots where a write began, by cache id
};

}  // namespace kvlift
