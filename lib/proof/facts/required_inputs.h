// Finds the facts that rest on the manifest's requirements of inputs: that all elements of an input
// are ones, or zeros.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "proof/graphs/grounds.h"
#include "proof/graphs/pair.h"

namespace kvlift {

class RequiredInputs {
 public:
  explicit RequiredInputs(const GraphPair& pair) : pair_(pair), graph_(pair.graph()) {}

  // Returns what facts about a value of the source rest on: the requirements of the inputs that it
  // is computed from.
  Grounds GroundsOf(ValueId of_source);

 private:
  bool DependsOn(ValueId value, ValueId input);

  const GraphPair& pair_;
  const Graph& graph_;
  // All values that are computed from an input, and the input itself, by input.
  absl::flat_hash_map<ValueId, absl::flat_hash_set<ValueId>> behind_;
};

}  // namespace kvlift
