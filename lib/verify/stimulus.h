// Values for the inputs of a source model.
//
// They depend on seed, input, step, sequence and token alone, so a sequence gets the same ones in a
// batch and on its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "exec/tensor.h"
#include "ir/graph.h"
#include "verify/readings.h"
#include "verify/step.h"

namespace kvlift {

class Stimulus {
 public:
  // FailedPrecondition names an input that cannot be fed. `after` is the converted model.
  static absl::StatusOr<Stimulus> Create(const Graph& source, const Graph& after,
                                         const Manifest& relation, uint64_t seed);

  // Value of a source input that is no cache. FailedPrecondition if the step's sequences differ and
  // the input has no row for each. fill: if set, axes that are otherwise P + S long are as long as
  // the capacity, filled so behind each sequence's own length.
  absl::StatusOr<exec::Tensor> Feed(const std::string& input, const StepSpec& step,
                                    int64_t capacity,
                                    std::optional<int64_t> fill = std::nullopt) const;
  // Shape of a source cache (its own layout) holding `length` rows.
  exec::Shape CacheShape(const ManifestCache& cache, int64_t batch, int64_t length) const;
  // Rows of the cache's batch axis that belong to one sequence.
  int64_t RowsPerSequence(const ManifestCache& cache) const;
  // Noise of a cache's element in its own layout, in whole numbers for integer types. `first` is
  // the token that row 0 holds.
  void FillWithNoise(const ManifestCache& cache, const std::vector<int>& sequences, int64_t first,
                     double amplitude, const exec::View& view) const;

  SourceInterface& interface() { return interface_; }
  const SourceInterface& interface() const { return interface_; }
  std::optional<int64_t> fixed_batch() const { return interface_.fixed_batch; }
  std::optional<int64_t> fixed_tokens() const { return interface_.fixed_tokens; }
  bool IsMask(const std::string& input) const;
  // A mask with a row per token: it can say more than which keys are pads.
  bool IsMaskPerToken(const std::string& input) const;

 private:
  double Value(const SourceInput& input, const StepSpec& step, int64_t b, int64_t token,
               int64_t key, int64_t rest) const;

  // What a mask holds for a key that is visible by itself, or not, where masks are fed freely.
  double FreeMask(const SourceInput& input, const StepSpec& step, int64_t b, int64_t token,
                  int64_t key) const;
  int64_t TokenInSlot(const StepSpec& step, int64_t b, int64_t slot, int64_t capacity) const;

  SourceInterface interface_;
  uint64_t seed_ = 1;
  bool shifts_ = false;  // the last slots of a source's cache hold the tokens
};

// A double in [-1, 1) from any numbers, the same on every machine.
double Noise(uint64_t a, uint64_t b, uint64_t c, uint64_t d);
// Stores v in element i of a tensor of any float, integer or bool type.
void StoreDouble(const exec::View& view, int64_t i, double v);

}  // namespace kvlift
