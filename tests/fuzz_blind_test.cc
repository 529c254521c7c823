// LIBS: fuzz
// Planted faults: that fuzzing without coverage finds what breaks a target, in every way a process
// can be broken, and keeps the input that does it.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "base/sanitized.h"
#include "fuzz/blind.h"
#include "fuzz/execute.h"
#include "fuzz/mutate.h"
#include "fuzz/seeds.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx/onnx_pb.h"
#include "onnxio/model/model.h"
#include "support/case_file.h"

namespace kvlift::fuzz {
namespace {

using ::testing::HasSubstr;

// No text case has a node of this kind: one change of structure brings it, hardly ever one of
// bytes.
bool HasFault(std::string_view bytes) {
  onnx::ModelProto model;
  if (!model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return false;
  for (const auto& node : model.graph().node()) {
    if (node.op_type() == "SequenceConstruct") return true;
  }
  return false;
}

void Hold(std::string_view) {}
void Abort(std::string_view bytes) { Require(!HasFault(bytes), "planted"); }
void Leave(std::string_view bytes) {
  if (HasFault(bytes)) std::_Exit(0);
}
void Hang(std::string_view bytes) {
  while (HasFault(bytes)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}
void Crash(std::string_view bytes) {
  if (HasFault(bytes)) std::raise(SIGSEGV);
}
void TakeMemory(std::string_view bytes) {
  if (HasFault(bytes)) std::string(size_t{1} << 30, 'x').swap(*new std::string);
}

BlindOptions Options(double seconds) {
  BlindOptions options;
  options.seconds = seconds;
  options.seed = 7;
  options.input_seconds = 2;
  options.memory = uint64_t{256} << 20;
  options.findings = ::testing::TempDir() + "/kvlift_blind_" +
                     ::testing::UnitTest::GetInstance()->current_test_info()->name();
  return options;
}

class Planted : public ::testing::Test {
 protected:
  ~Planted() override { std::filesystem::remove_all(options_.findings); }

  BlindFinding Find(void (*run)(std::string_view)) {
    const Target target = {"planted", Form::kModel, run};
    const auto corpus = Seeds(target);
    const BlindRun found = FuzzBlindly(target, corpus, options_);
    EXPECT_TRUE(found.finding.has_value()) << found.rounds << " rounds";
    if (!found.finding) return {};
    EXPECT_EQ(found.finding->round + 1, found.rounds);
    EXPECT_GE(found.finding->round, corpus.size()) << "a seed has the fault";
    EXPECT_EQ(ReadFile(found.finding->path),
              BlindInput(target, corpus, options_.seed, found.finding->round));
    EXPECT_TRUE(HasFault(ReadFile(found.finding->path)));
    return *found.finding;
  }

  BlindOptions options_ = Options(60);
};

TEST_F(Planted, BrokenPromise) { EXPECT_THAT(Find(&Abort).what, HasSubstr("signal 6")); }

TEST_F(Planted, Signal) {
#ifdef KVLIFT_SANITIZED
  GTEST_SKIP() << "sanitizers have their own handlers";
#endif
  EXPECT_THAT(Find(&Crash).what, HasSubstr("signal 11"));
}

TEST_F(Planted, SilentExit) { EXPECT_EQ(Find(&Leave).what, "exit 0 before the end"); }

TEST_F(Planted, InputWithoutEnd) { EXPECT_EQ(Find(&Hang).what, "no end within 2 s"); }

TEST_F(Planted, Memory) {
#ifdef KVLIFT_SANITIZED
  GTEST_SKIP() << "memory is not limited under sanitizers";
#endif
  EXPECT_THAT(Find(&TakeMemory).what, HasSubstr("signal 6"));
}

TEST(Blind, ATargetThatHoldsIsRunToTheEnd) {
  const Target target = {"holds", Form::kModel, &Hold};
  const auto corpus = Seeds(target);
  BlindOptions options = Options(0.5);
  const BlindRun run = FuzzBlindly(target, corpus, options);
  EXPECT_FALSE(run.finding.has_value());
  EXPECT_GT(run.rounds, corpus.size());
  EXPECT_FALSE(std::filesystem::exists(options.findings));
}

TEST(Blind, InputsAreAFunctionOfSeedAndRound) {
  const Target& target = *FindTarget("manifest");
  const auto corpus = Seeds(target);
  size_t changed = 0, others = 0;
  for (uint64_t round = corpus.size(); round < corpus.size() + 50; ++round) {
    const std::string bytes = BlindInput(target, corpus, 1, round);
    EXPECT_EQ(bytes, BlindInput(target, corpus, 1, round));
    changed += std::find(corpus.begin(), corpus.end(), bytes) == corpus.end();
    others += bytes != BlindInput(target, corpus, 2, round);
  }
  EXPECT_GT(changed, 40u);
  EXPECT_GT(others, 40u);
  EXPECT_EQ(BlindInput(target, corpus, 1, 0), corpus[0]);
}

// What the target "prove" does not judge is the exception.
TEST(Blind, MostCasesRunAsDeclared) {
  const auto seeds = Seeds(*FindTarget("prove"));
  size_t run = 0;
  for (const std::string& bytes : seeds) {
    const auto model = LoadModelBytes(bytes, "");
    ASSERT_TRUE(model.ok());
    run += RunsAsDeclared(*model);
  }
  EXPECT_GT(run, seeds.size() * 3 / 4);
}

}  // namespace
}  // namespace kvlift::fuzz
