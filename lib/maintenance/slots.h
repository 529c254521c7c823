// What the number of a slot means to a converted model. Rows of a cache may only be moved to other
// slots if it means nothing: if positions come from the host, and masks name no slots but those
// that the host marks itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/findings.h"
#include "contract/manifest.h"
#include "ir/graph.h"

namespace kvlift {

struct SlotReading {
  // Why rows cannot be moved: positions that follow the write index (KV231), masks or biases
  // computed from slots (KV232), rings (KV233), or a model of which neither is known (KV234).
  std::optional<Finding> refusal;
  // Inputs with an entry per slot, such as padding masks: the host moves their entries, too.
  std::vector<std::string> by_slot;
};

// The graph's functions are inlined.
SlotReading ReadSlots(const Graph& model, const Manifest& manifest);

}  // namespace kvlift
