#include <string>

#include "fmt/format.h"
#include "sym/expr/expr.h"
#include "sym/expr/pool_impl.h"

namespace kvlift::sym {
namespace {

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

  static bool Compound(Expr e) {
    return e->kind() == Kind::kSum || e->kind() == Kind::kSelect || e->kind() == Kind::kAnd ||
           e->kind() == Kind::kLe || e->kind() == Kind::kEq || e->kind() == Kind::kNot ||
           e->kind() == Kind::kFloorDiv;
  }

  std::string Factor(Expr e) const { return Compound(e) ? fmt::format("({})", Show(e)) : Show(e); }
  std::string Condition(Expr e) const {
    return e->kind() == Kind::kAnd || e->kind() == Kind::kSelect ? fmt::format("({})", Show(e))
                                                                 : Show(e);
  }

  // Prints a conditional in parentheses.
  std::string Branch(Expr e) const {
    return e->kind() == Kind::kSelect ? fmt::format("({})", Show(e)) : Show(e);
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
