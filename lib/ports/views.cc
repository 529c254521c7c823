#include "ports/views.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace kvlift::ports {
namespace {

constexpr auto kViews = {"Identity", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze"};
constexpr auto kVectorViews = {"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze"};
constexpr auto kReads = {"Identity",  "Reshape", "Flatten", "Transpose", "Squeeze",
                         "Unsqueeze", "Slice",   "Expand",  "Cast",      "DequantizeLinear"};
constexpr auto kParts = {"Gather", "Split"};

bool IsOneOf(const Graph& graph, NodeId n, std::initializer_list<const char*> ops) {
  return std::any_of(ops.begin(), ops.end(), [&](const char* op) { return graph.Is(n, op); });
}

// Returns the node that makes v out of its first operand, or kNoNode if v is not made so.
NodeId MakerOf(const Graph& graph, ValueId v) {
  const NodeId n = v == kNoValue ? kNoNode : graph.producer(v);
  const bool has = n != kNoNode && !graph.inputs(n).empty() && graph.inputs(n)[0] != kNoValue;
  return has ? n : kNoNode;
}

ValueId Behind(const Graph& graph, ValueId v, std::initializer_list<const char*> ops) {
  for (NodeId n = MakerOf(graph, v); n != kNoNode && IsOneOf(graph, n, ops);
       n = MakerOf(graph, v)) {
    v = graph.inputs(n)[0];
  }
  return v;
}

// Returns the operand that a product with a constant scales; kNoValue for other nodes.
ValueId ScaledBy(const Graph& graph, NodeId n) {
  if (!graph.Is(n, "Mul")) return kNoValue;
  const auto inputs = graph.inputs(n);
  if (graph.constant(inputs[1]) != nullptr) return inputs[0];
  return graph.constant(inputs[0]) != nullptr ? inputs[1] : kNoValue;
}

}  // namespace

ValueId BehindViews(const Graph& graph, ValueId v) { return Behind(graph, v, kViews); }

ValueId BehindVectorViews(const Graph& graph, ValueId v) { return Behind(graph, v, kVectorViews); }

Read BehindReads(const Graph& graph, ValueId v) {
  Read read{v, kNoNode};
  while (true) {
    read.root = Behind(graph, read.root, kReads);
    const NodeId n = MakerOf(graph, read.root);
    if (n == kNoNode) return read;
    if (IsOneOf(graph, n, kParts)) {
      read = {graph.inputs(n)[0], n};
    } else if (const ValueId scaled = ScaledBy(graph, n); scaled != kNoValue) {
      read.root = scaled;
    } else {
      return read;
    }
  }
}

absl::flat_hash_set<ValueId> SourcesOf(const Graph& graph, ValueId v) {
  absl::flat_hash_set<ValueId> found = {v};
  std::vector<ValueId> stack = {v};
  while (!stack.empty()) {
    const NodeId n = graph.producer(stack.back());
    stack.pop_back();
    if (n == kNoNode || IsOneOf(graph, n, {"Shape", "Size"})) continue;
    for (const auto values : {graph.inputs(n), graph.captures(n)}) {
      for (const ValueId source : values) {
        if (source != kNoValue && found.insert(source).second) stack.push_back(source);
      }
    }
  }
  return found;
}

}  // namespace kvlift::ports
