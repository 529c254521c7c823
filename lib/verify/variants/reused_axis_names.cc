#include "verify/variants/reused_axis_names.h"

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "ir/declared_sizes.h"
#include "ir/types.h"
#include "verify/inputs/input_uses.h"

namespace kvlift {

namespace {

using Axes = absl::flat_hash_map<std::string, int>;

// Returns the name that an input declares for an axis; empty if it declares none.
std::string NameOf(const onnx::ValueInfoProto& input, int axis) {
  const auto& dims = input.type().tensor_type().shape().dim();
  return axis >= 0 && axis < dims.size() ? dims[axis].dim_param() : "";
}

int RankOf(const onnx::ValueInfoProto& input) {
  return input.type().tensor_type().shape().dim_size();
}

// Returns true for integers that are no mask, such as tokens and positions, and for rows of
// embeddings, which have fewer axes than pasts. A host may well feed a number for each row of the
// past, and a mask of these rows.
bool MayCountTokens(const onnx::ValueInfoProto& input, const InputUses& uses,
                    const absl::flat_hash_set<int>& of_pasts) {
  if (!IsFloatType(input.type().tensor_type().elem_type())) return !uses.IsMask(input.name());
  return RankOf(input) >= 3 && !of_pasts.contains(RankOf(input));
}

// Returns the sequence axes of the pasts that grow in a model.
Axes RowsOfPasts(const Manifest& relation, PairSide side) {
  Axes axes;
  for (const ManifestCache& cache : relation.caches) {
    const bool source = side == PairSide::kSource;
    if (!(source ? cache.source.growing : cache.grows)) continue;
    axes[source ? cache.source.input : cache.input] =
        static_cast<int>(source ? cache.source.axis : cache.axis);
  }
  return axes;
}

// Returns the axes of the source's inputs that have an element for each row of the keys.
Axes ColumnsOfMasks(const Manifest& relation, PairSide side) {
  Axes axes;
  for (const ManifestInput& input : relation.inputs) {
    const PaddedInput* padded = AsPadded(input);
    if (padded == nullptr || side == PairSide::kResult) continue;
    axes[NameInSource(input)] = static_cast<int>(padded->axis);
  }
  return axes;
}

// Returns a copy of the model with the names apart; the model itself if none is reused.
Model WithApart(const Model& model, const NamesOfSizes& reused,
                const absl::flat_hash_set<std::string>& keep) {
  Model apart = model;
  if (!reused.empty()) apart.proto = WithNamesApart(model.proto, reused, keep);
  return apart;
}

}  // namespace

Model WithPastsApart(const Model& model, const Manifest& relation, PairSide side) {
  const Axes pasts = RowsOfPasts(relation, side), masks = ColumnsOfMasks(relation, side);
  const auto& inputs = model.proto->graph().input();
  NamesOfSizes of_rows, of_pasts;  // of the rows that grow, and of the other axes of pasts
  absl::flat_hash_set<std::string> keep;
  absl::flat_hash_set<int> ranks;
  for (const onnx::ValueInfoProto& input : inputs) {
    const auto past = pasts.find(input.name());
    if (past == pasts.end()) continue;
    keep.insert(input.name());
    ranks.insert(RankOf(input));
    for (int k = 0; k < RankOf(input); ++k) {
      (k == past->second ? of_rows : of_pasts).insert(NameOf(input, k));
    }
  }
  if (keep.empty()) return model;
  const InputUses uses(*model.proto);
  NamesOfSizes of_columns, of_others, reused;
  for (const onnx::ValueInfoProto& input : inputs) {
    const auto mask = masks.find(input.name());
    if (keep.contains(input.name())) continue;
    NamesOfSizes own;
    for (int k = 0; k < RankOf(input); ++k) {
      const std::string name = NameOf(input, k);
      if (name.empty()) continue;
      const bool repeated = !own.insert(name).second;
      if (repeated && of_pasts.contains(name)) reused.insert(name);
      if (mask != masks.end() && k == mask->second) {
        of_columns.insert(name);
      } else if (MayCountTokens(input, uses, ranks)) {
        of_others.insert(name);
      }
    }
  }
  for (const std::string& name : of_rows) {
    if (of_others.contains(name) || of_columns.contains(name)) reused.insert(name);
  }
  for (const std::string& name : of_columns) {
    if (of_others.contains(name)) reused.insert(name);
  }
  return WithApart(model, reused, keep);
}

Model WithAllNamesApart(const Model& model, const Manifest& relation, PairSide side) {
  const Axes pasts = RowsOfPasts(relation, side);
  NamesOfSizes of_rows, of_others, reused;
  absl::flat_hash_set<std::string> keep;
  for (const onnx::ValueInfoProto& input : model.proto->graph().input()) {
    if (const auto past = pasts.find(input.name()); past != pasts.end()) {
      keep.insert(input.name());
      of_rows.insert(NameOf(input, past->second));
      continue;
    }
    for (int k = 1; k < RankOf(input); ++k) {
      const std::string name = NameOf(input, k);
      if (!name.empty() && !of_others.insert(name).second) reused.insert(name);
    }
  }
  for (const std::string& name : of_others) {
    if (of_rows.contains(name)) reused.insert(name);
  }
  return WithApart(model, reused, keep);
}

}  // namespace kvlift
