// Turns a model into an equivalent one whose caches are ordinary: growing or fixed, in the main
// graph, written by standard operators. Runs before caches are searched.
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
  std::vector<DroppedInput> dropped;        // inputs that decided between branches
  std::vector<Precondition> preconditions;  // under which the model is equivalent
  ManifestLimits limits;
  // Why a node was left as it is: nodes[0]. For caches that depend on it.
  std::vector<Finding> refusals;
  // Nodes whose names start with `prefix` were made for a node of the source.
  struct Origin {
    std::string prefix, node;
  };
  std::vector<Origin> origins;
  Unpacked unpacked;  // caches that packed tensors of the source hold

  // The names of source nodes for what findings and reports name, each once.
  void NameSource(std::vector<std::string>* nodes) const;
};

// The default opset of the model is the target's, functions are inlined.
absl::StatusOr<Normalised> Normalise(onnx::ModelProto model);

}  // namespace kvlift
