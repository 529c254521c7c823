// Finds out whether the results of a converted model depend on the numbers of slots. Rows of a
// cache may be moved to other slots only if they do not: positions come from the host, and a mask
// depends on a slot only by the values that the host feeds for it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/findings.h"
#include "contract/manifest.h"
#include "ir/graph.h"

namespace kvlift {

struct SlotReading {
  // Why rows cannot be moved: positions depend on the write index (KV231), masks or biases on
  // numbers of slots (KV232), a cache is a ring (KV233), or none of this is known (KV234). Absent:
  // they can.
  std::optional<Finding> refusal;
  // Inputs with an entry per slot, such as padding masks, whose entries the host must move, too.
  // Empty if `refusal` is set.
  std::vector<std::string> by_slot;
};

// Needs a graph without model-local functions.
SlotReading ReadSlots(const Graph& model, const Manifest& manifest);

}  // namespace kvlift
