// The grounds of a fact, or of the sameness of two values, besides the two graphs. A default
// Grounds means that it rests on nothing else.
#pragma once

#include <string>
#include <vector>

#include "contract/assumptions.h"

namespace kvlift {

struct Grounds {
  bool doubted = false;             // it rests on something that is not proved
  Assumptions given;                // the ledger entries that it rests on
  std::vector<std::string> lemmas;  // the names of lemmas (proof/lemmas/names.h), each once

  bool empty() const { return !doubted && given.empty() && lemmas.empty(); }
  // Adds all of `others`; each assumption and each lemma is kept once.
  void Add(const Grounds& others);
  void AddLemma(const std::string& name);
};

}  // namespace kvlift
