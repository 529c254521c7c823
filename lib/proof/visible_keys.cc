#include "proof/visible_keys.h"

#include <cstdlib>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Kind;

constexpr int64_t kLargest = 5000;  // larger numbers are not tried as sizes
constexpr int kQuery = 2, kKey = 3;

std::set<int64_t> NumbersIn(Expr e) {
  std::set<int64_t> numbers;
  std::vector<Expr> open = {e};
  absl::flat_hash_set<Expr> seen = {e};
  while (!open.empty()) {
    const Expr x = open.back();
    open.pop_back();
    if (x->kind() == Kind::kInteger) numbers.insert(std::abs(x->value()));
    std::vector<Expr> inner(x->args().begin(), x->args().end());
    for (const sym::Term& term : x->terms()) {
      if (term.atoms.empty()) numbers.insert(std::abs(term.coefficient));
      inner.insert(inner.end(), term.atoms.begin(), term.atoms.end());
    }
    for (Expr y : inner) {
      if (seen.insert(y).second) open.push_back(y);
    }
  }
  return numbers;
}

std::vector<int64_t> PastsToTry(Expr visible) {
  std::set<int64_t> pasts = {0, 1, 2, 3, 7};
  for (int64_t number : NumbersIn(visible)) {
    if (number > kLargest) continue;
    for (int64_t past : {number - 2, number - 1, number, number + 1}) {
      if (past >= 0) pasts.insert(past);
    }
  }
  return {pasts.begin(), pasts.end()};
}

// One step with sizes as numbers.
class Step {
 public:
  Step(sym::Pool& pool, Expr visible, Expr past, Expr tokens, int64_t p, int64_t s)
      : pool_(pool), p_(p) {
    for (const auto& [size, number] : {std::pair{past, p}, {tokens, s}}) {
      if (size->kind() == Kind::kDim) at_.dims[size->dim()] = pool.Integer(number);
    }
    visible_ = pool.Substitute(visible, at_, {});
  }

  std::optional<int64_t> Number(Expr e) {
    const Expr x = pool_.Substitute(e, at_, {});
    return x->kind() == Kind::kInteger ? std::optional<int64_t>(x->value()) : std::nullopt;
  }

  // Returns nullopt if the predicate has no value.
  std::optional<bool> Sees(int64_t query, int64_t key) {
    sym::Pool::Substitution at;
    at.indices = {pool_.Integer(0), pool_.Integer(0), pool_.Integer(query), pool_.Integer(key)};
    const Expr seen = pool_.Substitute(visible_, at, {});
    if (seen->kind() != Kind::kInteger) return std::nullopt;
    return seen->value() != 0;
  }

  // Returns true if the query sees any of `keys` keys; nullopt if the predicate has no value. The
  // query's own key is tried first, because most masks show it.
  std::optional<bool> SeesSome(int64_t query, int64_t keys) {
    for (int64_t k = 0; k <= keys; ++k) {
      const int64_t key = k == 0 ? p_ + query : k - 1;
      if (key >= keys) continue;
      const std::optional<bool> sees = Sees(query, key);
      if (!sees || *sees) return sees;
    }
    return false;
  }

 private:
  sym::Pool& pool_;
  int64_t p_;
  sym::Pool::Substitution at_;
  Expr visible_;
};

// Tokens [begin, end) that are padding.
struct Padding {
  int64_t begin = 0, end = 0;
  bool Has(int64_t token) const { return token >= begin && token < end; }
};

// A query that sees no key among those that are tried.
struct Blind {
  int64_t past = 0, tokens = 0, query = 0;
};

