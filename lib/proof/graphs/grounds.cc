#include "proof/graphs/grounds.h"

#include <algorithm>

namespace kvlift {

void Grounds::Add(const Grounds& others) {
  doubted = doubted || others.doubted;
  given.Add(others.given);
  for (const std::string& name : others.lemmas) AddLemma(name);
}

void Grounds::AddLemma(const std::string& name) {
  if (std::find(lemmas.begin(), lemmas.end(), name) == lemmas.end()) lemmas.push_back(name);
}

}  // namespace kvlift
