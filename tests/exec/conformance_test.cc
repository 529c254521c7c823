// LIBS: exec onnxio
// SRCS: support/recorded_case.cc
// Recorded cases: a selection of ONNX's node tests in testdata/exec/conformance (all of them are in
// exec_node_cases_test.cc), or in the folder that KVLIFT_CONFORMANCE_DIR names.
// testdata/exec/ort holds what ONNX Runtime computes, one model per case: inputs have defaults, and
// initializers "expected/OUTPUT" hold the results (NaN where they are not defined).
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "exec/session/session.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "onnxio/model/model.h"
#include "support/recorded_case.h"

namespace kvlift::exec {
namespace {

namespace fs = std::filesystem;

// "" if the model gives what it expects.
std::string RunRecorded(const fs::path& path, Order order) {
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

TEST(ExecConformance, AgreesWithOnnxRuntime) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(KVLIFT_TESTDATA_DIR) / "exec/ort")) {
    if (entry.path().extension() != ".onnx") continue;
    EXPECT_EQ(RunRecorded(entry.path(), Order::kCanonical), "") << entry.path().filename();
    EXPECT_EQ(RunRecorded(entry.path(), Order::kFast), "") << entry.path().filename() << " fast";
    ++count;
  }
  EXPECT_GT(count, 50);
}

TEST(ExecConformance, RecordedCasesPass) {
  const char* own = std::getenv("KVLIFT_CONFORMANCE_DIR");
  const fs::path root =
      own != nullptr ? fs::path(own) : fs::path(KVLIFT_TESTDATA_DIR) / "exec/conformance";
  const std::vector<fs::path> cases = CasesOf(root);
  ASSERT_FALSE(cases.empty());
  for (const fs::path& folder : cases) EXPECT_EQ(RunCase(folder), "") << folder.filename();
}

}  // namespace
}  // namespace kvlift::exec
