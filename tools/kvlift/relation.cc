#include "relation.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "ir/types.h"

namespace kvlift::cli {
namespace {

std::optional<std::string> ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Inputs and outputs of equal names are the same; there are no caches in it.
Manifest ByNames(const onnx::ModelProto& before, const onnx::ModelProto& after) {
  Manifest m;
  m.capacity_dim = "max_sequence_length";
  std::set<std::string> inputs, outputs, constants;
  for (const auto& t : after.graph().initializer()) constants.insert(t.name());
  for (const auto& v : before.graph().input()) inputs.insert(v.name());
  for (const auto& v : before.graph().output()) outputs.insert(v.name());
  for (const auto& v : after.graph().input()) {
    if (constants.count(v.name()) > 0 || inputs.count(v.name()) == 0) continue;
    ManifestInput input;
    input.name = v.name();
    input.as = "same";
    m.inputs.push_back(std::move(input));
  }
  for (const auto& v : after.graph().output()) {
    if (outputs.count(v.name()) > 0) m.outputs.push_back({v.name(), "same", "", ""});
  }
  return m;
}

}  // namespace

std::optional<Manifest> ManifestOf(Io& io, const std::string& given, const Model& model,
                                   bool* broken) {
  *broken = false;
  const std::string path = given.empty() ? ManifestPathFor(model.path) : given;
  const auto text = ReadText(path);
  if (!text && !given.empty()) {
    Complain(io, given, "cannot be read");
    *broken = true;
    return std::nullopt;
  }
  auto manifest = text ? ManifestFromJson(*text) : ManifestFromMetadata(*model.proto);
  if (manifest.ok()) return *std::move(manifest);
  if (text || !absl::IsNotFound(manifest.status())) {
    Complain(io, text ? path : model.path, std::string(manifest.status().message()));
    *broken = true;
  }
  return std::nullopt;
}

std::optional<Manifest> FindRelation(Io& io, const std::string& given, const Model& before,
                                     const Model& after) {
  bool broken = false;
  auto manifest = ManifestOf(io, given, after, &broken);
  if (manifest || broken) return manifest;
  Complain(io, after.path, "has no manifest: inputs and outputs are related by their names");
  return ByNames(*before.proto, *after.proto);
}

}  // namespace kvlift::cli
