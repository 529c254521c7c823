// The roles of the inputs and outputs that belong to static caches: tensors of fixed capacity into
// which TensorScatter writes the rows of a step. The roles come from the graph, never from names.
#pragma once

#include <optional>
#include <vector>

#include "base/findings.h"
#include "ir/graph.h"

namespace kvlift::ports {

struct CachePort {
  ValueId input = kNoValue, output = kNoValue;  // of the model
  NodeId writer = kNoNode;                      // the TensorScatter between them
};

struct LayerCaches {
  CachePort key, value;
  NodeId attention = kNoNode;  // the first Attention that reads them
};

struct StaticCache {
  ValueId write_indices = kNoValue;  // the input with the slot of each sequence's first new row
  ValueId kv_length = kNoValue;      // the input that is nonpad_kv_seqlen of every Attention
  std::vector<LayerCaches> layers;   // in the order of their Attention nodes
};

// Fills *cache. Returns why not (KV254): the graph has no static caches, has other caches too, or
// uses them in a way that StaticCache cannot describe, such as keys and values in one tensor, or
// several inputs for write_indices.
std::optional<Finding> ReadStaticCache(const Graph& graph, StaticCache* cache);

}  // namespace kvlift::ports
