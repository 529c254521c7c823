// Which manifest relates two models.
#pragma once

#include <optional>
#include <string>

#include "cli.h"
#include "contract/manifest.h"
#include "verify/verify.h"

namespace kvlift::cli {

// The file given, else the manifest beside AFTER, else its metadata, else what can be inferred from
// the models. nullopt with a line on err if the manifest cannot be read.
std::optional<Manifest> FindRelation(Io& io, const std::string& given, const Model& before,
                                     const Model& after, bool* inferred);

// The file given, the manifest beside the model, or its metadata; nullopt if there is none. Sets
// *broken, with a line on err, if there is one that cannot be read.
std::optional<Manifest> ManifestOf(Io& io, const std::string& given, const Model& model,
                                   bool* broken);

int ExitCodeOf(VerdictKind verdict);

}  // namespace kvlift::cli
