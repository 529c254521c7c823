// What is different in two models as graphs: nodes, interface, weights and versions. Names of nodes
// do not matter, those of inputs and outputs do; nothing is run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace kvlift::cli {

enum class Fate {
  kKept,     // the same operator and attributes over corresponding values
  kChanged,  // makes the value of that name with other attributes or over other values
  kGone,     // removed, or added
};

struct NodeChange {
  std::string name, op;
  std::vector<std::string> what;
};

struct NodeRef {
  std::string name, op;
};

// Before or after is empty where there is none.
struct ValueChange {
  std::string name, before, after;
};

struct CountChange {
  std::string what;  // an operator, a domain
  int64_t before = 0, after = 0;
};

struct ConstantCounts {
  int64_t kept = 0, changed = 0, removed = 0, added = 0;
  int64_t bytes_before = 0, bytes_after = 0;
};

struct ModelDiff {
  std::vector<Fate> before, after;  // by node of each graph
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

// "float32 [B, 4, T]".
std::string TypeText(const TensorType& type);

}  // namespace kvlift::cli
