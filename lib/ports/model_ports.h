// The roles of the inputs and outputs of a decoder that are not caches. A role is given only where
// the graph shows it: by the operands that an input reaches, and by shapes that are declared equal.
// Names are not used.
#pragma once

#include "ir/graph.h"
#include "ports/static_cache.h"

namespace kvlift::ports {

// Each value is kNoValue if no value has its role, or if several may have it.
struct ModelPorts {
  // The token ids: indices into a table whose rows reach the values of the first layer. If there
  // are several such inputs, the one whose table has as many rows as an output has scores.
  ValueId tokens = kNoValue;
  // Rows in the place of embedded tokens: the only input of floats that reaches the values of the
  // first layer, where no token ids do.
  ValueId embeds = kNoValue;
  // The positions: shaped like the tokens, and they reach the keys of the first layer but not its
  // values, as rotations do.
  ValueId positions = kNoValue;
  // The padding mask: it reaches the mask of an Attention, and has as many columns as a cache has
  // slots.
  ValueId attention_mask = kNoValue;
  // The only output besides the caches whose last axis is not the width of an embedding; with token
  // ids, the one with a score for each row of their table.
  ValueId logits = kNoValue;
};

// The types of the graph's values must be declared or inferred.
ModelPorts ReadModelPorts(const Graph& graph, const StaticCache& cache);

}  // namespace kvlift::ports
