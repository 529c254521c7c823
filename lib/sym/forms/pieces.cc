#include "sym/forms/pieces.h"

#include <algorithm>
#include <optional>

namespace kvlift::sym::internal {
namespace {

class Joiner {
 public:
  Joiner(Engine& engine, Expr index, absl::Span<const Expr> ends, bool stacked, const Facts& facts)
      : engine_(engine),
        pool_(engine.pool()),
        index_(index),
        ends_(ends),
        stacked_(stacked),
        facts_(facts) {}

  Expr Run(const std::vector<Expr>& pieces) {
    if (const Expr one = Joined(pieces)) return one;
    if (const Expr select = BehindCondition(pieces)) return select;
    Expr result = pieces.back();
    for (size_t k = pieces.size() - 1; k-- > 0;) {
      result = engine_.Select(pool_.Lt(index_, ends_[k], facts_), pieces[k], result);
    }
    return result;
  }

 private:
  static std::vector<Expr> Arguments(const std::vector<Expr>& pieces, size_t k) {
    std::vector<Expr> result;
    for (Expr piece : pieces) result.push_back(piece->args()[k]);
    return result;
  }

  static bool AllAre(const std::vector<Expr>& pieces, Kind kind) {
    return std::all_of(pieces.begin(), pieces.end(), [&](Expr e) { return e->kind() == kind; });
  }

  // Returns one expression that equals each piece at its places; null if there is none.
  Expr Joined(const std::vector<Expr>& pieces) {
    const Expr first = pieces.front();
    if (std::all_of(pieces.begin(), pieces.end(), [&](Expr e) { return e == first; })) {
      return first;
    }
    if (!stacked_) return nullptr;
    if (const Expr e = Progression(pieces)) return e;
    if (AllAre(pieces, Kind::kLoad)) return JoinedLoad(pieces);
    if (!AllAre(pieces, Kind::kSelect)) return nullptr;
    const Expr c = Joined(Arguments(pieces, 0));
    const Expr a = c == nullptr ? nullptr : Joined(Arguments(pieces, 1));
    const Expr b = a == nullptr ? nullptr : Joined(Arguments(pieces, 2));
    return b == nullptr ? nullptr : engine_.Select(c, a, b);
  }

  Expr JoinedLoad(const std::vector<Expr>& pieces) {
    const Expr first = pieces.front();
    for (Expr piece : pieces) {
      if (piece->source() != first->source()) return nullptr;
      if (piece->args().size() != first->args().size()) return nullptr;
    }
    std::vector<Expr> args;
    for (size_t k = 0; k < first->args().size(); ++k) {
      args.push_back(Joined(Arguments(pieces, k)));
      if (args.back() == nullptr) return nullptr;
    }
    return pool_.Load(first->source(), args);
  }

  // Handles integer pieces a + k * d.
  Expr Progression(const std::vector<Expr>& pieces) {
    std::optional<int64_t> step;
    for (size_t k = 0; k < pieces.size(); ++k) {
      if (!engine_.IsIntegral(pieces[k])) return nullptr;
      if (k == 0) continue;
      const Expr d = pool_.Sub(pieces[k], pieces[k - 1]);
      if (d->kind() != Kind::kInteger || (step && *step != d->value())) return nullptr;
      step = d->value();
    }
    return pool_.Add(pieces.front(), pool_.Mul(pool_.Integer(*step), index_));
  }

  // Handles pieces that are selects on one condition and have a common expression in one of the
  // branches.
  Expr BehindCondition(const std::vector<Expr>& pieces) {
    if (!AllAre(pieces, Kind::kSelect)) return nullptr;
    const Expr condition = Joined(Arguments(pieces, 0));
    if (condition == nullptr) return nullptr;
    const auto yes = Arguments(pieces, 1), no = Arguments(pieces, 2);
    if (Joined(yes) == nullptr && Joined(no) == nullptr) return nullptr;
    return engine_.Select(condition, Run(yes), Run(no));
  }

  Engine& engine_;
  Pool& pool_;
  Expr index_;
  absl::Span<const Expr> ends_;
  bool stacked_;
  const Facts& facts_;
};

}  // namespace

Expr Piecewise(Engine& engine, Expr index, absl::Span<const Expr> ends,
               absl::Span<const Expr> pieces, bool stacked, const Facts& facts) {
  return Joiner(engine, index, ends, stacked, facts).Run({pieces.begin(), pieces.end()});
}

}  // namespace kvlift::sym::internal
