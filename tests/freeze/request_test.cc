// LIBS: freeze
#include "freeze/request.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvlift {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::string WhyNot(const std::string& text) {
  const auto request = ReadFreeze(text);
  EXPECT_FALSE(request.ok()) << text;
  return std::string(request.status().message());
}

TEST(FreezeRequest, GivesAGraphForEachNumberOfTokens) {
  const auto request = ReadFreeze("batch=2,tokens=1|128,a=b=7,x.shape[1]=3");
  ASSERT_TRUE(request.ok()) << request.status();
  const auto graphs = request->Graphs();
  ASSERT_EQ(graphs.size(), 2u);
  EXPECT_EQ(graphs[0].tokens, 1);
  EXPECT_EQ(graphs[1].tokens, 128);
  for (const FreezeSizes& sizes : graphs) {
    EXPECT_EQ(sizes.batch, 2);
    EXPECT_THAT(sizes.others, ElementsAre(Pair("a=b", 7), Pair("x.shape[1]", 3)));
  }
}

TEST(FreezeRequest, LeavesOutWhatTheModelDeclares) {
  const auto request = ReadFreeze("n=1");
  ASSERT_TRUE(request.ok()) << request.status();
  ASSERT_EQ(request->Graphs().size(), 1u);
  EXPECT_EQ(request->Graphs()[0].batch, std::nullopt);
  EXPECT_EQ(request->Graphs()[0].tokens, std::nullopt);
}

TEST(FreezeRequest, RefusesWhatAssignsNoPositiveNumber) {
  EXPECT_THAT(WhyNot(""), HasSubstr("NAME=NUMBER"));
  EXPECT_THAT(WhyNot("batch"), HasSubstr("NAME=NUMBER"));
  EXPECT_THAT(WhyNot("=1"), HasSubstr("NAME=NUMBER"));
  EXPECT_THAT(WhyNot("batch=1,"), HasSubstr("NAME=NUMBER"));
  for (const char* text : {"batch=", "batch=0", "batch=-1", "batch=1x", "tokens=1|", "tokens=|1",
                           "tokens=99999999999999999999"}) {
    EXPECT_THAT(WhyNot(text), HasSubstr("positive number"));
  }
}

TEST(FreezeRequest, TakesBlanksAroundParts) {
  const auto request = ReadFreeze(" batch = 1, tokens = 1 | 128 , a b=7");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->batch, 1);
  EXPECT_EQ(request->tokens, (std::vector<int64_t>{1, 128}));
  ASSERT_EQ(request->others.size(), 1U);
  EXPECT_EQ(request->others[0].first, "a b");
}

TEST(FreezeRequest, RefusesANameThatIsAssignedTwice) {
  EXPECT_THAT(WhyNot("batch=1,batch=1"), HasSubstr("batch is assigned twice"));
  EXPECT_THAT(WhyNot("tokens=1,tokens=2"), HasSubstr("tokens is assigned twice"));
  EXPECT_THAT(WhyNot("n=1,n=2"), HasSubstr("n is assigned twice"));
  EXPECT_THAT(WhyNot("tokens=4|4"), HasSubstr("4 stands twice"));
  EXPECT_THAT(WhyNot("n=1|2"), HasSubstr("only tokens"));
}

}  // namespace
}  // namespace kvlift
