// LIBS: exec onnxio
// Runs folders of recorded cases: CASE/model.onnx with CASE/test_data_set_0/{input,output}_K.pb.
// Those of testdata/exec/conformance always; those of the folder that KVLIFT_CONFORMANCE_DIR names
// as well. There a case with an operator that has no kernel is counted, not failed.
// testdata/exec/ort holds what ONNX Runtime computes, one model per case: inputs have defaults, and
// initializers "expected/OUTPUT" hold the results (NaN where they are not defined).
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "exec/session.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "onnxio/model.h"

namespace kvlift::exec {
namespace {

namespace fs = std::filesystem;

// Tolerances of the official node tests, widened to two steps of the half-precision types.
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

// "" if equal within the tolerance.
std::string Compare(const Tensor& found, const Tensor& wanted, double absolute,
                    bool nan_is_any = false) {
  if (found.type() != wanted.type()) {
    return fmt::format("type {}, {} expected", found.type(), wanted.type());
  }
  if (found.shape() != wanted.shape()) {
    return fmt::format("shape {}, {} expected", ShapeString(found.shape()),
                       ShapeString(wanted.shape()));
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

struct Outcome {
  enum class Kind { kPassed, kUnsupported, kFailed } kind;
  std::string text;
};

Outcome FromStatus(const absl::Status& status) {
  return {absl::IsUnimplemented(status) ? Outcome::Kind::kUnsupported : Outcome::Kind::kFailed,
          status.ToString()};
}

Outcome RunCase(const fs::path& folder) {
  const auto model = LoadModel((folder / "model.onnx").string());
  if (!model.ok()) return FromStatus(model.status());
  auto graph = Graph::Build(model->proto);
  if (!graph.ok()) return FromStatus(graph.status());
  CompileOptions options;
  options.base_dir = model->base_dir;
  const auto program = Program::Compile(std::make_shared<Graph>(*std::move(graph)), options);
  if (!program.ok()) return FromStatus(program.status());
  const Graph& g = (*program)->graph();
  const fs::path data = folder / "test_data_set_0";
  Feeds feeds;
  for (size_t i = 0; i < g.graph_inputs().size(); ++i) {
    auto tensor = ReadTensor(data / fmt::format("input_{}.pb", i));
    if (!tensor.ok()) return {Outcome::Kind::kUnsupported, tensor.status().ToString()};
    feeds[g.name(g.graph_inputs()[i])] = *std::move(tensor);
  }
  Session session(*program);
  Fetches fetches;
  if (const absl::Status status = session.Step(feeds, &fetches); !status.ok()) {
    return FromStatus(status);
  }
  for (size_t i = 0; i < g.graph_outputs().size(); ++i) {
    const auto wanted = ReadTensor(data / fmt::format("output_{}.pb", i));
    if (!wanted.ok()) return {Outcome::Kind::kUnsupported, wanted.status().ToString()};
    const std::string& name = g.name(g.graph_outputs()[i]);
    const std::string problem = Compare(fetches[name], *wanted, kAbsolute);
    if (!problem.empty()) {
      return {Outcome::Kind::kFailed, fmt::format("output {} \"{}\": {}", i, name, problem)};
    }
  }
  return {Outcome::Kind::kPassed, ""};
}

// "" if the model gives what it expects.
std::string RunRecorded(const fs::path& path) {
  const auto model = LoadModel(path.string());
  if (!model.ok()) return model.status().ToString();
  onnx::ModelProto proto = *model->proto;
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
  const auto program = Program::Compile(std::make_shared<Graph>(*std::move(graph)), {});
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

TEST(ExecConformance, AgreesWithOnnxRuntime) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(KVLIFT_TESTDATA_DIR) / "exec/ort")) {
    if (entry.path().extension() != ".onnx") continue;
    EXPECT_EQ(RunRecorded(entry.path()), "") << entry.path().filename();
    ++count;
  }
  EXPECT_GT(count, 50);
}

std::vector<fs::path> Cases(const fs::path& root) {
  std::vector<fs::path> cases;
  if (!fs::is_directory(root)) return cases;
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    if (fs::exists(entry.path() / "model.onnx")) cases.push_back(entry.path());
  }
  std::sort(cases.begin(), cases.end());
  return cases;
}

TEST(ExecConformance, RecordedCasesPass) {
  const std::vector<fs::path> cases = Cases(fs::path(KVLIFT_TESTDATA_DIR) / "exec/conformance");
  ASSERT_FALSE(cases.empty());
  for (const fs::path& folder : cases) {
    const Outcome outcome = RunCase(folder);
    EXPECT_TRUE(outcome.kind == Outcome::Kind::kPassed)
        << folder.filename() << ": " << outcome.text;
  }
}

TEST(ExecConformance, FolderOfTheEnvironment) {
  const char* root = std::getenv("KVLIFT_CONFORMANCE_DIR");
  if (root == nullptr) GTEST_SKIP() << "KVLIFT_CONFORMANCE_DIR is not set";
  int passed = 0, failed = 0;
  std::map<std::string, int> unsupported;
  const std::vector<fs::path> cases = Cases(root);
  ASSERT_FALSE(cases.empty()) << root;
  for (const fs::path& folder : cases) {
    const Outcome outcome = RunCase(folder);
    if (outcome.kind == Outcome::Kind::kUnsupported) {
      ++unsupported[outcome.text];
    } else if (outcome.kind == Outcome::Kind::kPassed) {
      ++passed;
    } else {
      ++failed;
      ADD_FAILURE() << folder.filename() << ": " << outcome.text;
    }
  }
  for (const auto& [text, count] : unsupported) std::cout << count << " x " << text << "\n";
  std::cout << passed << " passed, " << failed << " failed, "
            << cases.size() - static_cast<size_t>(passed + failed) << " unsupported\n";
}

}  // namespace
}  // namespace kvlift::exec
