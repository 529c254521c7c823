// What `reduce` keeps: which ends of processes show the same as the given models.
#include "kvlift/reduce/property.h"

#include "gtest/gtest.h"

namespace kvlift::cli {
namespace {

// Statuses as waitpid gives them.
int Exited(int code) { return code << 8; }
constexpr int kSegmentationFault = 11, kAbort = 6;

Observation Seen(const std::string& command, int status, const std::string& document,
                 const std::string& errors = "") {
  ProcessEnd end;
  end.status = status;
  return Observe(command, end, {document, errors});
}

// plans: JSON, such as {"name":"decode","status":"different"}.
Observation Verified(const std::string& verdict, const std::string& code,
                     const std::string& plans = "") {
  return Seen("verify",
              Exited(verdict == "inconclusive" ? 4
                     : verdict == "different"  ? 1
                                               : 0),
              R"({"schema":"kvlift/verify/2","verdict":")" + verdict + R"(","reason":")" + code +
                  R"( a text","plans":[)" + plans + "]}");
}

Observation Refused(const std::vector<std::string>& codes) {
  std::string caches;
  for (const std::string& code : codes) {
    caches += (caches.empty() ? "" : ",") + (R"({"reason":{"code":")" + code + R"(","text":"x"}})");
  }
  return Seen("convert", Exited(1),
              R"({"schema":"kvlift/convert/1","status":"refused","caches":[)" + caches +
                  R"(],"attention":[]})");
}

TEST(ReduceProperty, AVerdictWithItsCode) {
  const auto property = Property::Of(Verified("different", "KV404"), "");
  ASSERT_TRUE(property);
  EXPECT_EQ(property->Text(), "different with KV404");
  EXPECT_TRUE(property->IsShown(Verified("different", "KV404")));
  EXPECT_FALSE(property->IsShown(Verified("different", "KV409")));
  EXPECT_FALSE(property->IsShown(Verified("inconclusive", "KV404")));
  EXPECT_FALSE(property->IsShown(Verified("equal", "")));
  EXPECT_FALSE(Property::Of(Verified("equal", ""), ""));
}

TEST(ReduceProperty, PlansThatAgreedMustNotDiffer) {
  const std::string far = R"({"name":"long past","status":"different"})";
  const auto property = Property::Of(
      Verified("different", "KV404", R"({"name":"decode","status":"bitwise"},)" + far), "");
  ASSERT_TRUE(property);
  EXPECT_TRUE(property->IsShown(Verified("different", "KV404", far)));
  EXPECT_FALSE(property->IsShown(
      Verified("different", "KV404", R"({"name":"decode","status":"different"})")));
}

TEST(ReduceProperty, ARefusalByItsCause) {
  const auto property = Property::Of(Refused({"KV223", "KV205"}), "");
  ASSERT_TRUE(property);
  EXPECT_EQ(property->Text(), "refused with KV205");
  EXPECT_TRUE(property->IsShown(Refused({"KV205"})));
  EXPECT_FALSE(property->IsShown(Refused({"KV223"})));
  EXPECT_EQ(Property::Of(Refused({"KV223"}), "")->code(), "KV223");
}

TEST(ReduceProperty, WhatTheUserAsksFor) {
  const Observation refused = Refused({"KV203", "KV205"});
  EXPECT_EQ(Property::Of(refused, "")->code(), "KV203");
  EXPECT_EQ(Property::Of(refused, "KV205")->code(), "KV205");
  EXPECT_FALSE(Property::Of(refused, "KV206"));
  EXPECT_FALSE(Property::Of(refused, "different"));
  const auto any = Property::Of(Verified("different", "KV404"), "different");
  ASSERT_TRUE(any);
  EXPECT_TRUE(any->IsShown(Verified("different", "KV409")));
  EXPECT_EQ(KeepWordError("KV205"), "");
  EXPECT_EQ(KeepWordError("crash"), "");
  EXPECT_NE(KeepWordError("KV999"), "");
}

TEST(ReduceProperty, ACrashByItsSignal) {
  const auto property = Property::Of(Seen("convert", kSegmentationFault, ""), "");
  ASSERT_TRUE(property);
  EXPECT_EQ(property->Word(), "crash");
  EXPECT_TRUE(property->IsShown(Seen("convert", kSegmentationFault, "")));
  EXPECT_FALSE(property->IsShown(Seen("convert", kAbort, "")));
  EXPECT_FALSE(property->IsShown(Refused({"KV203"})));
  EXPECT_EQ(Property::Of(Seen("convert", Exited(70), ""), "crash")->Word(), "crash");
}

}  // namespace
}  // namespace kvlift::cli
