// LIBS: exec onnxio
// Runs folders of recorded cases: CASE/model.onnx with CASE/test_data_set_0/{input,output}_K.pb.
// Those of testdata/exec/conformance always; those of the folder that KVLIFT_CONFORMANCE_DIR names
// as well. There a case with an operator that has no kernel is counted, not failed.
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
std::string Compare(const Tensor& found, const Tensor& wanted) {
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
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    if (!exact && std::abs(a - b) <= kAbsolute + relative * std::abs(b)) continue;
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
    const std::string problem = Compare(fetches[name], *wanted);
    if (!problem.empty()) {
      return {Outcome::Kind::kFailed, fmt::format("output {} \"{}\": {}", i, name, problem)};
    }
  }
  return {Outcome::Kind::kPassed, ""};
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