// Queries of padding tokens are not tried. `visible` loads no elements. Returns nullopt if the
// predicate has no value for some query.
std::optional<Blind> FindBlind(sym::Pool& pool, Expr visible, Expr past, Expr tokens, Expr keys,
                               const Padding& padding) {
  for (int64_t p : PastsToTry(visible)) {
    for (int64_t s : {1, 2, 5}) {
      if (tokens->kind() == Kind::kInteger && tokens->value() != s) continue;
      Step step(pool, visible, past, tokens, p, s);
      const std::optional<int64_t> all = step.Number(keys);
      // If keys are the slots of a buffer, their number is not known.
      const int64_t most = all.value_or(p + s);
      if (most < p + s) continue;
      for (int64_t query : {int64_t{0}, s - 1}) {
        if (padding.Has(p + query)) continue;
        const std::optional<bool> sees = step.SeesSome(query, most);
        if (!sees) return std::nullopt;
        if (!*sees) return Blind{p, s, query};
      }
    }
  }
  return std::nullopt;
}

// Replaces elements by what they are in a step: those of a mask by `shown` and `hidden`, others by
// positions, since apart from masks a predicate reads positions. Null if there is no value for a
// mask and `visible` reads one.
struct MaskValues {
  int64_t shown = 1, hidden = 0;
  Padding padding;
};
Expr WithoutLoads(sym::Pool& pool, Expr visible, Expr past,
                  const std::optional<MaskValues>& values) {
  sym::Pool::Substitution elements;
  for (Expr load : sym::OuterLoadsOf(visible)) {
    if (!sym::ContainsIndex(load, kKey)) {
      const bool own = sym::ContainsIndex(load, kQuery);
      elements.atoms[load] = own ? pool.Add(past, pool.Index(kQuery)) : past;
      continue;
    }
    if (!values) return nullptr;
    const Expr key = load->args().back();
    const Expr in_front = pool.Lt(key, pool.Integer(values->padding.begin), {});
    const Expr behind = pool.Le(pool.Integer(values->padding.end), key, {});
    elements.atoms[load] = pool.Select(pool.Or(in_front, behind), pool.Integer(values->shown),
                                       pool.Integer(values->hidden));
  }
  return pool.Substitute(visible, elements, {});
}

}  // namespace

std::string QueryWithoutKeys(sym::Pool& pool, Expr visible, Expr past, Expr tokens, Expr keys) {
  if (visible == nullptr || tokens == nullptr || keys == nullptr) return "";
  if (past == nullptr) past = pool.Internal("past of a step");
  visible = WithoutLoads(pool, visible, past, std::nullopt);
  if (visible == nullptr) return "";
  const auto blind = FindBlind(pool, visible, past, tokens, keys, {});
  if (!blind) return "";
  return fmt::format("past {}, new {}, query {}", blind->past, blind->tokens, blind->query);
}

bool PaddingHidesAllKeys(sym::Pool& pool, Expr visible, Expr past, Expr tokens, Expr keys) {
  if (visible == nullptr || tokens == nullptr || keys == nullptr) return false;
  if (past == nullptr) past = pool.Internal("past of a step");
  if (WithoutLoads(pool, visible, past, std::nullopt) != nullptr) return false;
  const auto is_blind = [&](const MaskValues& values) {
    return FindBlind(pool, WithoutLoads(pool, visible, past, values), past, tokens, keys,
                     values.padding)
        .has_value();
  };
  for (const int64_t shown : {1, 0}) {
    // Where a mask that hides nothing leaves a query without keys, its elements say the opposite.
    if (is_blind({shown, 1 - shown, {}})) continue;
    for (const Padding& padding : {Padding{0, 2}, Padding{2, 5}, Padding{3, 5}}) {
      if (is_blind({shown, 1 - shown, padding})) return true;
    }
  }
  return false;
}

bool RoundsScoresAway(Expr added) {
  constexpr double kMost = 1000;  // half precision has steps of 0.5 there
  switch (added->kind()) {
    case Kind::kInteger:
      return static_cast<double>(added->value()) > kMost;
    case Kind::kFloat:
      return added->float_value() > kMost;
    case Kind::kSelect:
      return RoundsScoresAway(added->args()[1]) || RoundsScoresAway(added->args()[2]);
    default:
      return false;
  }
}

}  // namespace kvlift
