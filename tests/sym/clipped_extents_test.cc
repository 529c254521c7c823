// LIBS: sym
// SRCS: support/expr_eval.cc
// Extents that end where a table ends: what is left of them within a bound is equal to them there.
#include "sym/expr/clipped_extents.h"

#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "support/expr_eval.h"

namespace kvlift::sym::internal {
namespace {

using ::kvlift::testing::Environment;
using ::kvlift::testing::Evaluate;

class ClippedExtentsTest : public ::testing::Test {
 protected:
  Expr Int(int64_t v) { return pool_.Integer(v); }
  Expr Min(int64_t c, Expr e) { return pool_.Min(Int(c), e, Facts{}); }
  // The rows from P on that a table of c rows has for S tokens.
  Expr Rows(int64_t c) {
    const Expr rows = pool_.Sub(Min(c, t_), Min(c, p_));
    return pool_.Max(Int(0), rows, Facts{});
  }
  Expr AtMost(Expr e, int64_t c) { return pool_.Le(e, Int(c), Facts{}); }
  std::string Within(Expr bound, Expr e) {
    ClippedExtents extents(pool_);
    extents.Take(bound);
    return ToString(extents.Simplified(e));
  }

  Pool pool_;
  const Expr b_ = pool_.Dim("B", 1), p_ = pool_.Dim("P"), s_ = pool_.Dim("S");
  const Expr t_ = pool_.Add(p_, s_);
};

TEST_F(ClippedExtentsTest, AreWholeWithinTheTable) {
  EXPECT_EQ(Within(AtMost(t_, 8), Min(8, t_)), ToString(t_));
  EXPECT_EQ(Within(AtMost(t_, 8), Min(8, p_)), "P");
  EXPECT_EQ(Within(AtMost(t_, 8), Rows(8)), "S");
  EXPECT_EQ(Within(AtMost(p_, 7), Min(8, pool_.Add(p_, Int(1)))), "P + 1");
  EXPECT_EQ(Within(AtMost(t_, 8), pool_.Mul(b_, Rows(8))), ToString(pool_.Mul(b_, s_)));
}

// A write index that is not negative, such as the start of the last S of S + w rows.
TEST_F(ClippedExtentsTest, NumbersOfAHostThatAreNotNegative) {
  const Expr w = pool_.Load(1, {Int(0)});
  const Expr not_negative = pool_.Le(Int(0), w, Facts{});
  const Expr rows = pool_.Sub(pool_.Add(s_, w), pool_.Max(w, Int(0), Facts{}));
  EXPECT_EQ(Within(not_negative, rows), "S");
  EXPECT_EQ(Within(pool_.Le(Int(0), pool_.Load(2, {Int(0)}), Facts{}), rows), ToString(rows));
}

TEST_F(ClippedExtentsTest, StayWhereTheBoundIsLarger) {
  EXPECT_EQ(Within(AtMost(t_, 9), Min(8, t_)), ToString(Min(8, t_)));
  EXPECT_EQ(Within(AtMost(s_, 8), Rows(8)), ToString(Rows(8)));
}

TEST_F(ClippedExtentsTest, NeedTheTableInABroadcast) {
  ClippedExtents extents(pool_);
  EXPECT_EQ(extents.BoundOfBroadcast(Min(8, t_), t_), AtMost(t_, 8));
  // One row is broadcast to any number of tokens.
  EXPECT_EQ(extents.BoundOfBroadcast(Min(1, t_), t_), nullptr);
  EXPECT_EQ(extents.BoundOfBroadcast(Rows(8), s_), nullptr);
  EXPECT_EQ(extents.BoundOfBroadcast(t_, t_), nullptr);
  extents.Take(AtMost(t_, 8));
  EXPECT_EQ(extents.BoundOfBroadcast(Min(8, t_), t_), nullptr);
}

TEST_F(ClippedExtentsTest, NeedTheTableWhereTheyHaveToBeEqual) {
  const ClippedExtents none(pool_);
  EXPECT_EQ(ClippedExtents(none).BoundOfEqual(pool_.Mul(b_, Rows(8)), pool_.Mul(b_, s_)),
            AtMost(t_, 8));
  EXPECT_EQ(ClippedExtents(none).BoundOfEqual(s_, p_), nullptr);
  EXPECT_EQ(ClippedExtents(none).BoundOfEqual(Rows(8), p_), nullptr);
  // A bound that is enough, and not needed, excludes sizes at which they are equal.
  const Expr one = Int(1), most = pool_.Max(one, Min(8, p_), Facts{});
  EXPECT_EQ(ClippedExtents(none).BoundOfEqual(pool_.Max(one, p_, Facts{}), most), AtMost(p_, 8));
  const Expr at_least_one = pool_.Max(Int(1), s_, Facts{});
  EXPECT_EQ(ClippedExtents(none).BoundOfEqual(at_least_one, s_), pool_.Le(Int(1), s_, Facts{}));
}

// Draws expressions of minimums, maximums, differences and branches.
class Drawn {
 public:
  Drawn(Pool& pool, std::mt19937& rng, Expr p, Expr s) : pool_(pool), rng_(rng), p_(p), s_(s) {}

