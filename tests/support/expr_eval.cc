#include "support/expr_eval.h"

#include <cmath>

namespace kvlift::testing {
namespace {

using sym::Expr;
using sym::Kind;

std::optional<double> Load(Expr e, const Environment& environment) {
  std::vector<int64_t> at;
  for (Expr arg : e->args()) {
    const auto x = Evaluate(arg, environment);
    if (!x || *x != std::floor(*x)) return std::nullopt;
    at.push_back(static_cast<int64_t>(*x));
  }
  return environment.load(e->source(), at);
}

std::optional<double> Sum(Expr e, const Environment& environment) {
  double sum = 0;
  for (const sym::Term& term : e->terms()) {
    double product = static_cast<double>(term.coefficient);
    for (Expr atom : term.atoms) {
      const auto x = Evaluate(atom, environment);
      if (!x) return std::nullopt;
      product *= *x;
    }
    sum += product;
  }
  return sum;
}

std::optional<double> Apply(Expr e, const Environment& environment) {
  std::vector<double> x;
  for (Expr arg : e->args()) {
    const auto value = Evaluate(arg, environment);
    if (!value) return std::nullopt;
    x.push_back(*value);
  }
  if (e->function() == "trunc" && x.size() == 1) return std::trunc(x[0]);
  if (e->function() == "mul" && x.size() == 2) return x[0] * x[1];
  if (e->function() == "div" && x.size() == 2 && x[1] != 0) return std::trunc(x[0] / x[1]);
  return std::nullopt;
}

}  // namespace

std::optional<double> Evaluate(Expr e, const Environment& environment) {
  const auto arg = [&](int k) { return Evaluate(e->args()[k], environment); };
  switch (e->kind()) {
    case Kind::kInteger:
      return static_cast<double>(e->value());
    case Kind::kFloat:
      return e->float_value();
    case Kind::kIndex:
      if (e->index() >= static_cast<int>(environment.indices.size())) return std::nullopt;
      return static_cast<double>(environment.indices[e->index()]);
    case Kind::kDim: {
      const auto it = environment.dims.find(e->dim().name());
      if (it == environment.dims.end()) return std::nullopt;
      return static_cast<double>(it->second);
    }
    case Kind::kLoad:
      return Load(e, environment);
    case Kind::kFloorDiv: {
      const auto a = arg(0), b = arg(1);
      if (!a || !b || *b == 0) return std::nullopt;
      return std::floor(*a / *b);
    }
    case Kind::kLe:
    case Kind::kEq: {
      const auto x = arg(0);
      if (!x) return std::nullopt;
      return e->kind() == Kind::kLe ? *x <= 0 : *x == 0;
    }
    case Kind::kNot: {
      const auto x = arg(0);
      if (!x) return std::nullopt;
      return *x == 0;
    }
    case Kind::kAnd: {
      // A false operand decides the result, even if others have no value.
      bool known = true;
      for (Expr operand : e->args()) {
        const auto x = Evaluate(operand, environment);
        if (x && *x == 0) return 0;
        known = known && x.has_value();
      }
      if (!known) return std::nullopt;
      return 1;
    }
    case Kind::kSelect: {
      const auto condition = arg(0);
      if (!condition) return std::nullopt;
      return arg(*condition != 0 ? 1 : 2);
    }
    case Kind::kApply:
      return Apply(e, environment);
    case Kind::kSum:
      return Sum(e, environment);
  }
  return std::nullopt;
}

}  // namespace kvlift::testing
