// LIBS: sym
// Random expressions keep their value through normalisation, substitution and assumptions, and no
// proof is contradicted by enumeration. The reference evaluates its own syntax tree.
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "sym/expr/expr.h"

namespace kvlift::sym {
namespace {

struct Point {
  int64_t p, s, i0, i1;
};

int64_t FloorOf(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return a % b != 0 && (a % b < 0) != (b < 0) ? q - 1 : q;
}
int64_t ElementOf(int64_t at) { return (at * 37 + 11) % 7 - 3; }

enum class Op {
  kConstant,
  kI0,
  kI1,
  kP,
  kS,
  kLoad,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMod,
  kMin,
  kMax,
  kSelect,
  kLe,
  kLt,
  kEq,
  kNot,
  kAnd,
  kOr,
};

struct Tree {
  Op op;
  int64_t constant = 0;
  std::vector<Tree> args;
};

int64_t ValueOf(const Tree& t, const Point& x) {
  const auto arg = [&](int k) { return ValueOf(t.args[k], x); };
  switch (t.op) {
    case Op::kConstant:
      return t.constant;
    case Op::kI0:
      return x.i0;
    case Op::kI1:
      return x.i1;
    case Op::kP:
      return x.p;
    case Op::kS:
      return x.s;
    case Op::kLoad:
      return ElementOf(arg(0));
    case Op::kAdd:
      return arg(0) + arg(1);
    case Op::kSub:
      return arg(0) - arg(1);
    case Op::kMul:
      return arg(0) * arg(1);
    case Op::kDiv:
      return FloorOf(arg(0), arg(1));
    case Op::kMod:
      return arg(0) - arg(1) * FloorOf(arg(0), arg(1));
    case Op::kMin:
      return std::min(arg(0), arg(1));
    case Op::kMax:
      return std::max(arg(0), arg(1));
    case Op::kSelect:
      return arg(0) != 0 ? arg(1) : arg(2);
    case Op::kLe:
      return arg(0) <= arg(1);
    case Op::kLt:
      return arg(0) < arg(1);
    case Op::kEq:
      return arg(0) == arg(1);
    case Op::kNot:
      return arg(0) == 0;
    case Op::kAnd:
      return arg(0) != 0 && arg(1) != 0;
    case Op::kOr:
      return arg(0) != 0 || arg(1) != 0;
  }
  return 0;
}

Expr Build(Pool& pool, const Tree& t, const Facts& f) {
  std::vector<Expr> a;
  for (const Tree& arg : t.args) a.push_back(Build(pool, arg, f));
  switch (t.op) {
    case Op::kConstant:
      return pool.Integer(t.constant);
    case Op::kI0:
      return pool.Index(0);
    case Op::kI1:
      return pool.Index(1);
    case Op::kP:
      return pool.Dim("P", 0);
    case Op::kS:
      return pool.Dim("S", 1);
    case Op::kLoad:
      return pool.Load(7, a);
    case Op::kAdd:
      return pool.Add(a[0], a[1]);
    case Op::kSub:
      return pool.Sub(a[0], a[1]);
    case Op::kMul:
      return pool.Mul(a[0], a[1]);
    case Op::kDiv:
      return pool.FloorDiv(a[0], a[1], f);
    case Op::kMod:
      return pool.Mod(a[0], a[1], f);
    case Op::kMin:
      return pool.Min(a[0], a[1], f);
    case Op::kMax:
      return pool.Max(a[0], a[1], f);
    case Op::kSelect:
      return pool.Select(a[0], a[1], a[2]);
    case Op::kLe:
      return pool.Le(a[0], a[1], f);
    case Op::kLt:
      return pool.Lt(a[0], a[1], f);
    case Op::kEq:
      return pool.Eq(a[0], a[1], f);
    case Op::kNot:
      return pool.Not(a[0]);
    case Op::kAnd:
      return pool.And(a[0], a[1]);
    case Op::kOr:
      return pool.Or(a[0], a[1]);
  }
  return nullptr;
}

int64_t ValueOf(Expr e, const Point& x) {
  const auto arg = [&](int k) { return ValueOf(e->args()[k], x); };
  switch (e->kind()) {
    case Kind::kInteger:
      return e->value();
    case Kind::kIndex:
      return e->index() == 0 ? x.i0 : x.i1;
    case Kind::kDim:
      return e->dim().name() == "P" ? x.p : x.s;
    case Kind::kLoad:
      return ElementOf(arg(0));
    case Kind::kFloorDiv:
      return FloorOf(arg(0), arg(1));
    case Kind::kLe:
      return arg(0) <= 0;
    case Kind::kEq:
      return arg(0) == 0;
    case Kind::kNot:
      return arg(0) == 0;
    case Kind::kSelect:
      return arg(0) != 0 ? arg(1) : arg(2);
    case Kind::kAnd: {
      bool all = true;
      for (Expr part : e->args()) all = all && ValueOf(part, x) != 0;
      return all;
    }
    case Kind::kSum: {
      int64_t sum = 0;
      for (const Term& term : e->terms()) {
        int64_t product = term.coefficient;
        for (Expr atom : term.atoms) product *= ValueOf(atom, x);
        sum += product;
      }
      return sum;
    }
    default:
      ADD_FAILURE() << ToString(e);
      return 0;
  }
}

class Random {
 public:
  explicit Random(uint32_t seed) : rng_(seed) {}
  int Below(int n) { return static_cast<int>(rng_() % static_cast<uint32_t>(n)); }

