#include "proof/rows/windows.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "sym/sizes/equal_names.h"

namespace kvlift {

using sym::Expr;
using sym::Facts;
using sym::Kind;

namespace {

// Returns total and W if the expression is min(total, W), also in the form total - max(total - W,
// 0).
std::optional<std::pair<Expr, int64_t>> LastOf(sym::Pool& pool, Expr rows) {
  if (rows->kind() == Kind::kSelect) {
    for (const int k : {1, 2}) {
      const Expr size = rows->args()[k], total = rows->args()[3 - k];
      if (size->kind() != Kind::kInteger || size->value() < 1) continue;
      if (rows == pool.Min(total, size, Facts{})) return std::pair(total, size->value());
    }
  }
  if (rows->kind() != Kind::kSum) return std::nullopt;
  for (const sym::Term& term : rows->terms()) {
    if (term.coefficient != -1 || term.atoms.size() != 1) continue;
    const Expr cut = term.atoms[0], total = pool.Add(rows, cut);
    if (cut->kind() != Kind::kSelect) continue;
    for (const int k : {1, 2}) {
      const Expr size = pool.Sub(total, cut->args()[k]);
      if (size->kind() != Kind::kInteger || size->value() < 1) continue;
      if (cut == pool.Max(pool.Sub(total, size), pool.Integer(0), Facts{})) {
        return std::pair(total, size->value());
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<WindowOfRows> ReadWindow(const GraphPair& pair, const ManifestCache& cache) {
  const ValueId past = pair.Before(cache.source.input), present = pair.Before(cache.source.output);
  if (past == kNoValue || present == kNoValue) return std::nullopt;
  sym::Pool& pool = pair.forms().pool();
  const sym::Form before = pair.forms().Of(past), later = pair.forms().Of(present);
  const auto axis = static_cast<size_t>(cache.source.axis);
  if (!before.known_rank || !later.known_rank || axis >= before.shape.size() ||
      later.shape.size() != before.shape.size() || before.shape[axis]->kind() != Kind::kDim) {
    return std::nullopt;
  }
  const auto found = LastOf(pool, later.shape[axis]);
  if (!found) return std::nullopt;
  return WindowOfRows{found->second, before.shape[axis], found->first};
}

void SeparateWindowLengths(const Manifest& relation, onnx::ModelProto* source) {
  const auto window_of = [&](const std::string& input) {
    const auto cache =
        std::find_if(relation.caches.begin(), relation.caches.end(), [&](const ManifestCache& one) {
          return one.source.kind == UpdateKind::kWindow && one.source.input == input;
        });
    return cache == relation.caches.end() ? nullptr : &*cache;
  };
  auto& inputs = *source->mutable_graph()->mutable_input();
  absl::flat_hash_set<std::string> others;  // names that inputs declare which are no windows
  for (const onnx::ValueInfoProto& input : inputs) {
    if (window_of(input.name()) != nullptr) continue;
    for (const auto& dim : input.type().tensor_type().shape().dim()) {
      others.insert(dim.dim_param());
    }
  }
  for (onnx::ValueInfoProto& input : inputs) {
    const ManifestCache* cache = window_of(input.name());
    if (cache == nullptr || !input.type().tensor_type().has_shape()) continue;
    auto* shape = input.mutable_type()->mutable_tensor_type()->mutable_shape();
    const int64_t axis = cache->source.axis;
    if (axis < 0 || axis >= shape->dim_size()) continue;
    auto* dim = shape->mutable_dim(static_cast<int>(axis));
    if (others.contains(dim->dim_param())) dim->clear_dim_param();
  }
}

namespace {

// Shares the lengths of the pasts that keep windows, or of those that keep all rows.
void ShareLengthsOf(bool windows, const Manifest& relation, onnx::ModelProto* source) {
  using Dimension = onnx::TensorShapeProto::Dimension;
  auto& inputs = *source->mutable_graph()->mutable_input();
  std::vector<Dimension*> rows;  // of each past, without those that are numbers
  for (const ManifestCache& cache : relation.caches) {
    const bool keeps_window = cache.source.kind == UpdateKind::kWindow;
    const bool counts = keeps_window || (BecomesBuffer(cache) && !cache.source.sliding);
    if (keeps_window != windows || !counts || !cache.source.select.empty()) continue;
    for (onnx::ValueInfoProto& input : inputs) {
      if (input.name() != cache.source.input) continue;
      auto* shape = input.mutable_type()->mutable_tensor_type()->mutable_shape();
      if (cache.source.axis < 0 || cache.source.axis >= shape->dim_size()) continue;
      Dimension* dim = shape->mutable_dim(static_cast<int>(cache.source.axis));
      if (!dim->has_dim_value()) rows.push_back(dim);
    }
  }
  const auto named = std::find_if(rows.begin(), rows.end(),
                                  [](const Dimension* dim) { return !dim->dim_param().empty(); });
  if (named == rows.end()) return;
  const std::string name = (*named)->dim_param();
  sym::SizeNames names;
  for (Dimension* dim : rows) {
    if (dim->dim_param().empty()) dim->set_dim_param(name);
    if (dim->dim_param() != name) names[dim->dim_param()] = name;
  }
  sym::RenameSizes(names, source->mutable_graph());
}

}  // namespace

void ShareLengths(const Manifest& relation, onnx::ModelProto* source) {
  for (const bool windows : {false, true}) ShareLengthsOf(windows, relation, source);
}

std::vector<SourceCase> WindowCases(const Manifest& relation) {
  const bool windows =
      std::any_of(relation.caches.begin(), relation.caches.end(), [](const ManifestCache& cache) {
        return cache.source.kind == UpdateKind::kWindow || cache.ring.has_value();
      });
  if (!windows) return {SourceCase{}};
  SourceCase filling, full;
  filling.text = "while windows fill";
  filling.window = SourceCase::Window::kFilling;
  full.text = "once windows are full";
  full.window = SourceCase::Window::kFull;
  return {filling, full};
}

}  // namespace kvlift
