// Sources that choose by a branch whether there is a past.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Which steps are looked at.
struct SourceCase {
  enum class Past { kAny, kSome, kNone };
  Past past = Past::kAny;
  bool one_token = false;  // of steps with a past
  bool flag = false;       // what inputs of both models are that say whether there is a past
  std::string text;        // "steps with a past", empty for all
  // What windows hold, where the source keeps the last rows of its caches only.
  enum class Window { kNone, kFilling, kFull };
  Window window = Window::kNone;
};

bool HasBranches(const onnx::ModelProto& model);

// Truth values that both models are fed.
std::vector<std::string> KeptFlags(const onnx::ModelProto& model, const Manifest& relation);

// The model with the branches that such steps take in the place of its Ifs. Unimplemented: it is
// not seen which these are, or they have bodies of their own.
absl::StatusOr<onnx::ModelProto> TakeBranches(const onnx::ModelProto& model,
                                              const Manifest& relation, const SourceCase& steps);

}  // namespace kvlift
