#include "proof/correspondence/obligations.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Kind;

// Returns a quoted symbol of SMT-LIB 2. Quoted symbols may not contain bars or backslashes.
std::string Quoted(std::string_view kind, std::string_view name) {
  std::string text(kind);
  for (char c : name) {
    const bool plain = c >= ' ' && c < 127 && c != '|' && c != '\\';
    text += plain ? std::string(1, c) : fmt::format("%{:02x}", static_cast<unsigned char>(c));
  }
  return "|" + text + "|";
}

std::string Comment(std::string_view text) {
  std::string line = "; ";
  for (char c : text.substr(0, 2000)) line += c >= ' ' && c < 127 ? c : '?';
  return line + "\n";
}

std::string Literal(int64_t value) {
  if (value >= 0) return std::to_string(value);
  // The lowest int64 has no positive counterpart of its type.
  return fmt::format("(- {})", 0 - static_cast<uint64_t>(value));
}

std::string Call(const std::string& function, const std::vector<std::string>& args) {
  return args.empty() ? function : fmt::format("({} {})", function, fmt::join(args, " "));
}

// Writes one script. Symbols are declared when they first occur, and each node of an expression is
// defined once.
class Script {
 public:
  Script(sym::Pool& pool, const Graph* names) : pool_(pool), names_(names) {}

  // Returns a term of sort Int for an expression.
  std::string Number(Expr e) {
    if (const auto it = numbers_.find(e); it != numbers_.end()) return it->second;
    std::string text = Truth(e->kind()) ? fmt::format("(ite {} 1 0)", Claim(e)) : Body(e);
    std::string name = text;
    if (text.front() == '(') {
      name = fmt::format("n{}", numbers_.size());
      body_ += fmt::format("(define-fun {} () Int {})\n", name, text);
    }
    return numbers_[e] = name;
  }

  // Returns a term of sort Bool for a predicate.
  std::string Claim(Expr e) {
    if (const auto it = claims_.find(e); it != claims_.end()) return it->second;
    std::string text;
    const auto args = e->args();
    switch (e->kind()) {
      case Kind::kLe:
        text = fmt::format("(<= {} 0)", Number(args[0]));
        break;
      case Kind::kEq:
        text = fmt::format("(= {} 0)", Number(args[0]));
        break;
      case Kind::kNot:
        text = fmt::format("(not {})", Claim(args[0]));
        break;
      case Kind::kAnd: {
        std::vector<std::string> parts;
        for (Expr part : args) parts.push_back(Claim(part));
        text = Call("and", parts);
        break;
      }
      default:
        text = fmt::format("(not (= {} 0))", Number(e));
    }
    const std::string name = fmt::format("p{}", claims_.size());
    body_ += fmt::format("(define-fun {} () Bool {})\n", name, text);
    return claims_[e] = name;
  }

  void Assert(const std::string& claim) { body_ += fmt::format("(assert {})\n", claim); }
  void AddComment(std::string_view text) { body_ += Comment(text); }

  // Asserts the bounds of all indices and dimensions that occur in the script.
  void AssertBounds(const sym::Facts& facts) {
    // Extents may contain symbols that have not occurred yet.
    size_t seen = 0;
    while (seen < indices_.size()) {
      const int k = *std::next(indices_.begin(), static_cast<std::ptrdiff_t>(seen++));
      if (k < std::ssize(facts.extents) && facts.extents[k] != nullptr) Number(facts.extents[k]);
      if (grew_) {
        seen = 0;
        grew_ = false;
      }
    }
    for (int k : indices_) {
      Assert(fmt::format("(<= 0 i{})", k));
      if (k < std::ssize(facts.extents) && facts.extents[k] != nullptr) {
        Assert(fmt::format("(< i{} {})", k, Number(facts.extents[k])));
      }
    }
    for (const auto& [name, dim] : dims_) {
      const bool filled = pool_.ProveNonNegative(pool_.Sub(dim, pool_.Integer(1)), {});
      Assert(fmt::format("(<= {} {})", filled ? 1 : 0, name));
    }
  }

  std::string Text() const {
    std::string text =
        "(set-logic ALL)\n"
        "(declare-fun by_zero (Int) Int)\n"
        "(define-fun floor_div ((a Int) (b Int)) Int\n"
        "  (ite (> b 0) (div a b) (ite (< b 0) (div (- a) (- b)) (by_zero a))))\n";
    for (const auto& [name, arity] : functions_) {
      text += fmt::format("(declare-fun {} ({}) Int)\n", name,
                          fmt::join(std::vector<std::string>(arity, "Int"), " "));
    }
    return text + body_ + "(check-sat)\n";
  }

 private:
  static bool Truth(Kind kind) {
    return kind == Kind::kLe || kind == Kind::kEq || kind == Kind::kNot || kind == Kind::kAnd;
  }

  std::string Declared(std::string name, size_t arity) {
    functions_[name] = arity;
    return name;
  }

  std::vector<std::string> Numbers(absl::Span<const Expr> all) {
    std::vector<std::string> names;
    for (Expr e : all) names.push_back(Number(e));
    return names;
  }

