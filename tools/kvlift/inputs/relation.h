// Finds the manifest that relates two models.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "kvlift/cli.h"
#include "verify/judge/verify.h"

namespace kvlift::cli {

// Two models to be compared, and how they correspond.
struct ModelPair {
  Model before, after;
  Manifest relation;
  // If no manifest gave the relation: all relations that the graphs allow.
  std::vector<Manifest> inferred;
  // Both are the same model. A manifest beside it is then not read, since it relates the model to
  // another one.
  bool same = false;
};
// Reads two models. An empty `manifest` means: the manifest beside AFTER, its metadata, or an
// inferred relation. An error has the code of a finding, and its message starts with the path of
// what cannot be read.
absl::StatusOr<ModelPair> ReadPair(Io& io, const std::string& before, const std::string& after,
                                   const std::string& manifest, const CommonFlags& flags);
// Does the same. Returns nullopt, after a line on err, if something cannot be read.
std::optional<ModelPair> LoadPair(Io& io, const std::string& before, const std::string& after,
                                  const std::string& manifest, const CommonFlags& flags);

// Returns the manifest in the file `given`, beside the model, or in its metadata; nullopt if there
// is none. The message of an error starts with the path of what cannot be read. If the manifest
// beside a model belongs to another conversion, a line on err says so.
absl::StatusOr<std::optional<Manifest>> ReadManifest(Io& io, const std::string& given,
                                                     const Model& model);
// Does the same. Sets *broken, after a line on err, if there is one that cannot be read.
std::optional<Manifest> ManifestOf(Io& io, const std::string& given, const Model& model,
                                   bool* broken);

// A converted model and its manifest.
struct Converted {
  Model model;
  Manifest manifest;
};
// Returns nullopt, after a line on err and with the exit code in *exit, if one of them is missing
// or unreadable.
std::optional<Converted> LoadConverted(Io& io, const std::string& path, const std::string& manifest,
                                       const CommonFlags& flags, int* exit);

// Returns the exit code of `verify` for a verdict.
int ExitCodeOf(VerdictKind verdict, Accept accept = Accept::kProved);

}  // namespace kvlift::cli
