// Ways to change one value of a graph, by its type and rank.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "onnx/onnx_pb.h"
#include "soundness/edits.h"
#include "soundness/sketch.h"

namespace kvlift::soundness {

// Adds operators and returns what they make of a value.
using Change = std::function<std::string(Sketch&, const std::string&)>;

struct NamedChange {
  std::string name;
  Change change;
};

// All changes of a value. They are made while this object and its graph live.
class Changes {
 public:
  Changes(const onnx::GraphProto& graph, Random& random) : graph_(graph), random_(random) {}

  // Empty if nothing is known for the type.
  std::vector<NamedChange> Of(const TypeOf& type);

 private:
  // An extent of an input of the graph, as a number.
  std::string SomeExtent(Sketch& sketch);
  // Whether such an extent is some number, or larger.
  std::string Equals(Sketch& sketch);
  // Along one axis; all axes are likely.
  std::vector<NamedChange> Moves(const TypeOf& type);
  std::vector<NamedChange> OfIntegers(const TypeOf& type);
  std::vector<NamedChange> OfReals(const TypeOf& type);
  std::vector<NamedChange> OfTruths();

  const onnx::GraphProto& graph_;
  Random& random_;
};

}  // namespace kvlift::soundness
