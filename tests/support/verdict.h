// Verdicts on pairs of models given as text.
#pragma once

#include <string>
#include <vector>

#include "contract/manifest.h"
#include "verify/verify.h"

namespace kvlift {

VerifyReport VerdictOn(const std::string& before, const std::string& after,
                       const Manifest& relation);
// Reason, plans and mutants that were not detected, for messages of tests.
std::string Summary(const VerifyReport& report);
// Replaces every `from`, which must be there.
std::string With(const std::string& text, const std::string& from, const std::string& to);

// A relation of two models whose caches have the same names and layouts on both sides.
struct CacheEnds {
  std::string input, output, layout;
  std::string kind = "scatter";
  bool growing = false;
  std::string dtype = "float32";
};
Manifest RelationOf(const std::vector<CacheEnds>& caches, const std::vector<std::string>& inputs,
                    const std::vector<std::string>& outputs);
// Adds the control input `at`, P of each sequence.
void AddControl(Manifest* relation);

}  // namespace kvlift
