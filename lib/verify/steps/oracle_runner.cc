#include "verify/steps/oracle_runner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "ir/types.h"
#include "verify/report/compare.h"

namespace kvlift {
namespace {

using oracle::Value;

// Budgets in scalar operations: under half a second, and minutes.
constexpr int64_t kQuickWork = 600'000'000, kFullWork = 150'000'000'000;
// Wide models get a budget for the matrix products of so many rows, at most some seconds.
constexpr int64_t kRows = 12, kMostQuickWork = 20'000'000'000;
// One step may use this fraction (1 / kShare) of what is left of the budget.
constexpr int64_t kShare = 4;
// Once more steps than this have exceeded the budget after much work, no more are tried.
constexpr int kMaxExhausted = 2;
constexpr int64_t kMuchWork = 10'000'000;

absl::StatusOr<Value> ToOracle(const exec::Tensor& tensor, const exec::Tensor* gap,
                               double deviations) {
  const exec::View& view = tensor.view();
  oracle::Dims dims(view.shape.begin(), view.shape.end());
  if (view.type <= 0 || view.bytes() < 0) return absl::UnimplementedError("no tensor of numbers");
  auto owner = std::make_shared<exec::Tensor>(tensor);
  oracle::Stored stored;
  stored.type = view.type;
  stored.bytes = {reinterpret_cast<const char*>(view.data), static_cast<size_t>(view.bytes())};
  stored.owner = owner;
  const Value value = Value::FromStored(view.type, dims, std::move(stored));
  if (!oracle::IsReal(view.type) || gap == nullptr || gap->shape() != view.shape) return value;
  oracle::Reals reals = value.reals();
  const auto gaps = gap->span<double>();
  for (int64_t i = 0; i < view.size(); ++i) {
    if (gaps[i] > 0) reals.Set(i, {reals.value[i], gaps[i], gaps[i] / deviations});
  }
  return Value::FromReals(view.type, std::move(dims), std::move(reals));
}

// Returns element i of an integer tensor with all its bits.
int64_t IntegerAt(const exec::View& view, int64_t i) {
  if (view.type == onnx::TensorProto::INT64 || view.type == onnx::TensorProto::UINT64) {
    return view.as<int64_t>()[i];
  }
  return static_cast<int64_t>(exec::ElementAsDouble(view, i));
}

}  // namespace

const exec::Tensor* OracleStep::BoundOf(const std::string& output) const {
  const auto it = bounds.find(output);
  return it == bounds.end() ? nullptr : &it->second;
}

std::string RoundingMayDecide(std::string_view what) {
  return fmt::format("rounding may change a decision that {} depends on", what);
}

OracleBounds::OracleBounds(const Model& before, const Model& after, bool full, double deviations)
    : deviations_(deviations), left_(full ? kFullWork : kQuickWork) {
  source_.name = "source";
  converted_.name = "converted";
  Prepare(before, &source_);
  Prepare(after, &converted_);
  const int64_t rows = std::max(WorkPerRow(source_), WorkPerRow(converted_)) * kRows;
  left_ = std::max(left_, std::min(rows, kMostQuickWork));
}

void OracleBounds::Prepare(const Model& model, Side* side) {
  auto made = oracle::Interpreter::Create(model.proto, model.base_dir);
  side->able = made.ok() && made->unknown().empty();
  if (made.ok()) {
    for (const std::string& op : made->unknown()) {
      report_.without_meaning.push_back(fmt::format("{} ({})", op, side->name));
    }
    side->oracle = *std::move(made);
  }
}

int64_t OracleBounds::WorkPerRow(const Side& side) {
  return side.able && side.oracle ? side.oracle->work_per_row() : 0;
}

OracleRun OracleBounds::Source(const exec::Feeds& feeds, const exec::Fetches& got,
                               const std::string& where) {
  return Run(source_, feeds, {}, got, where);
}

OracleRun OracleBounds::Converted(const exec::Feeds& feeds,
                                  const std::map<std::string, exec::Tensor>& gaps,
                                  const exec::Fetches& got, const std::string& where) {
  return Run(converted_, feeds, gaps, got, where);
}

OracleRun OracleBounds::Run(Side& side, const exec::Feeds& feeds,
                            const std::map<std::string, exec::Tensor>& gaps,
                            const exec::Fetches& got, const std::string& where) {
  ++report_.steps_seen;
  if (!side.able || exhausted_ > kMaxExhausted) return nullptr;
  oracle::Values inputs;
  for (const auto& [name, tensor] : feeds) {
    const auto gap = gaps.find(name);
    auto value = ToOracle(tensor, gap == gaps.end() ? nullptr : &gap->second, deviations_);
    if (!value.ok()) return nullptr;
    inputs[name] = *std::move(value);
  }
  int64_t work = 0;
  const auto outputs = side.oracle->Run(inputs, left_ / kShare, &work);
  left_ -= work;
  if (!outputs.ok()) {
    const bool too_much = absl::IsResourceExhausted(outputs.status());
    exhausted_ += too_much && work > kMuchWork ? 1 : 0;
    side.able = too_much;
    if (!too_much) {
      report_.without_meaning.push_back(
          fmt::format("{} ({})", std::string(outputs.status().message()), side.name));
    }
    return nullptr;
  }
  ++report_.steps;
  auto step = std::make_shared<OracleStep>();
  for (const auto& [name, value] : *outputs) {
    const auto it = got.find(name);
    if (it != got.end()) Hold(side, name, value, it->second.view(), where, step.get());
  }
  return step;
}

void OracleBounds::Hold(const Side& side, const std::string& output, const Value& value,
                        const exec::View& got, const std::string& where, OracleStep* step) {
  if (value.doubtful) {
    report_.doubtful.insert(output);
    step->doubtful.insert(output);
    return;
  }
  const auto disagree = [&](int64_t i, double theirs, double ours, double bound) {
    ++report_.disagreements;
    if (report_.disagreement) return;
    report_.disagreement = fmt::format(
        "{} model, {}: the executor gives {} [{}] as {:.9g}, the oracle as {:.9g} (bound {:.3g})",
        side.name, where, output, fmt::join(ElementAt(got.shape, i), ", "), theirs, ours, bound);
  };
  if (value.type() != got.type ||
      value.dims() != oracle::Dims(got.shape.begin(), got.shape.end())) {
    ++report_.disagreements;
    if (!report_.disagreement) {
      report_.disagreement = fmt::format(
          "{} model, {}: the executor gives {} as {} {}, the oracle as {} {}", side.name, where,
          output, ElementTypeName(got.type), exec::ShapeString(got.shape),
          ElementTypeName(value.type()), oracle::DimsText(value.dims()));
    }
    return;
  }
  if (!value.real()) {
    for (int64_t i = 0; i < got.size(); ++i) {
      const int64_t a = IntegerAt(got, i), b = value.integers()[i];
      if (a != b) disagree(i, static_cast<double>(a), static_cast<double>(b), 0);
    }
    return;
  }
  if (value.columns) report_.sampled[output] = {*value.columns, got.shape.back()};
  exec::Tensor bounds(onnx::TensorProto::DOUBLE, got.shape);
  for (int64_t i = 0; i < got.size(); ++i) {
    const oracle::Number n = value.reals().At(i);
    const double bound = oracle::BoundOf(n.worst, n.spread);
    bounds.span<double>()[i] = bound;
    const double theirs = exec::ElementAsDouble(got, i);
    if (theirs == n.value || (std::isnan(theirs) && std::isnan(n.value))) continue;
    if (std::isinf(bound)) continue;
    const double ratio = bound > 0 ? std::fabs(theirs - n.value) / bound : HUGE_VAL;
    if (ratio <= 1) {
      report_.worst_ratio = std::max(report_.worst_ratio, ratio);
      continue;
    }
    disagree(i, theirs, n.value, bound);
  }
  step->bounds[output] = std::move(bounds);
}

}  // namespace kvlift
