// LIBS: base
#include "base/findings.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvlift {
namespace {

using ::testing::MatchesRegex;

TEST(Findings, AreSortedAndUnique) {
  const auto all = AllFindings();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(std::adjacent_find(
                all.begin(), all.end(),
                [](const FindingInfo& a, const FindingInfo& b) { return a.code >= b.code; }),
            all.end());
}

TEST(Findings, AreWellFormed) {
  for (const FindingInfo& info : AllFindings()) {
    SCOPED_TRACE(info.code);
    EXPECT_THAT(std::string(info.code), MatchesRegex("KV[0-5][0-9][0-9]"));
    EXPECT_THAT(std::string(info.name), MatchesRegex("[a-z0-9]+(-[a-z0-9]+)*"));
    EXPECT_FALSE(info.message.empty());
    EXPECT_FALSE(info.why.empty());
    EXPECT_FALSE(info.remedy.empty());
  }
}

TEST(Findings, AreFoundByCode) {
  for (const FindingInfo& info : AllFindings()) EXPECT_EQ(FindFinding(info.code), &info);
  EXPECT_EQ(FindFinding("KV000"), nullptr);
  EXPECT_EQ(FindFinding("KV999"), nullptr);
}

}  // namespace
}  // namespace kvlift
