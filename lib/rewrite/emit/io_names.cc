#include "rewrite/emit/io_names.h"

#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "ir/subgraphs.h"

namespace kvlift {
namespace {

using Names = absl::flat_hash_map<std::string, std::string>;

absl::flat_hash_set<std::string> NamesIn(const onnx::GraphProto& graph) {
  absl::flat_hash_set<std::string> names;
  for (const auto& value : graph.input()) names.insert(value.name());
  for (const auto& tensor : graph.initializer()) names.insert(tensor.name());
  for (const auto& node : graph.node()) {
    names.insert(node.output().begin(), node.output().end());
  }
  return names;
}

Finding NotNamed(std::string text, const std::string& value) {
  return {"KV229", std::move(text), {}, {value}};
}

}  // namespace

absl::StatusOr<std::optional<Finding>> NameCachesByLayer(Emission* emission) {
  Manifest& manifest = emission->manifest;
  absl::flat_hash_set<std::string> taken = NamesIn(emission->model.graph());
  for (const ManifestCache& cache : manifest.caches) {
    taken.erase(cache.input);
    taken.erase(cache.output);
  }
  Names names;
  for (const ManifestCache& cache : manifest.caches) {
    if (cache.role != CacheRole::kKey && cache.role != CacheRole::kValue) {
      return NotNamed("needs caches of keys or of values to name them, found both in one tensor",
                      cache.input);
    }
    names[cache.input] = fmt::format("{}_cache.{}", WordOf(cache.role), cache.layer);
    names[cache.output] = fmt::format("updated_{}_cache.{}", WordOf(cache.role), cache.layer);
    for (const std::string& old : {cache.input, cache.output}) {
      if (taken.insert(names.at(old)).second) continue;
      return NotNamed(fmt::format("the name {} is taken", names.at(old)), old);
    }
  }
  const auto rename = [&](std::string* name) {
    if (const auto it = names.find(*name); it != names.end()) *name = it->second;
  };
  onnx::GraphProto& graph = *emission->model.mutable_graph();
  for (auto* values : {graph.mutable_input(), graph.mutable_output(), graph.mutable_value_info()}) {
    for (onnx::ValueInfoProto& value : *values) rename(value.mutable_name());
  }
  for (onnx::NodeProto& node : *graph.mutable_node()) {
    KV_RETURN_IF_ERROR(RenameValues(names, &node));
  }
  for (ManifestCache& cache : manifest.caches) {
    rename(&cache.input);
    rename(&cache.output);
  }
  for (EmittedCache& cache : emission->caches) rename(&cache.writer);
  for (ManifestInput& input : manifest.inputs) rename(&input.name);
  for (ManifestOutput& output : manifest.outputs) rename(&output.name);
  return std::nullopt;
}

}  // namespace kvlift