  Tree Number(int depth) {
    if (depth == 0) {
      const Op op = static_cast<Op>(Below(5));
      return {op, op == Op::kConstant ? Below(9) - 4 : 0, {}};
    }
    switch (Below(10)) {
      case 0:
        return Number(0);
      case 1:
        return {Op::kSelect, 0, {Predicate(depth - 1), Number(depth - 1), Number(depth - 1)}};
      case 2:
        return {Op::kLoad, 0, {Number(0)}};
      case 3:
        return {Op::kMul, 0, {Number(0), Number(depth - 1)}};
      case 4:
        return {Op::kDiv, 0, {Number(depth - 1), Divisor()}};
      case 5:
        return {Op::kMod, 0, {Number(depth - 1), Divisor()}};
      case 6:
        return {Below(2) ? Op::kMin : Op::kMax, 0, {Number(depth - 1), Number(depth - 1)}};
      default:
        return {Below(2) ? Op::kAdd : Op::kSub, 0, {Number(depth - 1), Number(depth - 1)}};
    }
  }

  Tree Predicate(int depth) {
    if (depth > 0 && Below(2) == 0) {
      if (Below(3) == 0) return {Op::kNot, 0, {Predicate(depth - 1)}};
      return {Below(2) ? Op::kAnd : Op::kOr, 0, {Predicate(depth - 1), Predicate(depth - 1)}};
    }
    const Op op = static_cast<Op>(static_cast<int>(Op::kLe) + Below(3));
    return {op, 0, {Number(depth > 1 ? depth - 1 : 0), Number(0)}};
  }

 private:
  Tree Divisor() {
    const Tree s{Op::kS, 0, {}};
    if (Below(3) == 0) return s;
    if (Below(3) == 0) return {Op::kAdd, 0, {{Op::kP, 0, {}}, s}};
    const int c = Below(4) + 1;
    return {Op::kConstant, Below(5) == 0 ? -c : c, {}};
  }