  Expr Draw(int depth) {
    if (depth == 0) {
      const int k = Number(0, 3);
      return k == 0 ? p_ : k == 1 ? s_ : k == 2 ? pool_.Add(p_, s_) : pool_.Integer(Number(0, 6));
    }
    const Expr a = Draw(depth - 1), b = Draw(depth - 1);
    switch (Number(0, 4)) {
      case 0:
        return pool_.Min(a, b, Facts{});
      case 1:
        return pool_.Max(a, b, Facts{});
      case 2:
        return pool_.Sub(a, b);
      case 3:
        return pool_.Add(a, b);
      default:
        return pool_.Select(Bound(), a, b);
    }
  }

  // Returns an inequality, or the opposite of one.
  Expr Bound() {
    const int k = Number(0, 2);
    const Expr e = k == 0 ? p_ : k == 1 ? s_ : pool_.Add(p_, s_);
    const Expr bound = pool_.Le(e, pool_.Integer(Number(1, 6)), Facts{});
    return Number(0, 3) == 0 ? pool_.Not(bound) : bound;
  }

 private:
  int Number(int from, int to) { return std::uniform_int_distribution<int>(from, to)(rng_); }

  Pool& pool_;
  std::mt19937& rng_;
  const Expr p_, s_;
};

TEST_F(ClippedExtentsTest, KeepTheirValuesWithinTheBounds) {
  std::mt19937 rng(5);
  Drawn drawn(pool_, rng, p_, s_);
  int changed = 0, compared = 0;
  for (int i = 0; i < 3000; ++i) {
    const Expr e = drawn.Draw(i % 4), bound = drawn.Bound(), other = drawn.Bound();
    ClippedExtents extents(pool_);
    extents.Take(bound);
    if (i % 2 == 0) extents.Take(other);
    const Expr simple = extents.Simplified(e);
    changed += simple != e;
    for (int64_t p = 0; p < 9; ++p) {
      for (int64_t s = 0; s < 9; ++s) {
        const Environment at{{{"P", p}, {"S", s}}, {}, {}};
        const bool taken = *Evaluate(bound, at) != 0 && (i % 2 != 0 || *Evaluate(other, at) != 0);
        if (!taken) continue;
        ++compared;
        ASSERT_EQ(Evaluate(simple, at), Evaluate(e, at))
            << ToString(e) << " became " << ToString(simple) << " within " << ToString(bound)
            << " and " << ToString(other) << " at " << p << ", " << s;
      }
    }
  }
  EXPECT_GT(changed, 100);
  EXPECT_GT(compared, 10000);
}

}  // namespace
}  // namespace kvlift::sym::internal
