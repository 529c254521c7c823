#include "sym/ops/apply_elementwise.h"

#include <utility>
#include <vector>

namespace kvlift::sym::internal {

void Elementwise(OpContext& c, int inputs, const Leaf& leaf) {
  if (!c.Known(inputs)) return;
  std::vector<const Shape*> shapes;
  shapes.reserve(static_cast<size_t>(inputs));
  for (int k = 0; k < inputs; ++k) shapes.push_back(&c.in(k).form.shape);
  auto out = c.Broadcast(shapes);
  if (!out) return;
  c.Set(0, *std::move(out), [&](Indices ix, const Facts& facts) -> Expr {
    std::vector<Expr> xs;
    for (int k = 0; k < inputs; ++k) {
      xs.push_back(c.AtBroadcast(c.in(k), ix, facts));
      if (xs.back() == nullptr) return nullptr;
    }
    return c.engine().Lift(std::move(xs),
                           [&](absl::Span<const Expr> leaves) { return leaf(leaves, facts); });
  });
}

bool IsWideInteger(int32_t type) {
  return type == onnx::TensorProto::INT64 || type == onnx::TensorProto::INT32;
}

bool IsTruth(Expr e) { return e->is_predicate() && e->kind() != Kind::kInteger; }

}  // namespace kvlift::sym::internal
