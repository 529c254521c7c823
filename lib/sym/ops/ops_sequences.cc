// Tensors that a model puts into a sequence and takes out again at constant places.
#include <algorithm>
#include <optional>
#include <vector>

#include "sym/forms/forms_engine.h"

namespace kvlift::sym::internal {
namespace {

// The part [start, start + length) of an axis.
struct Part {
  int axis = 0;
  Expr start = nullptr, length = nullptr;
};

// Returns the part that is entry `position` of what a SplitToSequence of x gives; nullopt if that
// is not known. `sizes`: its operand `split`.
std::optional<Part> PartAt(Pool& pool, const Value& x, int axis, const Value& sizes,
                           const std::optional<std::vector<int64_t>>& numbers, int64_t position) {
  if (!numbers) return std::nullopt;
  if (sizes.rank() == 1) {
    const auto count = static_cast<int64_t>(numbers->size());
    if (position < 0) position += count;
    if (position < 0 || position >= count) return std::nullopt;
    int64_t start = 0;
    for (int64_t k = 0; k < position; ++k) start += (*numbers)[static_cast<size_t>(k)];
    return Part{axis, pool.Integer(start), pool.Integer((*numbers)[static_cast<size_t>(position)])};
  }
  // All parts but the last have one size.
  const Expr extent = x.dim(axis);
  if (numbers->size() != 1 || (*numbers)[0] <= 0 || extent->kind() != Kind::kInteger) {
    return std::nullopt;
  }
  const int64_t size = (*numbers)[0], count = (extent->value() + size - 1) / size;
  if (position < 0) position += count;
  if (position < 0 || position >= count) return std::nullopt;
  const int64_t start = position * size;
  return Part{axis, pool.Integer(start), pool.Integer(std::min(size, extent->value() - start))};
}

}  // namespace

void OpSequenceAt(OpContext& c) {
  const Graph& graph = c.engine().graph();
  const NodeId split = graph.producer(c.input(0));
  const auto position = c.ConstantInts(1);
  if (split == kNoNode || !graph.Is(split, "SplitToSequence") || !position ||
      position->size() != 1) {
    return;
  }
  OpContext of_split(c.engine(), split);
  if (!of_split.has(1) || !of_split.Known(2)) return;
  const Value& x = of_split.in(0);
  const int64_t given = of_split.Int("axis", 0), axis = given < 0 ? given + x.rank() : given;
  if (axis < 0 || axis >= x.rank()) return;
  const auto part = PartAt(c.pool(), x, static_cast<int>(axis), of_split.in(1),
                           of_split.ConstantInts(1), (*position)[0]);
  if (!part) return;
  Shape out = x.form.shape;
  out[axis] = part->length;
  c.Set(0, std::move(out), [&](Indices ix, const Facts& facts) {
    std::vector<Expr> own(ix.begin(), ix.end());
    own[axis] = c.pool().Add(own[axis], part->start);
    return c.engine().At(x, own, facts);
  });
}

}  // namespace kvlift::sym::internal
