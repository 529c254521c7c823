// LIBS: rewrite
// SRCS: support/case_edits.cc support/case_file.cc
// The reader of text cases, and the edits of cases with a base.
#include "support/case_file.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/case_edits.h"

namespace kvlift {
namespace {

using ::testing::HasSubstr;

TEST(CaseFile, RejectsWhatIsBroken) {
  const std::string good =
      "# ---- case\nrule: growing_concat\npreconditions: KV301\n# ---- before\nx\n# ---- "
      "after\ny\n";
  EXPECT_TRUE(ParseCase("a", good).ok());
  const auto error = [](const std::string& text) {
    return std::string(ParseCase("a", text).status().message());
  };
  EXPECT_THAT(error("x\n" + good), HasSubstr("in front of the first section"));
  EXPECT_THAT(error(good + "# ---- after\nz\n"), HasSubstr("section after occurs twice"));
  EXPECT_THAT(error(good + "# ---- extra\n"), HasSubstr("unknown section extra"));
  EXPECT_THAT(error("# ---- case\nrule: a\n# ---- after\nx\n"), HasSubstr("no section before"));
  EXPECT_THAT(error("# ---- case\nrule: a\n# ---- before\nx\n"), HasSubstr("after or a section"));
  EXPECT_THAT(error("# ---- case\nrule: a\nrule: b\n# ---- before\n# ---- after\n"),
              HasSubstr("key rule occurs twice"));
  EXPECT_THAT(error("# ---- case\nrule: a\ntarget: gpu\n# ---- before\n# ---- after\n"),
              HasSubstr("unknown target: gpu"));
  EXPECT_THAT(error("# ---- case\nrules: a\n# ---- before\n# ---- after\n"),
              HasSubstr("unknown key rules"));
  EXPECT_THAT(error("# ---- case\nrule: a\n# ---- before\n# ---- refuse\ncode: KV203\n"),
              HasSubstr("refuse without text"));
}

class CaseWithBase : public ::testing::Test {
 public:
  CaseWithBase() { std::filesystem::create_directories(folder_); }
  ~CaseWithBase() override { std::filesystem::remove_all(folder_); }

  // Writes a base with the source "a b c a", a line each, and parses a case that is behind it.
  absl::StatusOr<TextCase> Parse(const std::string& text) {
    Write("plain", "# ---- case\nrule: r\n# ---- before\na\nb\nc\na\n# ---- after\nx\n");
    Write("chained", "# ---- case\nrule: r\nbase: plain\n# ---- after\nx\n");
    return ParseCase(folder_ + "/edited.onnxtxt", text);
  }

  std::string ErrorOf(const std::string& text) {
    return std::string(Parse(text).status().message());
  }

 private:
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name + ".onnxtxt") << text;
  }

  // A folder of each test, since tests run side by side.
  const std::string folder_ =
      ::testing::TempDir() + ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

constexpr char kRefuse[] = "# ---- refuse\ncode: KV203\nnode: n\ntext: t\n";

TEST_F(CaseWithBase, HasTheSourceOfTheBaseWithItsEdits) {
  const std::string head = "# ---- case\nrule: r\nbase: plain\n";
  const auto edited = Parse(head + "# ---- edits\n-b\n+d\n\n c\n+e\n" + kRefuse);
  ASSERT_TRUE(edited.ok()) << edited.status();
  EXPECT_EQ(edited->before, "a\nd\nc\ne\na\n");
  const auto same = Parse(head + kRefuse);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->before, "a\nb\nc\na\n");
}

TEST_F(CaseWithBase, RejectsWhatIsBroken) {
  const std::string head = "# ---- case\nrule: r\nbase: ", edits = "# ---- edits\n-b\n";
  EXPECT_THAT(ErrorOf(head + "absent\n" + edits + kRefuse), HasSubstr("no base absent"));
  EXPECT_THAT(ErrorOf(head + "chained\n" + edits + kRefuse),
              HasSubstr("the base chained has no section before"));
  EXPECT_THAT(ErrorOf(head + "plain\n# ---- before\nx\n" + kRefuse),
              HasSubstr("a base beside a section before"));
  EXPECT_THAT(ErrorOf("# ---- case\nrule: r\n# ---- before\nx\n" + edits + kRefuse),
              HasSubstr("edits without a base"));
  EXPECT_THAT(ErrorOf(head + "plain\n# ---- edits\n-z\n" + kRefuse), HasSubstr("edit \"-z\""));
}

TEST(CaseEdits, KeepRemoveAndAddLines) {
  const auto edit = [](const std::string& edits) { return ApplyEdits("a\nb\n\nb\na\n", edits); };
  EXPECT_EQ(*edit("-a\n-b\n"), "\nb\na\n");
  EXPECT_EQ(*edit(" a\n+c\n+d\n b\n"), "a\nc\nd\nb\n\nb\na\n");
  EXPECT_EQ(*edit("-\n+--\n"), "a\nb\n--\nb\na\n");  // the empty line of the text
  EXPECT_EQ(*edit("\n-a\n b\n\n\n b\n-a\n"), "b\n\nb\n");
}

TEST(CaseEdits, ApplyAtExactlyOnePlaceInTheirOrder) {
  const auto error = [](const std::string& edits) {
    return std::string(ApplyEdits("a\nb\nc\nb\nd\n", edits).status().message());
  };
  EXPECT_EQ(error(""), "there are no edits");
  EXPECT_EQ(error("\n\n"), "there are no edits");
  EXPECT_EQ(error("-b\n"), "edit \"-b\" has several places in the base");
  EXPECT_EQ(error("-c\n-d\n"), "edit \"-c\" has no place in the base");
  EXPECT_EQ(error("+x\n"), "edit \"+x\" has no line that says where it is");
  EXPECT_EQ(error(" a\n b\n"), "edit \" a\" changes nothing");
  EXPECT_EQ(error("-a\n+a\n"), "edit \"-a\" changes nothing");
  EXPECT_THAT(error("-a\nb\n"), HasSubstr("without ' ', '-' or '+' in front: b"));
  EXPECT_EQ(error("-c\n\n-a\n"), "edit \"-a\" is not behind the one before it");
  EXPECT_EQ(error("-a\n b\n\n b\n-c\n"), "edit \" b\" is not behind the one before it");
  // Places are those of the base: what an edit adds or removes makes no other place.
  EXPECT_EQ(error("-a\n+d\n\n-c\n-b\n\n-d\n"), "");
}

}  // namespace
}  // namespace kvlift
