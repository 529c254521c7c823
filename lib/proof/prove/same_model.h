// Proves that a model equals itself, without reading its operators.
#pragma once

#include <optional>

#include "contract/manifest.h"
#include "onnx/onnx_pb.h"
#include "proof/graphs/proof.h"

namespace kvlift {

// Returns the proof that both models give the same for the same feeds, if they are one: the same
// nodes, weights and operator sets, without an operator that draws numbers, under a relation that
// gives each input, output and cache its own name and layout. Returns nullopt for any other pair.
std::optional<Proof> ProofOfSameModel(const onnx::ModelProto& before, const onnx::ModelProto& after,
                                      const Manifest& relation);

}  // namespace kvlift
