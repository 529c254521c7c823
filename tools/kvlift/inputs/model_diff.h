// The differences between two models as graphs: nodes, interface, weights and versions. Names of
// inputs and outputs matter, names of nodes do not. Nothing is run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace kvlift::cli {

enum class Fate {
  kKept,     // same operator and attributes over corresponding values
  kChanged,  // makes the value of the same name, with other attributes or over other values
  kGone,     // removed (in the first graph) or added (in the second)
};

// A node whose output has a counterpart; `what` lists the differences as text.
struct NodeChange {
  std::string name, op;
  std::vector<std::string> what;
};

struct NodeRef {
  std::string name, op;
};

// A value of the interface and its types as text; `before` or `after` is empty where it does not
// exist.
struct ValueChange {
  std::string name, before, after;
};

struct CountChange {
  std::string what;  // an operator or a domain
  int64_t before = 0, after = 0;
};

// Numbers of initializers, and their bytes in all.
struct ConstantCounts {
  int64_t kept = 0, changed = 0, removed = 0, added = 0;
  int64_t bytes_before = 0, bytes_after = 0;
};

struct ModelDiff {
  std::vector<Fate> before, after;  // by NodeId of each graph
  int64_t kept = 0;
  std::vector<NodeChange> changed;
  std::vector<NodeRef> removed, added;
  std::vector<ValueChange> inputs, outputs;  // those that differ
  std::vector<CountChange> opsets;           // those that differ
  std::vector<CountChange> operators;        // those whose number differs
  ConstantCounts constants;

  bool Same() const;
};

ModelDiff Diff(const Graph& before, const Graph& after);

// Returns text such as "float32 [B, 4, T]".
std::string TypeText(const TensorType& type);

}  // namespace kvlift::cli
