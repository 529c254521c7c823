// LIBS: exec onnxio
// SRCS: support/recorded_case.cc
// NEEDS: node_cases
// ONNX's official node tests, as support/node_cases.py writes them: once with the kernels, once
// with operators run by the function body that ONNX defines for them.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "support/recorded_case.h"

namespace kvlift::exec {
namespace {

namespace fs = std::filesystem;

using Expected = std::map<std::string, std::string>;  // case -> reason

// The cases of testdata/exec/node_cases_failing.txt with this mode: "MODE CASE: REASON" a line.
Expected ExpectedFailures(const std::string& mode) {
  std::ifstream file(fs::path(KVLIFT_TESTDATA_DIR) / "exec/node_cases_failing.txt");
  EXPECT_TRUE(file.good());
  Expected expected;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.find(' '), colon = line.find(": ");
    EXPECT_LT(space, colon) << line;
    EXPECT_LT(colon, line.size()) << line;
    if (line.substr(0, space) != mode) continue;
    expected[line.substr(space + 1, colon - space - 1)] = line.substr(colon + 2);
  }
  return expected;
}

void RunAll(const std::string& mode, const CompileOptions& options) {
  const std::vector<fs::path> cases = CasesOf(fs::path(KVLIFT_GENERATED_DIR) / "node_cases/node");
  ASSERT_GT(cases.size(), 1329u) << "the test node_cases writes them";
  Expected expected = ExpectedFailures(mode);
  size_t passed = 0, failed = 0;
  for (const fs::path& folder : cases) {
    const std::string name = folder.filename();
    const std::string problem = RunCase(folder, options);
    const bool listed = expected.erase(name) > 0;
    if (!problem.empty() && !listed) ADD_FAILURE() << name << ": " << problem;
    if (problem.empty() && listed) ADD_FAILURE() << name << " passes, but is listed as failing";
    passed += problem.empty();
    failed += !problem.empty() && listed;
  }
  for (const auto& [name, reason] : expected) ADD_FAILURE() << "no case " << name;
  std::cout << mode << ": " << cases.size() << " cases, " << passed << " passed, " << failed
            << " failed as expected\n";
}

TEST(ExecNodeCases, Kernels) { RunAll("kernel", {}); }

TEST(ExecNodeCases, KernelsInFastOrder) {
  CompileOptions options;
  options.order = Order::kFast;
  RunAll("kernel", options);
}

TEST(ExecNodeCases, FunctionBodies) {
  CompileOptions options;
  options.bodies = true;
  RunAll("body", options);
}

}  // namespace
}  // namespace kvlift::exec
