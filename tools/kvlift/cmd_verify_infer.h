// The relation of two models that kvlift did not make from one another: which cache is which, in
// which layout, and what each input holds. Read from names, shapes and from where values flow to.
// Where that leaves several relations, the one is taken by which the models agree.
#pragma once

#include <string>
#include <vector>

#include "contract/manifest.h"
#include "onnxio/model.h"

namespace kvlift::cli {

Manifest InferRelation(const Model& before, const Model& after);

// One line per cache, input and output.
std::vector<std::string> RelationLines(const Manifest& relation);

}  // namespace kvlift::cli
