#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "sym/expr/expr.h"
#include "sym/expr/pool_impl.h"

namespace kvlift::sym {
namespace {

struct Weighted {
  int64_t factor = 1;
  Expr e = nullptr;
};

// Returns the number that a sum is; nullopt if it is not the same number always.
std::optional<int64_t> NumberOf(std::initializer_list<Weighted> sum) {
  std::map<std::vector<Expr>, int64_t> coefficients;
  for (const Weighted& part : sum) {
    for (const Term& term : TermsOf(part.e)) {
      coefficients[{term.atoms.begin(), term.atoms.end()}] += part.factor * term.coefficient;
    }
  }
  int64_t number = 0;
  for (const auto& [atoms, coefficient] : coefficients) {
    if (atoms.empty()) number = coefficient;
    if (!atoms.empty() && coefficient != 0) return std::nullopt;
  }
  return number;
}

// Returns true if p <= 0 says x <= y or x < y.
bool IsBound(Expr p, Expr x, Expr y) {
  const std::optional<int64_t> rest = NumberOf({{1, p}, {-1, x}, {1, y}});
  return rest == 0 || rest == 1;
}

// The smaller or the larger of two integers.
struct Extreme {
  bool smaller = false;
  Expr x = nullptr, y = nullptr;
};

// Returns the extreme that p <= 0 ? x : y is if p compares x and y; nullopt otherwise.
std::optional<Extreme> ComparedExtreme(Expr e) {
  if (e->kind() != Kind::kSelect || e->args()[0]->kind() != Kind::kLe) return std::nullopt;
  const Expr p = e->args()[0]->args()[0], x = e->args()[1], y = e->args()[2];
  if (x->is_predicate() && y->is_predicate()) return std::nullopt;
  if (IsBound(p, x, y)) return Extreme{true, x, y};
  if (IsBound(p, y, x)) return Extreme{false, x, y};
  return std::nullopt;
}

// Returns the minimum or maximum that a conditional is; nullopt if it is another.
std::optional<Extreme> ExtremeOf(Expr e) {
  if (const auto extreme = ComparedExtreme(e)) return extreme;
  if (e->kind() != Kind::kSelect || e->args()[0]->kind() != Kind::kLe) return std::nullopt;
  const Expr p = e->args()[0]->args()[0], x = e->args()[1], y = e->args()[2];
  // z <= low ? low : min(z, high), with low <= high, or the same for a maximum, or with the
  // branches exchanged.
  for (const bool in_second : {true, false}) {
    const std::optional<Extreme> inner = ComparedExtreme(in_second ? y : x);
    const Expr bound = in_second ? x : y;
    if (!inner) continue;
    for (const auto& [z, other] : {std::pair(inner->x, inner->y), std::pair(inner->y, inner->x)}) {
      const bool below = inner->smaller == in_second;
      const auto room = NumberOf({{1, other}, {-1, bound}});
      const bool in_order = room && (inner->smaller ? *room >= 0 : *room <= 0);
      if (in_order && (below ? IsBound(p, z, bound) : IsBound(p, bound, z))) {
        return Extreme{!inner->smaller, x, y};
      }
    }
  }
  return std::nullopt;
}

class Printer {
 public:
  explicit Printer(const Graph* names) : names_(names) {}

  std::string Show(Expr e) const {
    switch (e->kind()) {
      case Kind::kInteger:
        return fmt::format("{}", e->value());
      case Kind::kFloat:
        return fmt::format("{}", e->float_value());
      case Kind::kIndex:
        return fmt::format("i{}", e->index());
      case Kind::kDim:
        return e->dim().name();
      case Kind::kLoad:
        if (e->args().empty()) return Name(e->source());
        return fmt::format("{}[{}]", Name(e->source()), List(e->args(), ", "));
      case Kind::kFloorDiv:
        return fmt::format("{} div {}", Factor(e->args()[0]), Factor(e->args()[1]));
      case Kind::kLe:
        return Comparison(e->args()[0], "<=");
      case Kind::kEq:
        return Comparison(e->args()[0], "==");
      case Kind::kNot:
        if (e->args()[0]->kind() == Kind::kEq) return Comparison(e->args()[0]->args()[0], "!=");
        return fmt::format("not {}", Factor(e->args()[0]));
      case Kind::kAnd:
        return Conjunction(e->args());
      case Kind::kSelect:
        if (const auto extreme = ExtremeOf(e)) return OfExtreme(*extreme);
        return fmt::format("{} ? {} : {}", Condition(e->args()[0]), Branch(e->args()[1]),
                           Branch(e->args()[2]));
      case Kind::kApply:
        return fmt::format("{}({})", e->function(), List(e->args(), ", "));
      case Kind::kSum:
        return Sum(e->terms(), 1);
    }
    return "?";
  }

