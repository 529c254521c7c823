#include "proof/graphs/frozen_sizes.h"

#include <algorithm>
#include <iterator>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "contract/layout.h"
#include "fmt/format.h"
#include "ir/graph.h"
#include "sym/sizes/fixed_sizes.h"

namespace kvlift {
namespace {

using Shapes = absl::flat_hash_map<std::string, const onnx::TensorShapeProto*>;

Shapes ShapesOf(const onnx::ModelProto& model) {
  Shapes shapes;
  for (const onnx::ValueInfoProto& input : model.graph().input()) {
    const auto& type = input.type().tensor_type();
    if (type.has_shape()) shapes[input.name()] = &type.shape();
  }
  return shapes;
}

class FrozenSizeFinder {
 public:
  FrozenSizeFinder(const onnx::ModelProto& before, const onnx::ModelProto& after,
                   const Manifest& relation)
      : names_(NamesOfSizesIn(before.graph())),
        theirs_(ShapesOf(before)),
        mine_(ShapesOf(after)),
        relation_(relation) {}

  std::vector<NamedSize> Run() {
    for (const ManifestCache& cache : relation_.caches) {
      const auto* shape = Find(theirs_, cache.source.input);
      const size_t axis = cache.source.layout.find('S');
      if (!cache.source.growing || shape == nullptr || axis == std::string::npos) continue;
      if (!cache.source.select.empty() || static_cast<int>(axis) >= shape->dim_size()) continue;
      lengths_.insert(shape->dim(static_cast<int>(axis)).dim_param());
    }
    for (const ManifestInput& input : relation_.inputs) {
      const auto* mine = Find(mine_, input.name);
      const auto* theirs = Find(theirs_, NameInSource(input));
      if (!HasSourceInput(input) || mine == nullptr || theirs == nullptr) continue;
      const PaddedInput* padded = AsPadded(input);
      if (mine->dim_size() != theirs->dim_size()) continue;
      for (int k = 0; k < mine->dim_size(); ++k) {
        if (padded == nullptr || padded->axis != k) Compare(theirs->dim(k), mine->dim(k));
      }
    }
    for (const ManifestCache& cache : relation_.caches) CompareCache(cache);
    return std::move(sizes_);
  }

 private:
  static const onnx::TensorShapeProto* Find(const Shapes& shapes, const std::string& name) {
    const auto it = shapes.find(name);
    return it == shapes.end() ? nullptr : it->second;
  }

  // The axes of equal letters correspond, apart from that of a growing cache's rows. Axes that are
  // joined or fixed at an index are left out.
  void CompareCache(const ManifestCache& cache) {
    const auto* mine = Find(mine_, cache.input);
    const auto* theirs = Find(theirs_, cache.source.input);
    if (mine == nullptr || theirs == nullptr || !cache.source.select.empty()) return;
    if (mine->dim_size() != std::ssize(cache.layout) ||
        theirs->dim_size() != std::ssize(cache.source.layout)) {
      return;
    }
    for (int k = 0; k < theirs->dim_size(); ++k) {
      const char letter = cache.source.layout[static_cast<size_t>(k)];
      const size_t own = cache.layout.find(letter);
      if (own == std::string::npos || letter == 'S') continue;
      Compare(theirs->dim(k), mine->dim(static_cast<int>(own)));
    }
  }

  void Compare(const onnx::TensorShapeProto::Dimension& theirs,
               const onnx::TensorShapeProto::Dimension& mine) {
    const std::string& name = theirs.dim_param();
    if (!mine.has_dim_value() || mine.dim_value() < 1 || !names_.contains(name)) return;
    if (lengths_.contains(name)) return;
    const bool known = std::any_of(sizes_.begin(), sizes_.end(),
                                   [&](const NamedSize& size) { return size.name == name; });
    if (!known) sizes_.push_back({name, mine.dim_value()});
  }

  const NamesOfSizes names_;
  const Shapes theirs_, mine_;
  const Manifest& relation_;
  absl::flat_hash_set<std::string> lengths_;  // the names of P
  std::vector<NamedSize> sizes_;
};

// The names of sizes that caches of the source have on axes of heads and elements only.
class WidthsOfCaches {
 public:
  WidthsOfCaches(const onnx::ModelProto& before, const Manifest& relation) {
    const Shapes shapes = ShapesOf(before);
    for (const ManifestCache& cache : relation.caches) {
      const auto found = shapes.find(cache.source.input);
      if (found == shapes.end() || !cache.source.select.empty()) continue;
      const std::string& layout = cache.source.layout;
      if (found->second->dim_size() != std::ssize(layout)) continue;
      for (int k = 0; k < found->second->dim_size(); ++k) {
        const char letter = layout[static_cast<size_t>(k)];
        const bool steps = letter == 'B' || letter == 'S';
        (steps ? of_steps_ : widths_).insert(found->second->dim(k).dim_param());
      }
    }
  }

  bool Contain(const std::string& name) const {
    return widths_.contains(name) && !of_steps_.contains(name);
  }

 private:
  absl::flat_hash_set<std::string> widths_, of_steps_;
};

}  // namespace

std::vector<NamedSize> FrozenSizesOf(const onnx::ModelProto& before, const onnx::ModelProto& after,
                                     const Manifest& relation) {
  return FrozenSizeFinder(before, after, relation).Run();
}

std::vector<NamedSize> SizesFixedByOperators(const onnx::ModelProto& model) {
  const auto graph =
      Graph::Build(std::shared_ptr<const onnx::ModelProto>(&model, [](const auto*) {}));
  return graph.ok() ? sym::FixedSizesOf(*graph) : std::vector<NamedSize>();
}

onnx::ModelProto WithOpenSizes(const onnx::ModelProto& after, const Manifest& relation) {
  onnx::ModelProto open = after;
  const auto is_kept = [&](const std::string& name, int axis) {
    for (const ManifestCache& cache : relation.caches) {
      if (cache.input == name) return static_cast<int>(cache.layout.find('B')) != axis;
    }
    return std::any_of(relation.inputs.begin(), relation.inputs.end(),
                       [&](const ManifestInput& input) {
                         const PaddedInput* padded = AsPadded(input);
                         return input.name == name && padded != nullptr && padded->axis == axis;
                       });
  };
  for (onnx::ValueInfoProto& input : *open.mutable_graph()->mutable_input()) {
    if (!input.type().tensor_type().has_shape()) continue;
    auto* shape = input.mutable_type()->mutable_tensor_type()->mutable_shape();
    for (int k = 0; k < shape->dim_size(); ++k) {
      if (!is_kept(input.name(), k)) shape->mutable_dim(k)->clear_dim_value();
    }
  }
  return open;
}

Assumptions RestrictionsTo(const std::vector<NamedSize>& sizes, const onnx::ModelProto& before,
                           const Manifest& relation) {
  const WidthsOfCaches widths(before, relation);
  Assumptions restrictions;
  for (const NamedSize& size : sizes) {
    const bool width = widths.Contain(size.name);
    restrictions.Add({width ? AssumptionKind::kDimension : AssumptionKind::kFrozenSize, size.name,
                      fmt::format("{} = {} in every step, as the converted model declares",
                                  size.name, size.size),
                      AssumptionSource::kManifest, false});
  }
  return restrictions;
}

}  // namespace kvlift
