#include "rewrite/recognise/rotations.h"

#include <optional>
#include <utility>

#include "sym/forms/reals.h"

namespace kvlift {
namespace {

using onnx::TensorProto;
using sym::Expr;
using sym::Facts;

class RotationFinder {
 public:
  RotationFinder(const Graph& graph, IsWidened is_widened)
      : graph_(graph), is_widened_(is_widened), forms_(graph), pool_(forms_.pool()) {}

  std::optional<Rotation> Find(NodeId n) {
    if (!graph_.Is(n, "Add")) return std::nullopt;
    const auto sums = graph_.inputs(n);
    for (const auto& [left, right] : {std::pair(sums[0], sums[1]), std::pair(sums[1], sums[0])}) {
      const NodeId straight = ProductAt(left), turned = ProductAt(right);
      if (straight == kNoNode || turned == kNoNode) continue;
      for (int k = 0; k < 2; ++k) {
        for (int j = 0; j < 2; ++j) {
          Rotation r{n, {straight, k}, {straight, 1 - k}, {turned, 1 - j}};
          if (IsRotation(&r, graph_.inputs(turned)[j])) return r;
        }
      }
    }
    return std::nullopt;
  }

 private:
  NodeId ProductAt(ValueId v) const {
    const NodeId n = v == kNoValue ? kNoNode : graph_.producer(v);
    return n != kNoNode && graph_.Is(n, "Mul") ? n : kNoNode;
  }

  ValueId At(const NodeOperand& operand) const {
    return graph_.inputs(operand.node)[operand.index];
  }

  bool IsRotation(Rotation* r, ValueId turned) {
    const ValueId v = At(r->x);
    const sym::Form x = forms_.Of(v);
    if (!x.known_rank || x.shape.size() != 4 || forms_.ElementType(v) != TensorProto::FLOAT) {
      return false;
    }
    const Expr size = x.shape[3];
    if (size->kind() != sym::Kind::kInteger || size->value() < 2 || size->value() % 2 != 0) {
      return false;
    }
    r->half = size->value() / 2;
    const sym::Form of_turned = forms_.Of(turned);
    return of_turned.known_rank && of_turned.shape == x.shape && IsTable(r, r->cosine) &&
           IsTable(r, r->sine) && IsTurned(*r, turned);
  }

  // Returns true if the table is [B or 1, 1, S, D] and its second half on D repeats the first.
  bool IsTable(Rotation* r, const NodeOperand& table) {
    const sym::Form form = forms_.Of(At(table)), x = forms_.Of(At(r->x));
    if (!form.known_rank || form.shape.size() != 4 || !form.shape[1]->is_integer(1) ||
        form.shape[2] != x.shape[2] || form.shape[3] != x.shape[3]) {
      return false;
    }
    if (is_widened_(table)) {
      if (x.shape[0]->is_integer(1) && !is_widened_(r->x)) return false;
    } else if (form.shape[0] != x.shape[0] || is_widened_(r->x)) {
      if (!form.shape[0]->is_integer(1)) return false;
      r->one_for_all = true;
    }
    const Facts facts = FirstHalf(*r, form);
    const std::vector<Expr> at = Place(0), behind = Place(r->half);
    const Expr first = sym::RealElement(forms_, At(table), at, facts, {});
    return first != nullptr && first == sym::RealElement(forms_, At(table), behind, facts, {});
  }

  // Returns true if `turned` is -x[d + D/2] for d < D/2, and x[d - D/2] otherwise.
  bool IsTurned(const Rotation& r, ValueId turned) {
    const ValueId x = At(r.x);
    const sym::Form form = forms_.Of(x);
    const Facts facts = FirstHalf(r, form);
    const std::vector<Expr> at = Place(0), behind = Place(r.half);
    const std::vector<ValueId> stops = sym::SourcesOf(form.element);
    const auto element = [&](ValueId v, absl::Span<const Expr> place) {
      return sym::RealElement(forms_, v, place, facts, stops);
    };
    const Expr second = element(x, behind), first = element(x, at);
    return first != nullptr && second != nullptr && element(turned, at) == pool_.Neg(second) &&
           element(turned, behind) == first;
  }

  Facts FirstHalf(const Rotation& r, const sym::Form& form) {
    Facts facts{form.shape};
    facts.extents[3] = pool_.Integer(r.half);
    return facts;
  }

  std::vector<Expr> Place(int64_t offset) {
    return {pool_.Index(0), pool_.Index(1), pool_.Index(2),
            pool_.Add(pool_.Index(3), pool_.Integer(offset))};
  }

  const Graph& graph_;
  IsWidened is_widened_;
  sym::Forms forms_;
  sym::Pool& pool_;
};

}  // namespace

std::vector<Rotation> FindRotations(const Graph& graph, IsWidened is_widened) {
  RotationFinder finder(graph, is_widened);
  std::vector<Rotation> rotations;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    if (auto rotation = finder.Find(n)) rotations.push_back(*rotation);
  }
  return rotations;
}

}  // namespace kvlift
