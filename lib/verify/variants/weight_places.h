// Finds where the weights of two models are stored, and which of them are the same weight. A weight
// that is drawn has to get the same numbers in both models, whether its file is there or not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "contract/assumptions.h"
#include "onnx/onnx_pb.h"
#include "onnxio/model/model.h"

namespace kvlift {

// The part of a file that holds a tensor.
struct WeightPlace {
  std::string location;  // as the model gives it
  uint64_t offset = 0;
  std::optional<uint64_t> length;  // nullopt: not given
  // A text that is equal for equal parts of one file, whatever its path. For a file that is absent,
  // it is the location and the offset.
  std::string text;
};
// Returns nullopt if the model itself holds the tensor.
std::optional<WeightPlace> PlaceOf(const onnx::TensorProto& tensor);

// Two models in which absent weights of one name have one place or the same stored numbers.
struct PairedModels {
  Model before, after;
  // The ledger entry for weights of one name that were taken to be the same without a look at their
  // numbers; nullopt if no weights were.
  std::optional<Assumption> assumed;
};

// Pairs the initialisers of both main graphs that have the same name, type and dims, where the data
// of at least one is absent. Numbers that one model stores, as small weights that a conversion has
// copied into its model, replace the absent ones of the other. Weights of two absent files are
// paired if their offsets are equal and neither file occurs in the other model, as after a copy of
// the file. Weights that are seen to be at different places are not paired. The result keeps both
// models' protos alive.
absl::StatusOr<PairedModels> PairAbsentWeights(const Model& before, const Model& after);

}  // namespace kvlift
