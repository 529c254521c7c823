// The facts of one case of steps.
#pragma once

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

}  // namespace kvlift
