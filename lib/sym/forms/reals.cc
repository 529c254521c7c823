#include "sym/forms/reals.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sym/forms/broadcast.h"

namespace kvlift::sym {
namespace {

constexpr int kMostLevels = 12;
constexpr int64_t kMostTerms = 4000;

class Reader {
 public:
  Reader(Forms& forms, const Facts& facts, absl::Span<const ValueId> stops)
      : forms_(forms), graph_(forms.graph()), pool_(forms.pool()), facts_(facts), stops_(stops) {}

  Expr At(ValueId v, absl::Span<const Expr> at, int levels) {
    if (v == kNoValue) return nullptr;
    const Expr e = BroadcastAt(forms_, v, at, facts_);
    return e == nullptr ? nullptr : Through(e, levels);
  }

 private:
  Expr Through(Expr e, int levels) {
    if (e->kind() == Kind::kSelect && levels > 0) {
      return pool_.Select(e->args()[0], Through(e->args()[1], levels - 1),
                          Through(e->args()[2], levels - 1));
    }
    if (e->kind() != Kind::kLoad || levels == 0) return e;
    if (std::find(stops_.begin(), stops_.end(), e->source()) != stops_.end()) return e;
    const std::pair<Expr, int> place(e, levels);
    if (const auto it = seen_.find(place); it != seen_.end()) return it->second;
    const Expr known = Computed(graph_.producer(e->source()), e->args(), levels - 1);
    return seen_[place] = known == nullptr || known->size() > kMostTerms ? e : known;
  }

  // Returns the element that a node's arithmetic computes; null if the operator is not looked
  // through.
  Expr Computed(NodeId n, absl::Span<const Expr> at, int levels) {
    // Integer arithmetic can overflow, and forms look through it anyway.
    if (n == kNoNode || !IsFloatType(forms_.ElementType(graph_.outputs(n)[0]))) return nullptr;
    const auto is = [&](std::string_view op) { return graph_.Is(n, op); };
    const bool binary = is("Add") || is("Sub") || is("Mul");
    if (!binary && !is("Neg") && !is("Cos") && !is("Sin")) return nullptr;
    std::vector<Expr> x;
    for (ValueId input : graph_.inputs(n)) {
      x.push_back(At(input, at, levels));
      if (x.back() == nullptr) return nullptr;
    }
    if (x.size() != (binary ? 2 : 1)) return nullptr;
    return pool_.Lift(x, [&](absl::Span<const Expr> y) {
      if (is("Add")) return pool_.Add(y[0], y[1]);
      if (is("Sub")) return pool_.Sub(y[0], y[1]);
      if (is("Mul")) return pool_.Mul(y[0], y[1]);
      if (is("Neg")) return pool_.Neg(y[0]);
      return pool_.Apply(graph_.node(n).op_type(), y);
    });
  }

  Forms& forms_;
  const Graph& graph_;
  Pool& pool_;
  const Facts& facts_;
  absl::Span<const ValueId> stops_;
  absl::flat_hash_map<std::pair<Expr, int>, Expr> seen_;  // by load and remaining levels
};

}  // namespace

Expr RealElement(Forms& forms, ValueId v, absl::Span<const Expr> at, const Facts& facts,
                 absl::Span<const ValueId> stops) {
  return Reader(forms, facts, stops).At(v, at, kMostLevels);
}

}  // namespace kvlift::sym
