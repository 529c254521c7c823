// Proves the facts about one kind of step (SourceCase): all steps, steps with a past, or steps
// while a sliding window fills.
#pragma once

#include <cstddef>
#include <vector>

#include "contract/manifest.h"
#include "onnx/onnx_pb.h"
#include "proof/correspondence/obligations.h"
#include "proof/graphs/proof.h"
#include "proof/layers/layer_boundaries.h"
#include "proof/lower/branches.h"

namespace kvlift {

// Compares two models without branches, loops or model-local functions; the source has opset 13 or
// later. Facts come in this order: caches and attentions, outputs, operands that may not fit, and
// one fact for each of `boundaries`. `not_tried` is set if the models cannot be joined
// (GraphPair::Create) or if the assumed sizes contradict each other. `obligations` may be null.
Proof ProveCase(const onnx::ModelProto& before, const onnx::ModelProto& after,
                const Manifest& relation, const SourceCase& steps,
                const std::vector<LayerBoundary>& boundaries, Obligations* obligations = nullptr);

// The number of facts that ProveCase adds for the outputs of `relation` if all facts hold. These
// facts come after those about caches and attentions and before those about boundaries.
size_t NumberOfOutputFacts(const Manifest& relation);

}  // namespace kvlift
