// Tensors that a model puts into a sequence and takes out again at constant places.
#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>

#include "absl/types/span.h"
#include "sym/forms/forms_engine.h"

namespace kvlift::sym::internal {
namespace {

// The elements [start, start + length) of an axis.
struct Part {
  int64_t start = 0, length = 0;
};

// Returns entry `position` of what a SplitToSequence gives along an axis of this extent; nullopt if
// that is not known. `sizes` holds the elements of its operand `split`, of rank `rank`: the length
// of each part, or one length for all parts but the last.
std::optional<Part> PartAt(Expr extent, int rank, absl::Span<const int64_t> sizes,
                           int64_t position) {
  const bool each = rank == 1;
  if (!each && (sizes.size() != 1 || sizes[0] <= 0 || extent->kind() != Kind::kInteger)) {
    return std::nullopt;
  }
  const int64_t count = each ? std::ssize(sizes) : (extent->value() + sizes[0] - 1) / sizes[0];
  if (position < 0) position += count;
  if (position < 0 || position >= count) return std::nullopt;
  if (each) {
    const auto before = sizes.first(static_cast<size_t>(position));
    return Part{std::accumulate(before.begin(), before.end(), int64_t{0}),
                sizes[static_cast<size_t>(position)]};
  }
  const int64_t start = position * sizes[0];
  return Part{start, std::min(sizes[0], extent->value() - start)};
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
  const auto axis = NormalAxis(of_split.Int("axis", 0), x.rank());
  const auto sizes = of_split.ConstantInts(1);
  if (!axis || !sizes) return;
  const auto part = PartAt(x.dim(*axis), of_split.in(1).rank(), *sizes, (*position)[0]);
  if (!part) return;
  c.SetPart(0, x, *axis, c.pool().Integer(part->start), c.pool().Integer(part->length));
}

}  // namespace kvlift::sym::internal
