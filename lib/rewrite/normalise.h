// Turns a model into an equivalent one whose caches are in the main graph and written by standard
// operators. Runs before caches are searched.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/findings.h"
#include "contract/manifest.h"
#include "onnx/onnx_pb.h"
#include "rewrite/key_value_cache.h"

namespace kvlift {

struct Normalised {
  onnx::ModelProto model;
  std::vector<DroppedInput> dropped;        // inputs of the source that the model does not have
  std::vector<Precondition> preconditions;  // under which the model is equivalent to the source
  ManifestLimits limits;
  // Why the node nodes[0] was left as it is; reported for the caches that depend on it.
  std::vector<Finding> refusals;
  // Nodes whose names start with `prefix` replace the source's node `node`.
  struct Origin {
    std::string prefix, node;
  };
  std::vector<Origin> origins;
  Unpacked unpacked;  // caches that are parts of packed tensors of the source

  // Replaces names of nodes by those of the source's nodes that they stand for, each once.
  void NameSource(std::vector<std::string>* nodes) const;
};

// Needs a model with kTargetOpset (rewrite/opset.h) and without model-local functions. What cannot
// be normalised is left as it is, with a refusal.
absl::StatusOr<Normalised> Normalise(onnx::ModelProto model);

}  // namespace kvlift
