// Models whose weights are drawn: of files that are not there, or that nobody wants to read. What
// is judged then is the structure, which is the same for any weights.
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
  explicit DrawnWeights(uint64_t seed);

  // The model with numbers of a usual size in place of all weights in files, the same for all
  // models that read the same place of a file: products keep the size of what they multiply, norms
  // are near 1, biases near 0, quantised weights are any bytes. FailedPrecondition for integers
  // that may be shapes or indices.
  absl::StatusOr<Model> In(const Model& model) const;

 private:
  class Store;
  std::shared_ptr<Store> store_;
};

// Reads "stored", which is no seed, "random" (seed 1) and "random:SEED". InvalidArgument for other
// words.
absl::StatusOr<std::optional<uint64_t>> ReadWeights(absl::string_view words);

// The entry of the ledger that says so.
Assumption DrawnWeightsOf(uint64_t seed);

}  // namespace kvlift
