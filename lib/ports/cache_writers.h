// The caches that TensorScatter nodes write, from the input of the model to its output. Internal to
// lib/ports.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/findings.h"
#include "ir/graph.h"

namespace kvlift::ports {

struct CacheWriter {
  NodeId node = kNoNode;                        // the TensorScatter
  ValueId past = kNoValue, present = kNoValue;  // the input and the output of the model
  ValueId written = kNoValue;                   // what the TensorScatter gives
};

// Fills *writers in topological order. Returns why not (KV254): there is no TensorScatter, one does
// not write from an input to an output, one wraps around, or another node writes a cache.
std::optional<Finding> ReadCacheWriters(const Graph& graph, std::vector<CacheWriter>* writers);

// Returns a refusal that names a node, unless that is kNoNode.
Finding Refusal(const Graph& graph, NodeId node, std::string text);
// Returns how a refusal names a node: "TensorScatter /layers.0/write".
std::string Named(const Graph& graph, NodeId node);

}  // namespace kvlift::ports
