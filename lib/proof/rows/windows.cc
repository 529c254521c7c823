#include "proof/rows/windows.h"

#include <algorithm>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "sym/sizes/equal_names.h"

namespace kvlift {

using sym::Expr;
using sym::Facts;
using sym::Kind;

std::optional<WindowOfRows> ReadWindow(const GraphPair& pair, const ManifestCache& cache,
                                       sym::Forms& forms) {
  const ValueId past = pair.Before(cache.source.input), present = pair.Before(cache.source.output);
  if (past == kNoValue || present == kNoValue) return std::nullopt;
  sym::Pool& pool = forms.pool();
  const sym::Form before = forms.Of(past), later = forms.Of(present);
  const auto axis = static_cast<size_t>(cache.source.axis);
  if (!before.known_rank || !later.known_rank || axis >= before.shape.size() ||
      later.shape.size() != before.shape.size() || before.shape[axis]->kind() != Kind::kDim) {
    return std::nullopt;
  }
  const auto found = sym::AtMostIn(pool, later.shape[axis]);
  if (!found) return std::nullopt;
  return WindowOfRows{found->most, before.shape[axis], found->length};
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
