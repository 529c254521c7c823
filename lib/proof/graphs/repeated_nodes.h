// Finds nodes of the source that repeat an earlier value: by the same operator with the same
// attributes and operands, or because they pass on their operand as it is (Identity, and a Cast to
// its operand's type). An optimiser leaves only one of them.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "proof/graphs/pair.h"

namespace kvlift {

class RepeatedNodes {
 public:
  explicit RepeatedNodes(const GraphPair& pair);

  // Returns the first value of the source that holds what `value` holds; `value` itself if no
  // earlier one is known.
  ValueId FirstOf(ValueId value) const {
    const auto it = first_.find(value);
    return it == first_.end() ? value : it->second;
  }
  // Returns true if no value repeats another one.
  bool empty() const { return first_.empty(); }

 private:
  // Finds constants of the same type, shape and bytes.
  void FindEqualConstants(const GraphPair& pair);

  absl::flat_hash_map<ValueId, ValueId> first_;
};

}  // namespace kvlift