  std::mt19937 rng_;
};

// All points with i0 < P + S and i1 < S.
std::vector<Point> AllPoints() {
  std::vector<Point> all;
  for (int64_t p = 0; p <= 3; ++p) {
    for (int64_t s = 1; s <= 3; ++s) {
      for (int64_t i0 = 0; i0 < p + s; ++i0) {
        for (int64_t i1 = 0; i1 < s; ++i1) all.push_back({p, s, i0, i1});
      }
    }
  }
  return all;
}

class ExprProperty : public ::testing::TestWithParam<int> {
 protected:
  Pool pool_;
  Facts facts_{{pool_.Add(pool_.Dim("P", 0), pool_.Dim("S", 1)), pool_.Dim("S", 1)}};
  const std::vector<Point> points_ = AllPoints();
};

TEST_P(ExprProperty, NormalFormKeepsTheValue) {
  Random random(static_cast<uint32_t>(GetParam()));
  for (int n = 0; n < 250; ++n) {
    const Tree tree = random.Number(1 + n % 4);
    const Expr e = Build(pool_, tree, facts_);
    for (const Point& x : points_) {
      ASSERT_EQ(ValueOf(e, x), ValueOf(tree, x))
          << ToString(e) << " at " << x.p << ' ' << x.s << ' ' << x.i0 << ' ' << x.i1;
    }
  }
}

TEST_P(ExprProperty, ProofsAreNotContradicted) {
  Random random(static_cast<uint32_t>(1000 + GetParam()));
  for (int n = 0; n < 250; ++n) {
    const Tree number = random.Number(1 + n % 3), predicate = random.Predicate(1 + n % 3);
    const bool proved = pool_.ProveNonNegative(Build(pool_, number, facts_), facts_);
    // Without facts nothing is decided on the way: the proof has it all to do.
    const Expr p = Build(pool_, predicate, Facts{});
    const Truth truth = pool_.Prove(p, facts_);
    for (const Point& x : points_) {
      if (proved) {
        ASSERT_GE(ValueOf(number, x), 0);
      }
      if (truth == Truth::kUnknown) continue;
      ASSERT_EQ(ValueOf(predicate, x) != 0, truth == Truth::kYes) << ToString(p);
    }
  }
}

// P <= 4 - S and S <= 3: proofs are about these only, and there are more of them.
TEST_P(ExprProperty, ProofsUnderBoundsAreNotContradicted) {
  Pool bounded;
  const Expr p = bounded.Dim("P", 0), s = bounded.Dim("S", 1);
  const Facts facts{{bounded.Add(p, s), s}};
  bounded.Bound(sym::DimSymbol::Declared("S"), bounded.Integer(3));
  bounded.Bound(sym::DimSymbol::Declared("P"), bounded.Sub(bounded.Integer(4), s));
  Random random(static_cast<uint32_t>(4000 + GetParam()));
  int more = 0;
  for (int n = 0; n < 500; ++n) {
    const Tree tree = random.Number(1 + n % 3);
    const bool proved = bounded.ProveNonNegative(Build(bounded, tree, facts), facts);
    more += proved && !pool_.ProveNonNegative(Build(pool_, tree, facts_), facts_) ? 1 : 0;
    for (const Point& x : points_) {
      if (proved && x.p + x.s <= 4) {
        ASSERT_GE(ValueOf(tree, x), 0);
      }
    }
  }
  EXPECT_GE(more, 2);
}

TEST_P(ExprProperty, SubstitutionIsEvaluationElsewhere) {
  Random random(static_cast<uint32_t>(2000 + GetParam()));
  Pool::Substitution s;
  s.indices = {pool_.Add(pool_.Index(1), pool_.Dim("P", 0)), nullptr};
  for (int n = 0; n < 250; ++n) {
    const Tree tree = random.Number(1 + n % 4);
    const Expr e = pool_.Substitute(Build(pool_, tree, facts_), s, facts_);
    EXPECT_FALSE(ContainsIndex(e, 0));
    for (const Point& x : points_) {
      ASSERT_EQ(ValueOf(e, x), ValueOf(tree, {x.p, x.s, x.i1 + x.p, x.i1})) << ToString(e);
    }
  }
}

TEST_P(ExprProperty, AssumptionsHoldWhereTheConditionDoes) {
  Random random(static_cast<uint32_t>(3000 + GetParam()));
  for (int n = 0; n < 250; ++n) {
    const Tree tree = random.Number(1 + n % 4), condition = random.Predicate(2);
    const Expr e = Build(pool_, tree, facts_), c = Build(pool_, condition, facts_);
    for (const bool truth : {true, false}) {
      const Expr under = pool_.Assume(e, c, truth, facts_);
      for (const Point& x : points_) {
        if ((ValueOf(condition, x) != 0) != truth) continue;
        ASSERT_EQ(ValueOf(under, x), ValueOf(tree, x)) << ToString(under) << " if " << ToString(c);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ExprProperty, ::testing::Range(1, 9));

}  // namespace
}  // namespace kvlift::sym
