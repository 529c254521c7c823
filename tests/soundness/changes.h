// Ways to change one value of a graph, by its type and rank.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "onnx/onnx_pb.h"
#include "soundness/edits.h"
#include "soundness/sketch.h"

namespace kvlift::soundness {

// Adds operators behind a value and returns the name of their result.
using Change = std::function<std::string(Sketch&, const std::string&)>;

struct NamedChange {
  std::string name;
  Change change;
};

// All changes of a value. The changes are valid while this object and its graph live.
class Changes {
 public:
  Changes(const onnx::GraphProto& graph, Random& random) : graph_(graph), random_(random) {}

  // Returns an empty list for a type that has no changes.
  std::vector<NamedChange> Of(const TypeOf& type);

 private:
  // Returns an extent of a graph input, as a scalar.
  std::string SomeExtent(Sketch& sketch);
  // Returns whether such an extent equals some number, or exceeds it, as a bool.
  std::string Equals(Sketch& sketch);
  // Returns changes along one axis, each axis with equal probability.
  std::vector<NamedChange> Moves(const TypeOf& type);
  std::vector<NamedChange> OfIntegers(const TypeOf& type);
  std::vector<NamedChange> OfReals(const TypeOf& type);
  std::vector<NamedChange> OfTruths();

  const onnx::GraphProto& graph_;
  Random& random_;
};

}  // namespace kvlift::soundness
