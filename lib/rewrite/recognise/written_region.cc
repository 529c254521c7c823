#include "rewrite/recognise/written_region.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace kvlift {
namespace {

using sym::Expr;
using sym::Kind;

// Reads conditions one behind the other: old unless a, and there old unless b.
std::optional<WrittenRegion> ReadNested(sym::Pool& pool, Expr e, Expr past) {
  if (e->kind() != Kind::kSelect) return std::nullopt;
  const Expr condition = e->args()[0];
  WrittenRegion region;
  Expr inside = nullptr;
  if (e->args()[2] == past) {
    region.conditions = sym::ConjunctsOf(condition);
    inside = e->args()[1];
  } else if (e->args()[1] == past) {
    region.conditions = sym::ConjunctsOf(pool.Not(condition));
    inside = e->args()[2];
  } else {
    return std::nullopt;
  }
  region.update = inside;
  if (const auto nested = ReadNested(pool, inside, past)) {
    region.conditions.insert(region.conditions.end(), nested->conditions.begin(),
                             nested->conditions.end());
    region.update = nested->update;
  }
  return region;
}

// The places of an axis that are left in a branch, [first, last]; last < 0: not known.
struct PlacesLeft {
  int64_t first = 0, last = -1;
};

// Reads an element that has a branch for each index of an axis of constant extent, such as that of
// layers. Each branch reads the past at its own index.
class CaseReader {
 public:
  CaseReader(sym::Pool& pool, Expr past, absl::Span<const Expr> shape) : pool_(pool), past_(past) {
    for (Expr extent : shape) {
      const bool number = extent->kind() == Kind::kInteger;
      places_.push_back({0, number ? extent->value() - 1 : -1});
    }
  }

  std::optional<WrittenRegion> Run(Expr e) {
    const auto read = Read(e, places_, 0);
    if (!read || read->update == nullptr || !read->reads_past) return std::nullopt;
    return WrittenRegion{sym::ConjunctsOf(read->written), read->update};
  }

 private:
  struct Case {
    Expr written = nullptr;  // where the element is not the past's
    Expr update = nullptr;   // the element there; null: nowhere
    bool reads_past = false;
  };

  std::optional<Case> Read(Expr e, const std::vector<PlacesLeft>& places, int depth) {
    constexpr int kMostNested = 64;
    if (depth > kMostNested) return std::nullopt;
    if (e->kind() != Kind::kSelect) {
      if (IsPast(e, places)) return Case{pool_.False(), nullptr, true};
      return Case{pool_.True(), e, false};
    }
    const Expr condition = e->args()[0];
    const auto yes = Read(e->args()[1], Within(places, condition, true), depth + 1);
    const auto no = yes ? Read(e->args()[2], Within(places, condition, false), depth + 1) : yes;
    if (!no) return std::nullopt;
    Case both;
    both.reads_past = yes->reads_past || no->reads_past;
    both.update = yes->update == nullptr  ? no->update
                  : no->update == nullptr ? yes->update
                                          : pool_.Select(condition, yes->update, no->update);
    if (yes->written == no->written) {
      both.written = yes->written;
    } else if (no->update == nullptr) {
      both.written = pool_.And(condition, yes->written);
    } else if (yes->update == nullptr) {
      both.written = pool_.And(pool_.Not(condition), no->written);
    } else {
      both.written = pool_.Or(pool_.And(condition, yes->written),
                              pool_.And(pool_.Not(condition), no->written));
    }
    return both;
  }

  // Returns true if e is the past's element at its own place, of which a branch may know an index.
  bool IsPast(Expr e, const std::vector<PlacesLeft>& places) const {
    if (e == past_) return true;
    if (e->kind() != Kind::kLoad || e->source() != past_->source() ||
        e->args().size() != past_->args().size()) {
      return false;
    }
    for (size_t k = 0; k < e->args().size(); ++k) {
      const bool pinned = places[k].first == places[k].last;
      if (e->args()[k] != past_->args()[k] &&
          !(pinned && e->args()[k]->is_integer(places[k].first))) {
        return false;
      }
    }
    return true;
  }

  std::vector<PlacesLeft> Within(std::vector<PlacesLeft> places, Expr condition, bool truth) {
    if (!truth) condition = pool_.Not(condition);
    for (Expr part : sym::ConjunctsOf(condition)) {
      const bool negated = part->kind() == Kind::kNot;
      const Expr bound = negated ? part->args()[0] : part;
      if (bound->kind() != Kind::kLe && bound->kind() != Kind::kEq) continue;
      for (size_t k = 0; k < places.size(); ++k) {
        if (places[k].last < 0) continue;
        const auto linear =
            sym::LinearIn(pool_, bound->args()[0], pool_.Index(static_cast<int>(k)));
        if (!linear || linear->rest->kind() != Kind::kInteger) continue;
        Narrow(bound->kind(), negated, linear->coefficient, linear->rest->value(), &places[k]);
      }
    }
    return places;
  }

  // Narrows the places by coefficient * i + rest <= 0, or == 0, or the negation.
  static void Narrow(Kind kind, bool negated, int64_t coefficient, int64_t rest,
                     PlacesLeft* places) {
    if (coefficient != 1 && coefficient != -1) return;
    const int64_t number = -rest * coefficient;  // of i where the sum is 0
    if (kind == Kind::kEq) {
      if (!negated) *places = {number, number};
      if (negated && number == places->first) ++places->first;
      if (negated && number == places->last) --places->last;
      return;
    }
    const bool at_most = (coefficient == 1) != negated;
    const int64_t own = negated ? number + (at_most ? -1 : 1) : number;
    if (at_most) {
      places->last = std::min(places->last, own);
    } else {
      places->first = std::max(places->first, own);
    }
  }

  sym::Pool& pool_;
  Expr past_;
  std::vector<PlacesLeft> places_;
};

}  // namespace

std::optional<WrittenRegion> ReadWrittenRegion(sym::Pool& pool, Expr e, Expr past,
                                               absl::Span<const Expr> shape) {
  const auto writes_past = [&](const WrittenRegion& region) {
    const std::vector<ValueId> sources = sym::SourcesOf(region.update);
    return std::find(sources.begin(), sources.end(), past->source()) != sources.end();
  };
  auto nested = ReadNested(pool, e, past);
  if (nested && !writes_past(*nested)) return nested;
  auto cases = CaseReader(pool, past, shape).Run(e);
  return cases && (!nested || !writes_past(*cases)) ? cases : nested;
}

}  // namespace kvlift
