// LIBS: proof
// Queries that see no key, and numbers beside which scores lose their bits.
#include <limits>

#include "gtest/gtest.h"
#include "proof/visible_keys.h"

namespace kvlift {
namespace {

using sym::Expr;

class VisibleKeys : public testing::Test {
 protected:
  std::string Find(Expr visible) {
    return QueryWithoutKeys(pool_, visible, past_, tokens_, pool_.Add(past_, tokens_));
  }

  sym::Pool pool_;
  Expr past_ = pool_.Internal("past"), tokens_ = pool_.Dim("S");
  Expr query_ = pool_.Index(2), key_ = pool_.Index(3);
  Expr own_ = pool_.Add(past_, query_);
};

TEST_F(VisibleKeys, EachTokenSeesItself) { EXPECT_EQ(Find(pool_.Le(key_, own_, {})), ""); }

TEST_F(VisibleKeys, TheFirstTokenSeesNoneInFrontOfIt) {
  EXPECT_EQ(Find(pool_.Lt(key_, own_, {})), "past 0, new 1, query 0");
}

TEST_F(VisibleKeys, NumbersOfTheMaskSayWhichLengthsAreTried) {
  const Expr far = pool_.Le(pool_.Sub(own_, pool_.Integer(300)), pool_.Integer(0), {});
  EXPECT_EQ(Find(pool_.And(far, pool_.Le(key_, own_, {}))), "past 298, new 5, query 4");
}

TEST_F(VisibleKeys, WhatAMaskOfTheHostHidesIsNotTold) {
  const Expr place[] = {key_};
  EXPECT_EQ(Find(pool_.Eq(pool_.Load(7, place), pool_.Integer(1), {})), "");
}

TEST_F(VisibleKeys, PaddingHidesAllKeysOfATokenThatDoesNotSeeItself) {
  const auto hidden = [&](Expr sees) {
    return PaddingHidesAllKeys(pool_, sees, past_, tokens_, pool_.Add(past_, tokens_));
  };
  const Expr place[] = {pool_.Index(0), key_};
  const Expr load = pool_.Load(7, place);
  const Expr own = pool_.Le(key_, own_, {}), front = pool_.Le(key_, query_, {});
  const Expr some = pool_.Le(key_, pool_.Integer(0), {});
  for (const int64_t shown : {0, 1}) {
    const Expr real = pool_.Eq(load, pool_.Integer(shown), {});
    EXPECT_FALSE(hidden(pool_.And(own, real)));
    EXPECT_TRUE(hidden(pool_.And(front, real)));
    EXPECT_FALSE(hidden(pool_.And(front, pool_.Or(real, some))));
  }
  EXPECT_FALSE(hidden(front));  // no mask of the host
}

TEST_F(VisibleKeys, AStartOfTheHostIsThePast) {
  const Expr first[] = {pool_.Integer(0)};
  const Expr start = pool_.Load(7, first);
  const Expr visible = pool_.Lt(key_, pool_.Add(start, query_), {});
  EXPECT_NE(QueryWithoutKeys(pool_, visible, nullptr, tokens_, pool_.Integer(16)), "");
  const Expr own = pool_.Le(key_, pool_.Add(start, query_), {});
  EXPECT_EQ(QueryWithoutKeys(pool_, own, nullptr, tokens_, pool_.Integer(16)), "");
}

TEST_F(VisibleKeys, LargeNumbersRoundScoresAway) {
  const Expr keep = pool_.Le(key_, own_, {});
  const auto added = [&](double number) {
    return RoundsScoresAway(pool_.Select(keep, pool_.Integer(0), pool_.Float(number)));
  };
  EXPECT_TRUE(added(65504));
  EXPECT_TRUE(added(std::numeric_limits<float>::max()));
  EXPECT_FALSE(added(-65504));
  EXPECT_FALSE(added(1));
}

}  // namespace
}  // namespace kvlift