 private:
  std::string Name(ValueId v) const {
    return names_ != nullptr ? names_->name(v) : fmt::format("%{}", v);
  }

  std::string List(absl::Span<const Expr> xs, std::string_view separator) const {
    std::string text;
    for (Expr x : xs) text += (text.empty() ? "" : std::string(separator)) + Show(x);
    return text;
  }

  std::string Conjunction(absl::Span<const Expr> xs) const {
    std::string text;
    for (Expr x : xs) text += (text.empty() ? "" : " and ") + Branch(x);
    return text;
  }

  // Prints numbers last, and a maximum of a minimum as clamp(x, low, high).
  std::string OfExtreme(const Extreme& extreme) const {
    const bool number = extreme.x->kind() == Kind::kInteger;
    const Expr first = number ? extreme.y : extreme.x, second = number ? extreme.x : extreme.y;
    const char* name = extreme.smaller ? "min" : "max";
    const auto inner = ExtremeOf(first);
    const bool clamps = inner && inner->smaller != extreme.smaller &&
                        second->kind() == Kind::kInteger &&
                        (inner->x->kind() == Kind::kInteger || inner->y->kind() == Kind::kInteger);
    if (!clamps) return fmt::format("{}({}, {})", name, Show(first), Show(second));
    const bool turned = inner->x->kind() == Kind::kInteger;
    const Expr z = turned ? inner->y : inner->x, bound = turned ? inner->x : inner->y;
    const int64_t low = std::min(bound->value(), second->value());
    const int64_t high = std::max(bound->value(), second->value());
    const bool in_order = (extreme.smaller ? bound : second)->value() == low;
    if (!in_order) return fmt::format("{}({}, {})", name, Show(first), Show(second));
    return fmt::format("clamp({}, {}, {})", Show(z), low, high);
  }

  static bool Compound(Expr e) {
    if (ExtremeOf(e)) return false;
    return e->kind() == Kind::kSum || e->kind() == Kind::kSelect || e->kind() == Kind::kAnd ||
           e->kind() == Kind::kLe || e->kind() == Kind::kEq || e->kind() == Kind::kNot ||
           e->kind() == Kind::kFloorDiv;
  }

  std::string Factor(Expr e) const { return Compound(e) ? fmt::format("({})", Show(e)) : Show(e); }
  std::string Condition(Expr e) const {
    return e->kind() == Kind::kAnd || (e->kind() == Kind::kSelect && !ExtremeOf(e))
               ? fmt::format("({})", Show(e))
               : Show(e);
  }

  // Prints a conditional in parentheses.
  std::string Branch(Expr e) const {
    const bool conditional = e->kind() == Kind::kSelect && !ExtremeOf(e);
    return conditional ? fmt::format("({})", Show(e)) : Show(e);
  }

  std::string Product(const Term& term, int64_t coefficient) const {
    std::string text;
    for (Expr a : term.atoms) text += (text.empty() ? "" : "*") + Factor(a);
    if (text.empty()) return fmt::format("{}", coefficient);
    return coefficient == 1 ? text : fmt::format("{}*{}", coefficient, text);
  }

  // Prints terms with atoms first and the constant last, with signs as operators.
  std::string Sum(absl::Span<const Term> terms, int64_t factor) const {
    std::string text;
    for (const bool constants : {false, true}) {
      for (const Term& term : terms) {
        if (term.atoms.empty() != constants) continue;
        const int64_t c = term.coefficient * factor;
        if (text.empty()) {
          text = c < 0 && !constants ? "-" + Product(term, -c) : Product(term, c);
        } else {
          text += c < 0 ? " - " + Product(term, -c) : " + " + Product(term, c);
        }
      }
    }
    return text.empty() ? "0" : text;
  }

  // Prints p <= 0 as left <= right with positive terms on both sides, and "x + 1 <= y" as "x < y".
  std::string Comparison(Expr p, std::string_view op) const {
    std::vector<Term> left, right;
    int64_t constant = 0;
    for (const Term& term : TermsOf(p)) {
      if (term.atoms.empty()) {
        constant = term.coefficient;
      } else {
        (term.coefficient > 0 ? left : right).push_back(term);
      }
    }
    std::string sign(op);
    if (op == "<=" && constant == 1) {
      sign = "<";
      constant = 0;
    }
    if (constant > 0) left.push_back({constant, {}});
    if (constant < 0) right.push_back({constant, {}});
    return fmt::format("{} {} {}", Sum(left, 1), sign, Sum(right, -1));
  }

  const Graph* names_;
};

}  // namespace

std::string ToString(Expr e, const Graph* names) { return Printer(names).Show(e); }

}  // namespace kvlift::sym
