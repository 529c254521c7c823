// What `fleet` makes of the ends of processes that a test cannot bring about.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvlift/fleet/outcome.h"
#include "kvlift/fleet/result.h"

namespace kvlift::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kAbort = 6, kKill = 9;

// A status as waitpid gives it.
int Exited(int code) { return code << 8; }

FleetResult Judged(const std::string& command, int status, const ProcessOutput& printed,
                   bool timed_out = false) {
  FleetResult result;
  result.command = command;
  result.memory_gib = 0.5;
  result.timeout_seconds = 3;
  ProcessEnd end;
  end.status = status;
  end.timed_out = timed_out;
  Judge(end, printed, &result);
  return result;
}

TEST(FleetOutcome, SuccessNeedsTheDocumentOfTheCommand) {
  for (const char* text : {"", "{", "[]", "{}", R"({"schema":"kvlift/check/1","models":[]})",
                           R"({"schema":"kvlift/convert/1","status":"new word"})"}) {
    const FleetResult result = Judged("convert", Exited(0), {text, ""});
    EXPECT_EQ(result.outcome, "crashed") << text;
    EXPECT_FALSE(result.succeeded) << text;
    EXPECT_THAT(result.reason, HasSubstr("no document"));
  }
  const FleetResult good =
      Judged("convert", Exited(0), {R"({"schema":"kvlift/convert/1","status":"converted"})", ""});
  EXPECT_EQ(good.outcome, "converted");
  EXPECT_TRUE(good.succeeded);
}

TEST(FleetOutcome, WordsOfConversions) {
  const auto outcome = [](const char* status, const char* shown, int code) {
    const std::string text = std::string(R"({"schema":"kvlift/convert/1","status":")") + status +
                             R"(","equality":{"shown":")" + shown + R"(","reason":"KV404 x"}})";
    return Judged("convert", Exited(code), {text, ""}).outcome;
  };
  EXPECT_EQ(outcome("converted", "proved", 0), "converted");
  EXPECT_EQ(outcome("converted", "tested", 0), "converted-as-tested");
  EXPECT_EQ(outcome("converted", "unproved", 0), "converted-untested");
  EXPECT_EQ(outcome("converted", "different", 1), "different");
  EXPECT_EQ(outcome("partial", "inconclusive", 4), "inconclusive");
  EXPECT_EQ(outcome("partial", "proved", 0), "partial");
  EXPECT_EQ(outcome("nothing", "", 1), "no-cache");
}

TEST(FleetOutcome, AnEqualAsTestedModelSucceedsByItsExitCode) {
  const ProcessOutput printed{R"({"schema":"kvlift/verify/2","verdict":"equal as tested"})", ""};
  EXPECT_EQ(Judged("verify", Exited(4), printed).outcome, "equal-as-tested");
  EXPECT_FALSE(Judged("verify", Exited(4), printed).succeeded);
  EXPECT_TRUE(Judged("verify", Exited(0), printed).succeeded);
}

TEST(FleetOutcome, EndsOfProcesses) {
  EXPECT_EQ(Judged("check", kKill, {}, true).outcome, "timeout");
  EXPECT_EQ(Judged("check", kKill, {}, true).reason, "took longer than 3 s");
  EXPECT_EQ(Judged("check", kKill, {}).outcome, "crashed");
  EXPECT_EQ(Judged("check", kKill, {}).exit_code, 128 + kKill);
  const ProcessOutput no_memory{"", "terminate called after ... 'std::bad_alloc'\n"};
  EXPECT_EQ(Judged("check", kAbort, no_memory).outcome, "out-of-memory");
  EXPECT_EQ(Judged("check", Exited(70), {"", "noise\nkvlift: out of memory\n"}).reason,
            "needs more than 0.5 GiB: out of memory");
  EXPECT_EQ(Judged("check", Exited(70), {"", "kvlift: internal error: x\n"}).outcome, "crashed");
  EXPECT_EQ(Judged("check", Exited(5), {"", "kvlift: full [KV504]\n"}).outcome, "not-written");
  const FleetResult broken = Judged("check", Exited(3), {"", "kvlift: m: broken [KV002]\n  why\n"});
  EXPECT_EQ(broken.outcome, "invalid");
  EXPECT_EQ(broken.reason, "m: broken [KV002]");
  EXPECT_THAT(broken.codes, ElementsAre("KV002"));
}

TEST(FleetResult, LinesAreReadBack) {
  FleetResult result = Judged("check", Exited(3), {"", "kvlift: \xff\n"});
  result.index = 2;
  result.of = 3;
  result.model = "a\nb\u202e";
  result.codes = {"KV002", "KV101"};
  const std::string line = ToLine(result);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto read = ReadLine(line);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(ToLine(*read), line);
  for (const char* bad : {"", "{}", "null", "[1]", R"({"schema":"kvlift/fleet-result/1"})"}) {
    EXPECT_FALSE(ReadLine(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace kvlift::cli
