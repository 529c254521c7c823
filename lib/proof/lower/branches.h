// Takes apart models, such as merged decoders, that choose by an If between steps with and without
// a past.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// The kind of step that is proved.
struct SourceCase {
  // Steps with P > 0 (kSome) or P = 0 (kNone).
  enum class Past { kAny, kSome, kNone };
  Past past = Past::kAny;
  bool one_token = false;  // a step with a past has one token
  bool flag = false;       // the value of KeptFlags()
  std::string text;        // "steps with a past"; empty for all steps
  // Whether the source's windows are still filling (P <= W) or full (P > W); kNone if the case does
  // not say.
  enum class Window { kNone, kFilling, kFull };
  Window window = Window::kNone;
  // A step has no more tokens than a fixed buffer has slots, also where the source clamps its
  // start.
  bool tokens_fit = false;
};

// Returns true if the graph has an If.
bool HasBranches(const onnx::ModelProto& model);

// Returns the boolean inputs of one element that the manifest says both models are fed alike; they
// may say whether there is a past.
std::vector<std::string> KeptFlags(const onnx::ModelProto& model, const Manifest& relation);

// Returns the model with each If replaced by the branch that it takes in the steps of `steps`.
// Returns Unimplemented if the branch is not known or has subgraphs of its own, and the error of
// Graph::Build if the part in front of the Ifs or the result is not a valid graph.
absl::StatusOr<onnx::ModelProto> TakeBranches(const onnx::ModelProto& model,
                                              const Manifest& relation, const SourceCase& steps);

}  // namespace kvlift
