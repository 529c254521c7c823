#include "support/recorded_case.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <utility>

#include "base/status.h"
#include "fmt/format.h"
#include "onnx/onnx-data.pb.h"
#include "onnxio/model/model.h"

namespace kvlift::exec {
namespace {

namespace fs = std::filesystem;

// Tolerances of ONNX's node tests, widened to two steps of the 16-bit types.
constexpr double kAbsolute = 1e-7;

double RelativeTolerance(int32_t type) {
  switch (type) {
    case onnx::TensorProto::BFLOAT16:
      return 0x1p-6;
    case onnx::TensorProto::FLOAT16:
      return 0x1p-9;
    default:
      return 1e-3;
  }
}

absl::StatusOr<Tensor> ReadTensor(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  onnx::TensorProto proto;
  if (!proto.ParseFromIstream(&file)) return absl::InvalidArgumentError(path.string());
  return Tensor::FromProto(proto, path.parent_path());
}

absl::StatusOr<Tensor> ReadSequence(const onnx::SequenceProto& proto) {
  std::vector<Tensor> items;
  for (const onnx::TensorProto& value : proto.tensor_values()) {
    KV_ASSIGN_OR_RETURN(Tensor item, Tensor::FromProto(value, ""));
    items.push_back(std::move(item));
  }
  return Tensor::Sequence(std::move(items));
}

// Reads a tensor, a sequence or an optional value, as `info` declares.
absl::StatusOr<Tensor> ReadValue(const fs::path& path, const onnx::ValueInfoProto& info) {
  std::ifstream file(path, std::ios::binary);
  if (info.type().has_sequence_type()) {
    onnx::SequenceProto proto;
    if (!proto.ParseFromIstream(&file)) return absl::InvalidArgumentError(path.string());
    return ReadSequence(proto);
  }
  if (!info.type().has_optional_type()) return ReadTensor(path);
  onnx::OptionalProto proto;
  if (!proto.ParseFromIstream(&file)) return absl::InvalidArgumentError(path.string());
  if (proto.has_sequence_value()) return ReadSequence(proto.sequence_value());
  if (proto.has_tensor_value()) return Tensor::FromProto(proto.tensor_value(), "");
  return Tensor::Nothing();
}

absl::Status Run(const fs::path& folder, CompileOptions options) {
  KV_ASSIGN_OR_RETURN(const Model model, LoadModel((folder / "model.onnx").string()));
  KV_ASSIGN_OR_RETURN(Graph graph, Graph::Build(model.proto));
  options.base_dir = model.base_dir;
  KV_ASSIGN_OR_RETURN(const auto program,
                      Program::Compile(std::make_shared<Graph>(std::move(graph)), options));
  const Graph& g = program->graph();
  const fs::path data = folder / "test_data_set_0";
  Feeds feeds;
  for (size_t i = 0; i < g.graph_inputs().size(); ++i) {
    KV_ASSIGN_OR_RETURN(
        feeds[g.name(g.graph_inputs()[i])],
        ReadValue(data / fmt::format("input_{}.pb", i), g.proto().input(static_cast<int>(i))));
  }
  Session session(program);
  Fetches fetches;
  KV_RETURN_IF_ERROR(session.Step(feeds, &fetches));
  for (size_t i = 0; i < g.graph_outputs().size(); ++i) {
    KV_ASSIGN_OR_RETURN(const Tensor wanted, ReadValue(data / fmt::format("output_{}.pb", i),
                                                       g.proto().output(static_cast<int>(i))));
    const std::string& name = g.name(g.graph_outputs()[i]);
    const std::string problem = Compare(fetches[name], wanted, kAbsolute);
    if (!problem.empty()) {
      return absl::InternalError(fmt::format("output {} \"{}\": {}", i, name, problem));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<fs::path> CasesOf(const fs::path& root) {
  std::vector<fs::path> cases;
  if (!fs::is_directory(root)) return cases;
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    if (fs::exists(entry.path() / "model.onnx")) cases.push_back(entry.path());
  }
  std::sort(cases.begin(), cases.end());
  return cases;
}

std::string RunCase(const fs::path& folder, CompileOptions options) {
  const absl::Status status = Run(folder, std::move(options));
  return status.ok() ? "" : status.ToString();
}

std::string Compare(const Tensor& found, const Tensor& wanted, double absolute, bool nan_is_any) {
  if (found.type() != wanted.type()) {
    return fmt::format("type {}, {} expected", found.type(), wanted.type());
  }
  if (found.shape() != wanted.shape()) {
    return fmt::format("shape {}, {} expected", ShapeString(found.shape()),
                       ShapeString(wanted.shape()));
  }
  if (wanted.type() == kSequence) {
    for (int64_t i = 0; i < wanted.size(); ++i) {
      const std::string problem = Compare(found.view().as<std::vector<Tensor>>()->at(i),
                                          wanted.view().as<std::vector<Tensor>>()->at(i), absolute);
      if (!problem.empty()) return fmt::format("element {}: {}", i, problem);
    }
    return "";
  }
  const double relative = RelativeTolerance(wanted.type());
  const bool exact = !IsFloatType(wanted.type());
  for (int64_t i = 0; i < found.size(); ++i) {
    const double a = ElementAsDouble(found.view(), i), b = ElementAsDouble(wanted.view(), i);
    if (a == b || (std::isnan(b) && (nan_is_any || std::isnan(a)))) continue;
    if (!exact && std::abs(a - b) <= absolute + relative * std::abs(b)) continue;
    return fmt::format("element {} is {}, {} expected", i, a, b);
  }
  return "";
}

std::string RunRecorded(const onnx::ModelProto& model, Order order) {
  onnx::ModelProto proto = model;
  Feeds values;
  auto* tensors = proto.mutable_graph()->mutable_initializer();
  for (int i = tensors->size() - 1; i >= 0; --i) {
    const onnx::TensorProto& tensor = tensors->Get(i);
    bool fed = tensor.name().rfind("expected/", 0) == 0;
    for (const auto& input : proto.graph().input()) fed = fed || input.name() == tensor.name();
    if (!fed) continue;
    auto value = Tensor::FromProto(tensor, "");
    if (!value.ok()) return value.status().ToString();
    values[tensor.name()] = *std::move(value);
    tensors->DeleteSubrange(i, 1);
  }
  auto graph = Graph::Build(std::make_shared<onnx::ModelProto>(std::move(proto)));
  if (!graph.ok()) return graph.status().ToString();
  CompileOptions options;
  options.order = order;
  const auto program = Program::Compile(std::make_shared<Graph>(*std::move(graph)), options);
  if (!program.ok()) return program.status().ToString();
  const Graph& g = (*program)->graph();
  Feeds feeds;
  for (const ValueId v : g.graph_inputs()) feeds[g.name(v)] = values[g.name(v)];
  Session session(*program);
  Fetches fetches;
  if (const absl::Status status = session.Step(feeds, &fetches); !status.ok()) {
    return status.ToString();
  }
  for (const ValueId v : g.graph_outputs()) {
    // Sums in another order.
    constexpr double kSums = 2e-6;
    const std::string& name = g.name(v);
    const std::string problem = Compare(fetches[name], values["expected/" + name], kSums, true);
    if (!problem.empty()) return fmt::format("output \"{}\": {}", name, problem);
  }
  return "";
}

}  // namespace kvlift::exec
