// LIBS: sym
// What the normal form of single expressions looks like.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "sym/expr/expr.h"

namespace kvlift::sym {
namespace {

class ExprTable : public ::testing::Test {
 protected:
  Expr N(int64_t v) { return pool_.Integer(v); }
  Expr Flat(Expr outer, Expr extent, Expr inner) {
    return pool_.Add(pool_.Mul(outer, extent), inner);
  }

  Pool pool_;
  Expr i0_ = pool_.Index(0), i1_ = pool_.Index(1), i2_ = pool_.Index(2);
  Expr t_ = pool_.Dim("T", 0), d_ = pool_.Dim("D", 1), s_ = pool_.Dim("S", 1);
  Facts facts_{{nullptr, t_, d_}};  // i0 any, i1 < T, i2 < D
};

TEST_F(ExprTable, EqualThingsAreTheSamePointer) {
  EXPECT_EQ(pool_.Add(i0_, i1_), pool_.Add(i1_, i0_));
  EXPECT_EQ(pool_.Sub(pool_.Add(i0_, t_), t_), i0_);
  EXPECT_EQ(pool_.Mul(pool_.Add(i0_, N(1)), pool_.Sub(i0_, N(1))),
            pool_.Sub(pool_.Mul(i0_, i0_), N(1)));
  EXPECT_EQ(pool_.Float(3.0), N(3));
  EXPECT_EQ(pool_.Float(-0.0), N(0));
  EXPECT_EQ(pool_.Float(std::nan("")), pool_.Float(std::nan("1")));
}

TEST_F(ExprTable, FlatIndicesFallApart) {
  const Expr flat = Flat(i0_, t_, i1_), deep = Flat(flat, d_, i2_);
  EXPECT_EQ(pool_.FloorDiv(flat, t_, facts_), i0_);
  EXPECT_EQ(pool_.Mod(flat, t_, facts_), i1_);
  EXPECT_EQ(pool_.FloorDiv(deep, pool_.Mul(t_, d_), facts_), i0_);
  EXPECT_EQ(pool_.Mod(pool_.FloorDiv(deep, d_, facts_), t_, facts_), i1_);
  EXPECT_EQ(pool_.Mod(deep, d_, facts_), i2_);
  EXPECT_NE(pool_.FloorDiv(flat, t_, Facts{}), i0_) << "nothing bounds i1";
}

TEST_F(ExprTable, ConstantsDivideTowardsMinusInfinity) {
  const int64_t cases[][4] = {{7, 2, 3, 1}, {-7, 2, -4, 1}, {7, -2, -4, -1}, {-7, -2, 3, -1}};
  for (const auto& [a, b, q, r] : cases) {
    EXPECT_TRUE(pool_.FloorDiv(N(a), N(b), facts_)->is_integer(q)) << a << " div " << b;
    EXPECT_TRUE(pool_.Mod(N(a), N(b), facts_)->is_integer(r)) << a << " mod " << b;
  }
  EXPECT_EQ(pool_.FloorDiv(N(1), N(0), facts_)->kind(), Kind::kApply);
}

// Heads that share a group: (i div 2) <= 1 for i < 4, although (3 div 2) * 2 is below 3.
TEST_F(ExprTable, QuotientsOfIntegersAreBoundedByIntegers) {
  const Facts facts{{N(4), N(5), t_}};
  const Expr half = pool_.FloorDiv(i0_, N(2), facts), other = pool_.FloorDiv(i1_, N(2), facts);
  EXPECT_TRUE(pool_.Le(half, N(1), facts)->is_integer(1));
  EXPECT_FALSE(pool_.Le(other, N(1), facts)->is_integer(1));
  EXPECT_TRUE(pool_.Le(other, N(2), facts)->is_integer(1));
  EXPECT_TRUE(
      pool_.Le(N(1), pool_.FloorDiv(pool_.Add(i0_, N(2)), N(2), facts), facts)->is_integer(1));
  // Half of a real number may be above 1/2.
  const Expr real = pool_.Load(7, {i0_});
  EXPECT_FALSE(pool_.Le(pool_.Mul(N(2), half), pool_.Add(real, N(2)), facts)->is_integer(1));
}

// Four heads of 8 elements in groups of two: (8 * head + element) div 16 is head div 2.
TEST_F(ExprTable, RemaindersBelowACommonFactorDoNotCount) {
  const Facts facts{{N(4), N(8), N(9)}};
  const Expr head = pool_.Mul(N(8), i0_);
  const Expr group = pool_.FloorDiv(i0_, N(2), facts);
  EXPECT_EQ(pool_.FloorDiv(pool_.Add(head, i1_), N(16), facts), group);
  EXPECT_NE(pool_.FloorDiv(pool_.Add(head, i2_), N(16), facts), group) << "i2 may be 8";
  EXPECT_EQ(pool_.FloorDiv(pool_.Add(head, N(11)), N(16), facts),
            pool_.FloorDiv(pool_.Add(i0_, N(1)), N(2), facts));
  EXPECT_EQ(pool_.FloorDiv(pool_.Sub(head, N(3)), N(16), facts),
            pool_.FloorDiv(pool_.Sub(i0_, N(1)), N(2), facts));
}

TEST_F(ExprTable, ThePlaceAtTheEndOfAnAxisIsABound) {
  const Facts facts{{N(8)}};
  EXPECT_EQ(pool_.Eq(i0_, N(7), facts), pool_.Le(N(7), i0_, facts));
  EXPECT_EQ(pool_.Eq(i0_, N(6), facts)->kind(), Kind::kEq);
  EXPECT_EQ(pool_.Eq(i0_, N(7), Facts{})->kind(), Kind::kEq) << "the axis may be longer";
}

TEST_F(ExprTable, SizesAreNotBelowZero) {
  const Expr positive = pool_.Le(N(1), t_, Facts{});
  EXPECT_EQ(pool_.Select(positive, t_, N(0)), t_) << "max(T, 0)";
  EXPECT_EQ(pool_.Max(t_, N(0), Facts{}), t_);
  const Expr unknown = pool_.Load(7, {});
  EXPECT_NE(pool_.Select(pool_.Le(N(1), unknown, Facts{}), unknown, N(0)), unknown);
  const Expr none = pool_.Le(t_, N(0), Facts{});
  EXPECT_TRUE(pool_.And(none, pool_.Not(pool_.Eq(t_, N(0), Facts{})))->is_integer(0));
  EXPECT_TRUE(
      pool_.And(pool_.Not(pool_.Eq(pool_.Mul(s_, t_), N(0), Facts{})), none)->is_integer(0));
  EXPECT_FALSE(pool_.And(none, pool_.Not(pool_.Eq(s_, t_, Facts{})))->is_integer(0));
}

TEST_F(ExprTable, AssumedConditionsDecideWhatComparisonsSelect) {
  const Expr start = pool_.Load(7, {}), negative = pool_.Lt(start, N(0), Facts{});
  const Expr place = pool_.Select(negative, pool_.Add(start, N(32)), start);
  const Expr inside = pool_.Le(N(0), place, Facts{});
  ASSERT_EQ(inside->kind(), Kind::kLe);
  EXPECT_EQ(pool_.Assume(inside, negative, true, Facts{}),
            pool_.Le(N(0), pool_.Add(start, N(32)), Facts{}));
  EXPECT_TRUE(pool_.Assume(inside, negative, false, Facts{})->is_integer(1));
}

// Slot t mod C of a ring, where S tokens follow W of them at most.
TEST_F(ExprTable, BoundsOfDimsTellWhatFitsARing) {
  const Expr c = pool_.Dim("C", 4), p = pool_.Dim("P", 0), left = pool_.Dim("L", 1);
  pool_.Bound(DimSymbol::Declared("P"), N(3));
  pool_.Bound(DimSymbol::Declared("S"), pool_.Sub(c, N(3)));
  EXPECT_EQ(pool_.Mod(p, c, facts_), p);
  const Facts fresh{{s_}};
  EXPECT_EQ(pool_.Mod(pool_.Add(p, i0_), c, fresh), pool_.Add(p, i0_));
  EXPECT_NE(pool_.Mod(pool_.Add(left, i0_), c, fresh), pool_.Add(left, i0_));
  // Back from the slot to the row.
  const Expr slot = pool_.Mod(pool_.Add(left, pool_.Add(i0_, N(3))), c, fresh);
  EXPECT_EQ(pool_.Mod(pool_.Sub(slot, left), c, fresh), pool_.Add(i0_, N(3)));
  EXPECT_TRUE(pool_.Lt(slot, c, fresh)->is_integer(1));
  EXPECT_FALSE(pool_.ProveNonNegative(pool_.Sub(N(2), p), facts_));
}

TEST_F(ExprTable, OverflowIsOpaque) {
  const Expr huge = N(std::numeric_limits<int64_t>::max());
  const Expr least = N(std::numeric_limits<int64_t>::min());
  for (Expr e : {pool_.Add(huge, N(1)), pool_.Mul(huge, N(2)), pool_.Neg(least)}) {
    ASSERT_EQ(e->kind(), Kind::kApply);
    EXPECT_EQ(e->function(), "overflow");
    EXPECT_FALSE(pool_.ProveNonNegative(e, facts_));
  }
  EXPECT_NE(pool_.Add(huge, N(1)), pool_.Add(huge, N(1)));
  EXPECT_FALSE(
      pool_.FloorDiv(least, N(-1), facts_)->is_integer(std::numeric_limits<int64_t>::min()));
}

TEST_F(ExprTable, ComparisonsAreTightenedAndFolded) {
  const Expr twice = pool_.Mul(N(2), i0_);
  EXPECT_EQ(pool_.Le(twice, N(5), facts_), pool_.Le(i0_, N(2), facts_));
  EXPECT_TRUE(pool_.Eq(twice, N(5), facts_)->is_integer(0));
  EXPECT_EQ(pool_.Eq(i0_, i1_, facts_), pool_.Eq(i1_, i0_, facts_));
  EXPECT_TRUE(pool_.Lt(i1_, t_, facts_)->is_integer(1));
  EXPECT_TRUE(pool_.Le(t_, i1_, facts_)->is_integer(0));
  EXPECT_EQ(pool_.Not(pool_.Le(i0_, N(3), facts_)), pool_.Le(N(4), i0_, facts_));
  const Expr c = pool_.Lt(i0_, t_, facts_);
  EXPECT_EQ(pool_.Eq(pool_.Select(c, N(1), N(0)), N(0), facts_), pool_.Not(c));
}

TEST_F(ExprTable, FloatConstantsCompareAsNumbers) {
  const Expr nan = pool_.Float(std::nan("")), low = pool_.Float(-INFINITY);
  EXPECT_TRUE(pool_.Lt(low, N(0), facts_)->is_integer(1));
  EXPECT_TRUE(pool_.Eq(low, N(0), facts_)->is_integer(0));
  EXPECT_TRUE(pool_.Lt(nan, N(1), facts_)->is_integer(0));
  EXPECT_TRUE(pool_.Lt(N(1), nan, facts_)->is_integer(0));
  EXPECT_TRUE(pool_.Eq(nan, nan, facts_)->is_integer(0));
}

TEST_F(ExprTable, ConjunctionsAbsorbAndContradict) {
  const Expr p = pool_.Le(i0_, N(3), facts_), q = pool_.Le(i0_, N(5), facts_);
  const Expr r = pool_.Lt(i1_, s_, facts_);
  EXPECT_EQ(pool_.And(p, q), p);
  EXPECT_TRUE(pool_.And(p, pool_.Not(q))->is_integer(0));
  EXPECT_TRUE(pool_.Or(p, pool_.Not(p))->is_integer(1));
  EXPECT_EQ(pool_.And(pool_.And(p, r), p), pool_.And(r, p));
  EXPECT_EQ(pool_.Or(p, q), q);
}

TEST_F(ExprTable, SelectsOfDifferentSpellingsMeet) {
  const Expr p = pool_.Lt(i0_, t_, facts_), q = pool_.Lt(i1_, s_, facts_);
  const Expr x = pool_.Load(1, {i0_}), y = pool_.Load(2, {i0_});
  const Expr same = pool_.Eq(i0_, i1_, facts_);
  EXPECT_EQ(pool_.Select(pool_.Not(same), y, x), pool_.Select(same, x, y));
  EXPECT_EQ(pool_.Select(p, pool_.Select(q, x, y), y), pool_.Select(pool_.And(p, q), x, y));
  EXPECT_EQ(pool_.Select(p, x, pool_.Select(q, x, y)), pool_.Select(pool_.Or(p, q), x, y));
  const Expr wider = pool_.Lt(i0_, pool_.Add(t_, s_), facts_);
  EXPECT_EQ(pool_.Select(p, pool_.Select(wider, x, N(7)), y), pool_.Select(p, x, y));
}

TEST_F(ExprTable, RowsCutOffTwiceAreCutOffOnce) {
  const Expr p = pool_.Dim("P"), s = pool_.Dim("S"), window = N(15), none = N(0);
  const auto cut = [&](Expr rows) { return pool_.Max(pool_.Sub(rows, window), none, Facts{}); };
  const Expr of_past = cut(p), all = pool_.Add(p, s);
  const Expr of_rest = cut(pool_.Sub(all, of_past));
  EXPECT_EQ(pool_.Add(of_past, of_rest), cut(all));
  EXPECT_EQ(pool_.Add(of_rest, of_past), cut(all));
  EXPECT_EQ(pool_.Add(pool_.Add(pool_.Index(0), of_past), of_rest),
            pool_.Add(pool_.Index(0), cut(all)));
  EXPECT_EQ(pool_.Sub(pool_.Sub(all, of_past), of_rest), pool_.Sub(all, cut(all)));
  // Where the first part is not known to be the shorter one, the sum stays.
  const Expr other = cut(pool_.Sub(pool_.Dim("Q"), of_past));
  EXPECT_NE(pool_.Add(of_past, other), cut(pool_.Dim("Q")));
}

TEST_F(ExprTable, ClampedEndsAreTheirStartsAndTheLength) {
  const Expr start = pool_.Load(1, {}), most = pool_.Sub(N(32), s_);
  const auto smaller = [&](Expr x, Expr y) { return pool_.Select(pool_.Le(x, y, facts_), x, y); };
  const Expr from = smaller(start, most), to = smaller(pool_.Add(start, s_), N(32));
  EXPECT_EQ(pool_.Sub(to, from), s_);
  EXPECT_EQ(pool_.Add(pool_.Sub(i0_, from), to), pool_.Add(i0_, s_));
  const Expr other = smaller(start, N(5));
  EXPECT_NE(pool_.Sub(to, other), s_);
  // The coefficients count.
  EXPECT_EQ(pool_.Sub(pool_.Sub(pool_.Add(to, to), from), to), s_);
}

TEST_F(ExprTable, HardProofsEnd) {
  Expr sum = N(-1);
  for (int k = 0; k < 40; ++k) {
    const Expr c = pool_.Eq(pool_.Load(k, {}), N(0), facts_);
    sum = pool_.Add(sum, pool_.Select(c, pool_.Load(100 + k, {}), pool_.Load(200 + k, {})));
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(pool_.ProveNonNegative(sum, facts_));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST_F(ExprTable, LinearInLooksInsideNothing) {
  const Expr e = pool_.Add(pool_.Mul(N(3), i0_), t_);
  const auto linear = LinearIn(pool_, e, i0_);
  ASSERT_TRUE(linear.has_value());
  EXPECT_EQ(linear->coefficient, 3);
  EXPECT_EQ(linear->rest, t_);
  EXPECT_FALSE(LinearIn(pool_, pool_.Add(i0_, pool_.Load(1, {i0_})), i0_).has_value());
  EXPECT_FALSE(LinearIn(pool_, pool_.Mul(i0_, i0_), i0_).has_value());
}

TEST_F(ExprTable, DivisionsTowardsZeroFloorOnceTheirOperandsAreKnown) {
  const Expr x = pool_.Load(1, {}), e = pool_.Apply("div", {pool_.Add(x, i1_), N(6)});
  Pool::Substitution s;
  s.atoms[x] = t_;
  EXPECT_EQ(pool_.Substitute(e, s, facts_), pool_.FloorDiv(pool_.Add(t_, i1_), N(6), facts_));
  s.atoms[x] = pool_.Neg(t_);
  EXPECT_EQ(pool_.Substitute(e, s, facts_), pool_.Apply("div", {pool_.Sub(i1_, t_), N(6)}));
}

TEST_F(ExprTable, Text) {
  const Expr p = pool_.Dim("P", 0), e = pool_.Select(pool_.Lt(i2_, p, Facts{}), i0_, i1_);
  EXPECT_EQ(ToString(e), "i2 < P ? i0 : i1");
  EXPECT_EQ(ToString(pool_.Le(i1_, pool_.Add(p, i2_), Facts{})), "i1 <= i2 + P");
}

TEST_F(ExprTable, TextOfMinimaAndMaxima) {
  const Expr x = pool_.Load(1, {}), zero = N(0), most = N(31);
  const auto smaller = [&](Expr a, Expr b) { return pool_.Select(pool_.Le(a, b, Facts{}), a, b); };
  const auto larger = [&](Expr a, Expr b) { return pool_.Select(pool_.Lt(b, a, Facts{}), a, b); };
  EXPECT_EQ(ToString(smaller(t_, x)), "min(T, %1)");
  EXPECT_EQ(ToString(larger(zero, x)), "max(%1, 0)");
  EXPECT_EQ(ToString(larger(pool_.Sub(t_, N(6)), x)), "max(T - 6, %1)");
  EXPECT_EQ(ToString(pool_.Mul(N(2), smaller(t_, x))), "2*min(T, %1)");
  EXPECT_EQ(ToString(smaller(larger(x, zero), most)), "clamp(%1, 0, 31)");
  EXPECT_EQ(ToString(larger(smaller(x, most), zero)), "clamp(%1, 0, 31)");
  // A condition of nested clamps that is simplified: x <= 0 ? 0 : min(x, 31).
  const Expr within = pool_.Select(pool_.Le(x, zero, Facts{}), zero, smaller(x, most));
  EXPECT_EQ(ToString(within), "clamp(%1, 0, 31)");
  const Expr otherwise = pool_.Select(pool_.Le(x, zero, Facts{}), N(40), smaller(x, most));
  EXPECT_EQ(ToString(otherwise), "%1 <= 0 ? 40 : min(%1, 31)");
  EXPECT_EQ(ToString(pool_.Select(pool_.Le(x, N(2), Facts{}), x, most)), "%1 <= 2 ? %1 : 31");
}

TEST_F(ExprTable, TextOfConditionalOperandsIsInParentheses) {
  const Expr p = pool_.Dim("P", 0), e = pool_.Select(pool_.Lt(i2_, p, Facts{}), i0_, i1_);
  EXPECT_EQ(ToString(pool_.Add(e, p)), "P + (i2 < P ? i0 : i1)");
  const Expr zero = N(0),
             either = pool_.Select(pool_.Lt(i2_, p, Facts{}), pool_.Eq(i0_, zero, Facts{}),
                                   pool_.Eq(i1_, zero, Facts{}));
  EXPECT_EQ(ToString(pool_.And(pool_.Eq(t_, zero, Facts{}), either)),
            "(i2 < P ? i0 == 0 : i1 == 0) and T == 0");
}

}  // namespace
}  // namespace kvlift::sym
