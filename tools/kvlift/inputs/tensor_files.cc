#include "kvlift/inputs/tensor_files.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/coded.h"
#include "base/status.h"
#include "fmt/format.h"
#include "kvlift/inputs/npy.h"
#include "onnxio/model/model.h"

namespace kvlift::cli {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::string> ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  if (file) bytes << file.rdbuf();
  if (!file || bytes.bad()) {
    return absl::InvalidArgumentError(fmt::format("{} cannot be read", path.string()));
  }
  return bytes.str();
}

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

// Returns InvalidArgument if the model declares that the input or output is no tensor.
absl::Status CheckIsTensor(const Graph& graph, const std::string& name) {
  for (const auto* values : {&graph.proto().input(), &graph.proto().output()}) {
    for (const onnx::ValueInfoProto& value : *values) {
      if (value.name() != name) continue;
      const char* other = value.type().has_sequence_type()   ? "a sequence"
                          : value.type().has_optional_type() ? "an optional"
                          : value.type().has_map_type()      ? "a map"
                                                             : nullptr;
      if (other == nullptr) continue;
      return absl::InvalidArgumentError(
          fmt::format("{} is {}; only tensors are read", name, other));
    }
  }
  return absl::OkStatus();
}

// Returns true if a file of this size may hold the elements of a tensor. An element takes a byte or
// more in a file and eight or fewer in memory. The shape may be anything where the file is of
// another message.
bool MayHold(const onnx::TensorProto& proto, size_t file_bytes) {
  if (proto.data_location() == onnx::TensorProto::EXTERNAL) return true;
  if (ElementBits(proto.data_type()) == 0) return true;
  const exec::Shape shape(proto.dims().begin(), proto.dims().end());
  const int64_t bytes = exec::NumBytes(proto.data_type(), shape);
  return bytes >= 0 && static_cast<uint64_t>(bytes) / 8 <= file_bytes;
}

absl::StatusOr<exec::Tensor> ReadTensor(const fs::path& path) {
  KV_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  absl::StatusOr<exec::Tensor> tensor;
  if (path.extension() == ".npy") {
    tensor = ParseNpy(bytes);
  } else {
    onnx::TensorProto proto;
    if (!proto.ParseFromString(bytes)) {
      return absl::InvalidArgumentError(fmt::format("{} is no TensorProto", path.string()));
    }
    // A SequenceProto's tensors have the field number of a TensorProto's `segment`, which no writer
    // uses.
    if (proto.has_segment()) {
      return absl::InvalidArgumentError(
          fmt::format("{} is no TensorProto but a sequence; only tensors are read", path.string()));
    }
    if (!MayHold(proto, bytes.size())) {
      return absl::InvalidArgumentError(fmt::format(
          "{} is no TensorProto: its shape takes more data than the file has; sequences "
          "and optional values are not read",
          path.string()));
    }
    tensor = exec::Tensor::FromProto(proto, path.parent_path().string());
  }
  if (tensor.ok()) return tensor;
  return absl::InvalidArgumentError(
      fmt::format("{}: {}", path.string(), std::string(tensor.status().message())));
}

struct Tolerance {
  double relative, absolute;
};

Tolerance DefaultTolerance(int32_t type) {
  switch (type) {
    case onnx::TensorProto::FLOAT16:
      return {1e-2, 1e-2};
    case onnx::TensorProto::BFLOAT16:
      return {4e-2, 4e-2};
    default:
      return {1e-3, 1e-5};
  }
}

bool SameNumber(double actual, double expected, double rtol, double atol) {
  if (std::isnan(actual) || std::isnan(expected)) return std::isnan(actual) == std::isnan(expected);
  if (std::isinf(actual) || std::isinf(expected)) return actual == expected;
  return std::abs(actual - expected) <= atol + rtol * std::abs(expected);
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
    KV_RETURN_IF_ERROR(CheckIsTensor(graph, name));
    KV_ASSIGN_OR_RETURN(exec::Tensor tensor, ReadTensor(path));
    if (!feeds.emplace(name, std::move(tensor)).second) {
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
    KV_RETURN_IF_ERROR(CheckIsTensor(graph, name));
    KV_ASSIGN_OR_RETURN(expected[name], ReadTensor(path));
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
                              absl::Span<const ValueId> values, const exec::Feeds& tensors) {
  std::vector<OutputFile> files;
  for (size_t k = 0; k < values.size(); ++k) {
    const std::string& name = graph.name(values[k]);
    const auto tensor = tensors.find(name);
    if (tensor == tensors.end()) continue;
    files.push_back({(fs::path(folder) / fmt::format("{}_{}.pb", what, k)).string(),
                     tensor->second.ToProto(name).SerializeAsString()});
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

Comparison Compare(const exec::View& actual, const exec::View& expected, std::optional<double> rtol,
                   std::optional<double> atol) {
  Comparison c;
  if (actual.type != expected.type || actual.shape != expected.shape) {
    c.text = fmt::format("is {} {}, expected {} {}", ElementTypeName(actual.type),
                         exec::ShapeString(actual.shape), ElementTypeName(expected.type),
                         exec::ShapeString(expected.shape));
    return c;
  }
  if (actual.type == onnx::TensorProto::STRING) {
    const auto a = actual.span<std::string>(), e = expected.span<std::string>();
    c.equal = std::equal(a.begin(), a.end(), e.begin(), e.end());
    if (!c.equal) c.text = "differs";
    return c;
  }
  if (actual.bytes() < 0) {
    c.text = "is no tensor";
    return c;
  }
  const Tolerance tolerance = DefaultTolerance(actual.type);
  c.equal = true;
  if (!IsFloatType(actual.type)) {
    const auto bytes = static_cast<size_t>(actual.bytes());
    if (bytes == 0 || std::memcmp(actual.data, expected.data, bytes) == 0) return c;
  }
  const double relative = rtol.value_or(tolerance.relative);
  const double absolute = atol.value_or(tolerance.absolute);
  for (int64_t i = 0; i < actual.size(); ++i) {
    const double a = exec::ElementAsDouble(actual, i), e = exec::ElementAsDouble(expected, i);
    const bool same = IsFloatType(actual.type) ? SameNumber(a, e, relative, absolute) : a == e;
    if (std::isfinite(a) && std::isfinite(e)) {
      c.max_abs = std::max(c.max_abs, std::abs(a - e));
      if (e != 0) c.max_rel = std::max(c.max_rel, std::abs(a - e) / std::abs(e));
    }
    if (!same && c.equal) {
      c.equal = false;
      c.text = fmt::format("element {} is {:.9g}, expected {:.9g}", i, a, e);
    }
  }
  // Integers may exceed the precision of doubles, so their bytes are compared. The unused bits
  // behind the last element of a packed type do not count.
  if (c.equal && !IsFloatType(actual.type) && ElementBits(actual.type) >= 8) {
    c.equal = false;
    c.text = "differs";
  }
  return c;
}

}  // namespace kvlift::cli
