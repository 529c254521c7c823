// LIBS: exec onnxio
// SRCS: support/recorded_case.cc
// Recorded cases: a selection of ONNX's node tests in testdata/exec/conformance (all of them are in
// exec_node_cases_test.cc), or in the folder that KVLIFT_CONFORMANCE_DIR names.
// testdata/exec/ort holds what ONNX Runtime computes, one model per case.
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

TEST(ExecConformance, AgreesWithOnnxRuntime) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(KVLIFT_TESTDATA_DIR) / "exec/ort")) {
    if (entry.path().extension() != ".onnx") continue;
    const auto model = LoadModel(entry.path().string());
    ASSERT_TRUE(model.ok()) << model.status();
    for (const Order order : {Order::kCanonical, Order::kFast}) {
      EXPECT_EQ(RunRecorded(*model->proto, order), "")
          << entry.path().filename() << (order == Order::kFast ? " fast" : "");
    }
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
