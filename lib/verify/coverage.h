// What the steps that were run reached.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "contract/manifest.h"
#include "verify/drive.h"
#include "verify/plans.h"

namespace kvlift {

// Why something was not reached where the models do not allow it; empty: they do.
struct CoverageExcuses {
  std::string last_slot, one_length, one_token;
};

class Coverage {
 public:
  void Add(const Plan& plan, const Outcome& outcome);
  // Of a plan that mutants are not held against: what it reached counts, what it wrote does not.
  void AddSizes(const Plan& plan, const Outcome& outcome);

  int decodes() const { return decodes_; }  // steps with a past
  bool last_slot() const { return last_slot_; }
  bool around() const { return around_; }  // behind the last slot
  bool lengths_differ() const { return lengths_differ_; }
  bool many_tokens() const { return many_tokens_; }
  bool pads() const { return pads_; }

  // For the report, in order.
  std::vector<std::pair<std::string, std::string>> Lines(const Manifest& relation,
                                                         const CoverageExcuses& excuses) const;
  // What an equal verdict lacks, or empty.
  std::string Missing(const Manifest& relation, const CoverageExcuses& excuses) const;

 private:
  // The fewest indices that any cache was seen to be written at, and that cache.
  std::pair<size_t, std::string> FewestIndices(const Manifest& relation) const;

  int decodes_ = 0;
  bool last_slot_ = false, around_ = false, lengths_differ_ = false, many_tokens_ = false,
       pads_ = false;
  std::set<int64_t> starts_;
  std::map<std::string, std::set<int64_t>> written_;  // by cache id
};

}  // namespace kvlift
