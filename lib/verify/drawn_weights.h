// Replaces weights in external files by random numbers, so that a model can be judged whose files
// are absent or too large to be read. Only the structure of the two models is judged then.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "contract/assumptions.h"
#include "onnxio/model.h"

namespace kvlift {

class DrawnWeights {
 public:
  // Models that one object (or a copy of it) draws for share the numbers of a seed.
  explicit DrawnWeights(uint64_t seed);

  // Returns the model with drawn numbers in place of the initialisers of its main graph whose data
  // is in a file, the same for all models that read the same place of a file. Weights of products
  // keep the size of what they multiply, those of norms are near 1, biases near 0, quantised
  // weights any bytes. FailedPrecondition names an integer tensor of more than 8 bits, a shape or
  // indices perhaps, whose file is absent; if its file is there, it keeps its data.
  absl::StatusOr<Model> In(const Model& model) const;

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
