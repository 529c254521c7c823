// Which manifest relates two models.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli.h"
#include "contract/manifest.h"
#include "verify/verify.h"

namespace kvlift::cli {

// Two models to be compared, and how they correspond.
struct ModelPair {
  Model before, after;
  Manifest relation;
  std::vector<Manifest> inferred;  // all that the graphs allow, where no manifest gave the relation
};
// nullopt with a line on err if a model or the manifest cannot be read.
std::optional<ModelPair> LoadPair(Io& io, const std::string& before, const std::string& after,
                                  const std::string& manifest, const CommonFlags& flags);

// The file given, the manifest beside the model, or its metadata; nullopt if there is none. Sets
// *broken, with a line on err, if there is one that cannot be read.
std::optional<Manifest> ManifestOf(Io& io, const std::string& given, const Model& model,
                                   bool* broken);

// A converted model and its manifest.
struct Converted {
  Model model;
  Manifest manifest;
};
// nullopt with a line on err and the exit code of that, if one of them is missing or unreadable.
std::optional<Converted> LoadConverted(Io& io, const std::string& path, const std::string& manifest,
                                       const CommonFlags& flags, int* exit);

int ExitCodeOf(VerdictKind verdict, Accept accept = Accept::kProved);

}  // namespace kvlift::cli
