// What a fact, or the sameness of two values, rests on besides the two graphs.
#pragma once

#include <string>
#include <vector>

#include "contract/assumptions.h"

namespace kvlift {

struct Grounds {
  bool doubted = false;             // something that is not proved
  Assumptions given;                // entries of the ledger
  std::vector<std::string> lemmas;  // names (proof/lemmas), each once

  bool empty() const { return !doubted && given.empty() && lemmas.empty(); }
  void Add(const Grounds& others);
  void AddLemma(const std::string& name);
};

}  // namespace kvlift