  std::string Body(Expr e) {
    switch (e->kind()) {
      case Kind::kInteger:
        return Literal(e->value());
      case Kind::kFloat:
        return Declared(Quoted("float ", fmt::format("{}", e->float_value())), 0);
      case Kind::kIndex:
        grew_ = indices_.insert(e->index()).second || grew_;
        return Declared(fmt::format("i{}", e->index()), 0);
      case Kind::kDim: {
        std::string name =
            Declared(Quoted(e->dim().is_internal() ? "internal dim " : "dim ", e->dim().name()), 0);
        dims_[name] = e;
        return name;
      }
      case Kind::kLoad: {
        const std::string tensor = names_ == nullptr ? "" : names_->name(e->source());
        const std::string name =
            Quoted(fmt::format("tensor {} ", e->source()), tensor.substr(0, 200));
        return Call(Declared(name, e->args().size()), Numbers(e->args()));
      }
      case Kind::kFloorDiv:
        return fmt::format("(floor_div {} {})", Number(e->args()[0]), Number(e->args()[1]));
      case Kind::kSelect:
        return fmt::format("(ite {} {} {})", Claim(e->args()[0]), Number(e->args()[1]),
                           Number(e->args()[2]));
      case Kind::kApply: {
        const std::string name = Quoted(fmt::format("apply {} ", e->args().size()), e->function());
        return Call(Declared(name, e->args().size()), Numbers(e->args()));
      }
      case Kind::kSum: {
        std::vector<std::string> parts;
        for (const sym::Term& term : e->terms()) {
          std::vector<std::string> factors = Numbers(term.atoms);
          if (term.coefficient != 1 || factors.empty()) {
            factors.insert(factors.begin(), Literal(term.coefficient));
          }
          parts.push_back(factors.size() == 1 ? factors[0] : Call("*", factors));
        }
        return parts.size() == 1 ? parts[0] : Call("+", parts);
      }
      default:
        break;
    }
    return fmt::format("(ite {} 1 0)", Claim(e));
  }

  sym::Pool& pool_;
  const Graph* names_;
  std::string body_;
  absl::flat_hash_map<Expr, std::string> numbers_, claims_;
  std::map<std::string, size_t> functions_;  // by name: the number of arguments
  std::map<std::string, Expr> dims_;
  std::set<int> indices_;
  bool grew_ = false;
};

constexpr size_t kMostNotSeen = 8;  // the largest number kept for one fact

std::string ScriptOf(const EqualityClaim& claim, sym::Pool& pool, const Graph* names) {
  Script script(pool, names);
  script.AddComment(fmt::format("mine:   {}", sym::ToString(claim.mine, names)));
  script.AddComment(fmt::format("theirs: {}", sym::ToString(claim.theirs, names)));
  script.AddComment("What is known.");
  for (Expr hypothesis : {claim.known, claim.premise}) {
    if (hypothesis != nullptr && !hypothesis->is_integer(1)) {
      script.Assert(script.Claim(hypothesis));
    }
  }
  const std::string mine = script.Number(claim.mine), theirs = script.Number(claim.theirs);
  script.AssertBounds(claim.facts);
  script.AddComment("Truth values are numbers other than 0.");
  const bool truths = claim.mine->is_predicate() && claim.theirs->is_predicate();
  if (truths) {
    script.Assert(
        fmt::format("(not (= {} {}))", script.Claim(claim.mine), script.Claim(claim.theirs)));
  } else {
    script.Assert(fmt::format("(not (= {} {}))", mine, theirs));
  }
  return script.Text();
}

}  // namespace

void Obligations::Same(const EqualityClaim& claim, sym::Pool& pool, const Graph* names) {
  Add("same", ScriptOf(claim, pool, names));
}

void Obligations::NotSeen(const EqualityClaim& claim, sym::Pool& pool, const Graph* names) {
  // The latest equalities are those that the fact failed for.
  if (not_seen_.size() == kMostNotSeen) not_seen_.erase(not_seen_.begin());
  not_seen_.push_back(ScriptOf(claim, pool, names));
}

std::vector<std::string> Obligations::TakeNotSeen() { return std::exchange(not_seen_, {}); }

void Obligations::Open(const std::string& about, const std::string& fact,
                       const std::string& why_not, const std::vector<std::string>& not_seen) {
  const std::string head = Comment(fmt::format("{}: {}", about, fact)) +
                           Comment(fmt::format("This is not proved: {}", why_not));
  for (const std::string& script : not_seen) Add("open", head + script);
  if (!not_seen.empty()) return;
  const std::string claim = Quoted("fact ", fmt::format("{}: {}", about, fact));
  Add("open", head + fmt::format("(set-logic ALL)\n(declare-const {0} Bool)\n"
                                 "(assert (not {0}))\n(check-sat)\n",
                                 claim));
}

void Obligations::Add(const std::string& kind, std::string script) {
  if (!known_.insert(script).second) return;
  all_.push_back({fmt::format("{:04}-{}", all_.size(), kind), std::move(script)});
}

}  // namespace kvlift
