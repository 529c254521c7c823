#include "verify/steps/half_bounds.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status.h"
#include "ir/types.h"
#include "verify/inputs/stimulus.h"
#include "verify/report/compare.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

// Factors of the measured error and of the epsilon. The converted model rounds at other places than
// the source, but about as often.
constexpr double kErrors = 8;
constexpr double kUnits = 8;

exec::Tensor Widened(const exec::Tensor& half) {
  exec::Tensor wide(TensorProto::FLOAT, half.shape());
  const auto numbers = wide.span<float>();
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<float>(exec::ElementAsDouble(half.view(), static_cast<int64_t>(i)));
  }
  return wide;
}

// Returns a tensor of doubles of this shape, all equal to `number`.
exec::Tensor Filled(const exec::Shape& shape, double number) {
  exec::Tensor tensor(TensorProto::DOUBLE, shape);
  std::fill(tensor.span<double>().begin(), tensor.span<double>().end(), number);
  return tensor;
}

// Returns float16 or bfloat16 if it represents every element exactly, as in an output that a model
// casts from it to float32; otherwise returns the tensor's own type.
int32_t TypeOfNumbers(const exec::View& view) {
  for (const int32_t type : {TensorProto::FLOAT16, TensorProto::BFLOAT16}) {
    const exec::Tensor one(type, {1});
    bool all = true;
    for (int64_t i = 0; all && i < view.size(); ++i) {
      const double number = exec::ElementAsDouble(view, i);
      StoreDouble(one.view(), 0, number);
      all = std::isnan(number) || exec::ElementAsDouble(one.view(), 0) == number;
    }
    if (all) return type;
  }
  return view.type;
}

double BoundOf(const exec::View& got, const exec::View& exact) {
  double error = 0, largest = 0;
  for (int64_t i = 0; i < got.size(); ++i) {
    const double a = exec::ElementAsDouble(got, i), b = exec::ElementAsDouble(exact, i);
    if (std::isfinite(b)) largest = std::max(largest, std::abs(b));
    if (std::isfinite(a) && std::isfinite(b)) error = std::max(error, std::abs(a - b));
  }
  return std::max(kErrors * error, kUnits * EpsilonOf(TypeOfNumbers(got)) * largest);
}

}  // namespace

absl::StatusOr<HalfBounds> HalfBounds::Create(const Model& source, const LiftedWeights& weights,
                                              const Decisions& decisions, int threads) {
  KV_ASSIGN_OR_RETURN(Model lifted, weights.WithFloat32(source));
  if (!decisions.empty()) {
    KV_ASSIGN_OR_RETURN(lifted, decisions.Following(lifted));
  }
  KV_ASSIGN_OR_RETURN(Runner runner, Runner::Create(lifted.proto, lifted.base_dir, {},
                                                    exec::AliasMode::kOff, threads));
  return HalfBounds(std::move(runner), decisions);
}

OracleRun HalfBounds::Source(const exec::Feeds& feeds, const exec::Fetches& got,
                             const std::string& /*where*/) {
  exec::Feeds wide = decisions_.FeedsOf(got);
  for (const auto& [name, tensor] : feeds) {
    wide[name] = IsHalfType(tensor.type()) ? Widened(tensor) : tensor;
  }
  const auto exact = source_.Step(wide);
  if (!exact.ok()) return nullptr;
  auto step = std::make_shared<OracleStep>();
  for (const auto& [name, tensor] : got) {
    const auto other = exact->find(name);
    if (!IsFloatType(tensor.type()) || other == exact->end()) continue;
    if (other->second.shape() != tensor.shape()) continue;
    const double bound = BoundOf(tensor.view(), other->second.view());
    step->bounds[name] = Filled(tensor.shape(), bound);
  }
  return step;
}

OracleRun HalfBounds::Converted(const exec::Feeds& /*feeds*/,
                                const std::map<std::string, exec::Tensor>& /*gaps*/,
                                const exec::Fetches& got, const std::string& /*where*/) {
  auto step = std::make_shared<OracleStep>();
  for (const auto& [name, tensor] : got) {
    if (IsFloatType(tensor.type())) step->bounds[name] = Filled(tensor.shape(), 0);
  }
  return step;
}

}  // namespace kvlift
