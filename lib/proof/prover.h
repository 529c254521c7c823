// The facts of one case of steps.
#pragma once

#include <cstddef>
#include <vector>

#include "contract/manifest.h"
#include "onnx/onnx_pb.h"
#include "proof/branches.h"
#include "proof/obligations.h"
#include "proof/proof.h"
#include "proof/seams.h"

namespace kvlift {

// Proves a conversion of two models without branches and functions, the source at opset 13 or
// later. One fact of each seam comes last.
Proof ProveCase(const onnx::ModelProto& before, const onnx::ModelProto& after,
                const Manifest& relation, const SourceCase& steps, const std::vector<Seam>& seams,
                Obligations* obligations = nullptr);

// How many facts ProveCase gives of a relation's outputs where all of them hold. They come behind
// those of caches and attentions, in front of those of seams.
size_t NumberOfOutputFacts(const Manifest& relation);

}  // namespace kvlift
