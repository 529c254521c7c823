#include "kvlift/inputs/tensor_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/coded.h"
#include "base/status.h"
#include "fmt/format.h"
#include "kvlift/inputs/value_files.h"
#include "onnxio/model/model.h"

namespace kvlift::cli {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::vector<fs::path>> Entries(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> paths;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) paths.push_back(it->path());
  if (error) return absl::NotFoundError(fmt::format("{}: {}", folder, error.message()));
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::optional<int64_t> Number(std::string_view text) {
  int64_t n = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || stop != text.data() + text.size() || n < 0) return std::nullopt;
  return n;
}

// Returns the K of PREFIX_K.pb.
std::optional<int64_t> Position(const fs::path& path, std::string_view prefix) {
  const std::string stem = path.stem().string();
  if (path.extension() != ".pb" || stem.rfind(prefix, 0) != 0) return std::nullopt;
  return Number(std::string_view(stem).substr(prefix.size()));
}

// Returns the value of a graph input or output.
absl::StatusOr<exec::Tensor> Read(const fs::path& path, const Graph& graph,
                                  const std::string& name) {
  const onnx::TypeProto& type = DeclaredType(graph.proto(), name);
  if (type.has_map_type() || type.has_sparse_tensor_type()) {
    return absl::InvalidArgumentError(
        fmt::format("{} is a {}; only tensors, sequences and optional values are read", name,
                    type.has_map_type() ? "map" : "sparse tensor"));
  }
  return ReadValue(path, type);
}

absl::StatusOr<exec::Feeds> Inputs(const std::string& folder, const Graph& graph) {
  KV_ASSIGN_OR_RETURN(const std::vector<fs::path> paths, Entries(folder));
  const auto inputs = graph.graph_inputs();
  exec::Feeds feeds;
  for (const fs::path& path : paths) {
    std::string name;
    if (const auto k = Position(path, "input_")) {
      if (*k < static_cast<int64_t>(inputs.size())) name = graph.name(inputs[*k]);
    } else if (path.extension() == ".npy") {
      name = path.stem().string();
      const auto named = [&](ValueId v) { return graph.name(v) == name; };
      if (std::none_of(inputs.begin(), inputs.end(), named)) name.clear();
    } else {
      continue;
    }
    if (name.empty()) {
      return absl::InvalidArgumentError(
          fmt::format("{} belongs to no input of the model", path.string()));
    }
    KV_ASSIGN_OR_RETURN(exec::Tensor value, Read(path, graph, name));
    if (!feeds.emplace(name, std::move(value)).second) {
      return absl::InvalidArgumentError(fmt::format("{}: input {} is given twice", folder, name));
    }
  }
  return feeds;
}

absl::StatusOr<exec::Fetches> Outputs(const std::string& folder, const Graph& graph) {
  KV_ASSIGN_OR_RETURN(const std::vector<fs::path> paths, Entries(folder));
  const auto outputs = graph.graph_outputs();
  exec::Fetches expected;
  for (const fs::path& path : paths) {
    const auto k = Position(path, "output_");
    if (!k) continue;
    if (*k >= static_cast<int64_t>(outputs.size())) {
      return absl::InvalidArgumentError(
          fmt::format("{} belongs to no output of the model", path.string()));
    }
    const std::string& name = graph.name(outputs[*k]);
    KV_ASSIGN_OR_RETURN(expected[name], Read(path, graph, name));
  }
  if (expected.empty()) {
    return absl::InvalidArgumentError(fmt::format("{} holds no output_K.pb", folder));
  }
  return expected;
}

// Gives an error the code of files of values.
template <typename Values>
absl::StatusOr<Values> OrCoded(absl::StatusOr<Values> values) {
  return values.ok() ? std::move(values) : CodedIfNone("KV034", values.status());
}

}  // namespace

absl::StatusOr<exec::Feeds> ReadInputs(const std::string& folder, const Graph& graph) {
  return OrCoded(Inputs(folder, graph));
}

absl::StatusOr<exec::Fetches> ReadOutputs(const std::string& folder, const Graph& graph) {
  return OrCoded(Outputs(folder, graph));
}

namespace {

std::vector<OutputFile> Files(const std::string& folder, const char* what, const Graph& graph,
                              absl::Span<const ValueId> ids, const exec::Feeds& values) {
  std::vector<OutputFile> files;
  for (size_t k = 0; k < ids.size(); ++k) {
    const std::string& name = graph.name(ids[k]);
    const auto value = values.find(name);
    if (value == values.end()) continue;
    files.push_back({(fs::path(folder) / fmt::format("{}_{}.pb", what, k)).string(),
                     SerializeValue(value->second, name, DeclaredType(graph.proto(), name))});
  }
  return files;
}

}  // namespace

std::vector<OutputFile> OutputFiles(const std::string& folder, const Graph& graph,
                                    const exec::Fetches& outputs) {
  return Files(folder, "output", graph, graph.graph_outputs(), outputs);
}

std::vector<OutputFile> InputFiles(const std::string& folder, const Graph& graph,
                                   const exec::Feeds& feeds) {
  return Files(folder, "input", graph, graph.graph_inputs(), feeds);
}

absl::Status WriteOutputs(const std::vector<OutputFile>& files) {
  std::vector<fs::path> made;  // outermost folder first
  std::error_code error;
  absl::Status status;
  for (const OutputFile& file : files) {
    std::vector<fs::path> missing;
    for (fs::path folder = fs::path(file.path).parent_path();
         !folder.empty() && !fs::exists(folder, error); folder = folder.parent_path()) {
      missing.push_back(folder);
    }
    for (auto folder = missing.rbegin(); status.ok() && folder != missing.rend(); ++folder) {
      if (fs::create_directory(*folder, error)) {
        made.push_back(*folder);
      } else if (error) {
        status = Coded("KV501", absl::PermissionDeniedError(
                                    fmt::format("{}: {}", folder->string(), error.message())));
      }
    }
  }
  if (status.ok()) status = WriteFiles(files);
  if (status.ok()) return status;
  for (auto folder = made.rbegin(); folder != made.rend(); ++folder) fs::remove(*folder, error);
  return status;
}

namespace {

absl::StatusOr<std::vector<std::string>> Steps(const std::string& folder) {
  KV_ASSIGN_OR_RETURN(const std::vector<fs::path> paths, Entries(folder));
  std::vector<std::pair<int64_t, std::string>> steps;
  for (const fs::path& path : paths) {
    std::error_code error;
    const std::string name = path.filename().string();
    const auto number = Number(name);
    if (number && fs::is_directory(path, error)) steps.emplace_back(*number, name);
  }
  if (steps.empty()) {
    return absl::InvalidArgumentError(fmt::format("{} holds no folders 00, 01, ...", folder));
  }
  std::sort(steps.begin(), steps.end());
  std::vector<std::string> names;
  names.reserve(steps.size());
  for (auto& [number, name] : steps) names.push_back(std::move(name));
  return names;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> StepFolders(const std::string& folder) {
  return OrCoded(Steps(folder));
}

}  // namespace kvlift::cli
