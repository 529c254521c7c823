// Compares what two models computed for a step, output by output and row by row.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "contract/manifest.h"
#include "onnx/onnx_pb.h"
#include "oracle/core/interpreter.h"
#include "soundness/step.h"

namespace kvlift::soundness {

struct Difference {
  // The conversion fails where the source runs.
  bool stops = false;
  std::string where;  // the shape, the output, the element, and both numbers
};

struct Relation {
  const onnx::ModelProto& before;
  const Manifest& manifest;
  bool reordered = false;  // an input `beams` says which past sequence each sequence continues
};

// Returns the first difference. `source` has the outputs of the source for all sequences together,
// or for each one alone. Adds the number of compared outputs to *judged.
std::optional<Difference> Compare(const Relation& relation, const Step& step, const Made& made,
                                  const std::vector<oracle::Values>& source,
                                  const oracle::Values& converted, int* judged);

}  // namespace kvlift::soundness
