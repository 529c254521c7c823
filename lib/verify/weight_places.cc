#include "verify/weight_places.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/spans.h"
#include "verify/other_weights.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

using Weights = absl::flat_hash_map<std::string, const TensorProto*>;

Weights WeightsOf(const Model& model) {
  Weights weights;
  for (const TensorProto& tensor : model.proto->graph().initializer()) {
    weights[tensor.name()] = &tensor;
  }
  return weights;
}

absl::flat_hash_set<std::string> FilesOf(const Model& model) {
  absl::flat_hash_set<std::string> files;
  for (const TensorProto& tensor : model.proto->graph().initializer()) {
    if (const auto place = PlaceOf(tensor)) files.insert(place->location);
  }
  return files;
}

bool IsSameKind(const TensorProto& a, const TensorProto& b) {
  return a.data_type() == b.data_type() &&
         std::equal(a.dims().begin(), a.dims().end(), b.dims().begin(), b.dims().end());
}

class Pairing {
 public:
  Pairing(const Model& before, const Model& after)
      : weights_(WeightsOf(before)),
        others_(WeightsOf(after)),
        files_(FilesOf(before)),
        other_files_(FilesOf(after)) {}

  // Whether the converted model's tensor `mine` is taken to be the source's weight of its name.
  bool IsPaired(const TensorProto& mine, const TensorProto& theirs) const {
    if (!IsSameKind(mine, theirs) || (!IsElsewhere(mine) && !IsElsewhere(theirs))) return false;
    const auto a = PlaceOf(mine), b = PlaceOf(theirs);
    if (!a || !b) return true;
    if (a->offset != b->offset || (a->length && b->length && a->length != b->length)) return false;
    return a->location == b->location ||
           (!files_.contains(a->location) && !other_files_.contains(b->location));
  }

  // Returns the source's weights, with the numbers that the converted model stores.
  absl::StatusOr<std::optional<TensorProto>> Source(const TensorProto& theirs) const {
    const auto mine = others_.find(theirs.name());
    const bool is_taken = mine != others_.end() && IsElsewhere(theirs) &&
                          !IsElsewhere(*mine->second) && IsPaired(*mine->second, theirs);
    return is_taken ? std::optional(*mine->second) : std::nullopt;
  }

  // Returns the converted model's weights, with the source's numbers or places.
  absl::StatusOr<std::optional<TensorProto>> Converted(const TensorProto& mine) const {
    const auto theirs = weights_.find(mine.name());
    const bool is_taken =
        theirs != weights_.end() && IsElsewhere(mine) && IsPaired(mine, *theirs->second);
    return is_taken ? std::optional(*theirs->second) : std::nullopt;
  }

  // The entry for all pairs whose places do not say that they are the same.
  std::optional<Assumption> Assumed(const Model& after) const {
    std::string first;
    int count = 0;
    for (const TensorProto& mine : after.proto->graph().initializer()) {
      const auto theirs = weights_.find(mine.name());
      if (theirs == weights_.end() || !IsPaired(mine, *theirs->second)) continue;
      const auto a = PlaceOf(mine), b = PlaceOf(*theirs->second);
      if (a && b && a->location == b->location) continue;
      if (count++ == 0) first = mine.name();
    }
    if (count == 0) return std::nullopt;
    return Assumption{
        AssumptionKind::kOther, "",
        fmt::format("weights of one name hold the same numbers in both models where a file is "
                    "absent: {}{}",
                    first, count == 1 ? "" : fmt::format(" and {} more", count - 1)),
        AssumptionSource::kHost, false};
  }

 private:
  const Weights weights_, others_;  // of the source, of the converted model
  const absl::flat_hash_set<std::string> files_, other_files_;
};

}  // namespace

std::optional<WeightPlace> PlaceOf(const TensorProto& tensor) {
  if (tensor.data_location() != TensorProto::EXTERNAL) return std::nullopt;
  WeightPlace place;
  for (const auto& entry : tensor.external_data()) {
    uint64_t number = 0;
    if (entry.key() == "location") {
      place.location = entry.value();
    } else if (entry.key() == "offset" && absl::SimpleAtoi(entry.value(), &number)) {
      place.offset = number;
    } else if (entry.key() == "length" && absl::SimpleAtoi(entry.value(), &number)) {
      place.length = number;
    }
  }
  const SpanRange span = SpanOf(tensor);
  if (span.source == nullptr) {
    place.text = fmt::format("{}\n{}", place.location, place.offset);
    return place;
  }
  const SpanSource::Content& content = span.source->content();
  if (content.kind != SpanSource::Kind::kDataFile) return std::nullopt;
  place.location = content.location;
  place.text = fmt::format("{}:{}\n{}", content.device, content.inode, place.offset);
  return place;
}

absl::StatusOr<PairedModels> PairAbsentWeights(const Model& before, const Model& after) {
  const auto protos = std::make_shared<
      std::pair<std::shared_ptr<const onnx::ModelProto>, std::shared_ptr<const onnx::ModelProto>>>(
      before.proto, after.proto);
  const Pairing pairing(before, after);
  PairedModels paired{before, after, pairing.Assumed(after)};
  KV_ASSIGN_OR_RETURN(paired.before.proto,
                      WithOtherWeights(before.proto, protos, [&](const TensorProto& tensor) {
                        return pairing.Source(tensor);
                      }));
  KV_ASSIGN_OR_RETURN(paired.after.proto,
                      WithOtherWeights(after.proto, protos, [&](const TensorProto& tensor) {
                        return pairing.Converted(tensor);
                      }));
  return paired;
}

}  // namespace kvlift
