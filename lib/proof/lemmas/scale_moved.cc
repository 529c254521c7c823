#include "proof/lemmas/scale_moved.h"

#include <algorithm>
#include <cmath>

#include "ir/types.h"
#include "proof/graphs/constant_numbers.h"
#include "sym/forms/keeps_value.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

bool CanBeMoved(double number) { return std::isfinite(number) && number != 0; }

// The largest factor between products of a type. Its range ends at 2^16, 2^128 or 2^1024.
double LargestMove(int32_t type) {
  return type == TensorProto::DOUBLE ? 0x1p256 : type == TensorProto::FLOAT ? 0x1p32 : 0x1p8;
}

}  // namespace

std::optional<Factor> ReadFactor(sym::Forms& forms, NodeId node) {
  const Graph& graph = forms.graph();
  const bool divides = graph.Is(node, "Div");
  if (!divides && !graph.Is(node, "Mul")) return std::nullopt;
  if (!IsFloatType(forms.ElementType(graph.outputs(node)[0]))) return std::nullopt;
  for (int k : {1, 0}) {
    const auto number = NumberOf(forms, graph.inputs(node)[k]);
    if (!number || (divides && k == 0)) continue;
    const double factor = divides ? 1 / *number : *number;
    if (!CanBeMoved(*number) || !CanBeMoved(factor)) return std::nullopt;
    return Factor{graph.inputs(node)[1 - k], factor};
  }
  return std::nullopt;
}

bool IsScale(double s) { return std::isfinite(s) && s > 0; }

FactorRange RangeOfChain(absl::Span<const Multiplication> last_to_first) {
  FactorRange range;
  double so_far = 1;
  for (auto step = last_to_first.rbegin(); step != last_to_first.rend(); ++step) {
    so_far *= std::abs(step->factor);
    range.types.insert(step->type);
    range.least = std::min(range.least, so_far);
    range.largest = std::max(range.largest, so_far);
  }
  return range;
}

bool AreNear(const ProductScale& mine, const ProductScale& theirs) {
  const double most = std::min(LargestMove(mine.type), LargestMove(theirs.type));
  const auto near = [](double a, double b, double limit) {
    const double moved = std::abs(a / b);
    return moved >= 1 / limit && moved <= limit;
  };
  const auto alike = [&](const FactorRange& a, const FactorRange& b) {
    double limit = most;
    for (const auto* types : {&a.types, &b.types}) {
      for (int32_t type : *types) limit = std::min(limit, LargestMove(type));
    }
    return near(a.least, b.least, limit) && near(a.largest, b.largest, limit);
  };
  return near(mine.plain, theirs.plain, most) && near(mine.scaled, theirs.scaled, most) &&
         alike(mine.query, theirs.query) && alike(mine.key, theirs.key) &&
         alike(mine.scores, theirs.scores) && alike(mine.capped, theirs.capped);
}

Assumption ProductsAreFinite() {
  return {AssumptionKind::kFinite, "numbers",
          "queries, keys, values and their products are finite numbers of their type, hidden keys "
          "included, and nothing is divided by zero, whose sign may be another one",
          AssumptionSource::kHost};
}

double ScaleOfText(double scale, int32_t type) {
  const double root = sym::RoundTo(type, std::sqrt(scale));
  return root * root;
}

namespace {

// Returns half the distance of neighbouring numbers near 1, at least that of float32.
double RoundingOf(int32_t type) {
  if (type == onnx::TensorProto::FLOAT16) return 0x1p-11;
  return type == onnx::TensorProto::BFLOAT16 ? 0x1p-8 : 0x1p-24;
}

}  // namespace

bool AreOneScale(double mine, double theirs, int32_t type) {
  return IsScale(mine) && IsScale(theirs) &&
         std::abs(mine - theirs) <= 2 * RoundingOf(type) * theirs;
}

bool AreOtherScales(double mine, double theirs, int32_t type) {
  constexpr double kManyRoundings = 16;
  if (!std::isfinite(mine) || !std::isfinite(theirs)) return mine != theirs;
  return !(std::abs(mine - theirs) <= kManyRoundings * RoundingOf(type) * std::abs(theirs));
}

}  // namespace kvlift
