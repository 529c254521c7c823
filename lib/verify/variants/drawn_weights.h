// Replaces weights in external files by random numbers, so that a model can be judged whose files
// are absent or too large to be read. Only the structure of the two models is judged then.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "contract/assumptions.h"
#include "onnxio/model/model.h"

namespace kvlift {

class DrawnWeights {
 public:
  // Models that one object (or a copy of it) draws for share the numbers of a seed.
  explicit DrawnWeights(uint64_t seed);

  // Returns both models with drawn numbers in place of those initialisers of their main graphs that
  // are the same weight in both, and of those whose file is absent. The same weight gets the same
  // numbers in both, in all calls: a weight of the same type and size at the same place of a file,
  // or of the same name with the same bytes. A weight that only one of the models has keeps its
  // numbers if its file is there, so that it differs from the weight in whose place it stands.
  // Weights of products keep the size of the operands that they multiply, those of norms are near
  // 1, biases near 0, quantised weights any bytes. FailedPrecondition names an integer tensor of
  // more than 8 bits, a shape or indices perhaps, whose file is absent; if its file is there, it
  // keeps its data.
  absl::StatusOr<std::pair<Model, Model>> In(const Model& before, const Model& after) const;

 private:
  class Store;
  std::shared_ptr<Store> store_;
};

// Parses the value of --weights: "stored" or empty gives nullopt, "random" seed 1, "random:SEED"
// that seed. InvalidArgument for any other text.
absl::StatusOr<std::optional<uint64_t>> ReadWeights(absl::string_view words);

// Returns the ledger's entry that weights were drawn with this seed.
Assumption DrawnWeightsOf(uint64_t seed);

}  // namespace kvlift
