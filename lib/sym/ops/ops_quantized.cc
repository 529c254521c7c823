// Operators of com.microsoft that compute with quantised numbers: only the shapes of the results
// are known. Source: ONNX Runtime, contrib operators.
#include "ir/operators/quantizer.h"
#include "sym/forms/forms_engine.h"

namespace kvlift::sym::internal {
namespace {

// Returns true if the operands at these places have known ranks.
bool AreKnown(OpContext& c, absl::Span<const int> places) {
  return std::all_of(places.begin(), places.end(), [&](int k) {
    return k < c.num_inputs() && c.has(k) && c.in(k).form.known_rank;
  });
}

}  // namespace

// QLinearAdd and QLinearMul: operands 0 and 3, each with a scale and a zero point behind it.
void OpQLinearBinary(OpContext& c) {
  constexpr int kRight = 3;
  if (!AreKnown(c, {0, kRight})) return;
  const Shape* const shapes[] = {&c.in(0).form.shape, &c.in(kRight).form.shape};
  if (auto out = c.Broadcast(shapes)) c.SetOpaque(0, *std::move(out));
}

void OpQLinearConcat(OpContext& c) {
  const std::vector<int> parts = RequantizedOperands(c.proto());
  if (parts.empty() || !AreKnown(c, parts)) return;
  Shape out = c.in(parts[0]).form.shape;
  const auto axis = NormalAxis(c.Int("axis", 0), static_cast<int>(out.size()));
  if (!axis) return;
  for (size_t k = 1; k < parts.size(); ++k) {
    if (c.in(parts[k]).rank() != static_cast<int>(out.size())) return;
    out[*axis] = c.pool().Add(out[*axis], c.in(parts[k]).dim(static_cast<int>(*axis)));
  }
  c.SetOpaque(0, std::move(out));
}

void OpQLinearWhere(OpContext& c) {
  const std::vector<int> parts = RequantizedOperands(c.proto());
  if (parts.empty() || !AreKnown(c, {0, parts[0], parts[1]})) return;
  const Shape* const shapes[] = {&c.in(0).form.shape, &c.in(parts[0]).form.shape,
                                 &c.in(parts[1]).form.shape};
  if (auto out = c.Broadcast(shapes)) c.SetOpaque(0, *std::move(out));
}

// QGemm: matrices 0 and 3, each with a scale and a zero point behind it.
void OpQGemm(OpContext& c) {
  constexpr int kRight = 3;
  if (!AreKnown(c, {0, kRight}) || c.in(0).rank() != 2 || c.in(kRight).rank() != 2) return;
  c.SetOpaque(0, {c.in(0).dim(c.Int("transA", 0) != 0 ? 1 : 0),
                  c.in(kRight).dim(c.Int("transB", 0) != 0 ? 0 : 1)});
}

}  // namespace kvlift::sym::internal
