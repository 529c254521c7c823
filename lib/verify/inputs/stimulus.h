// Makes the values that are fed to the inputs of a source model.
//
// They depend on the seed, the input, the step, the sequence and the token only, so that a sequence
// gets the same values in a batch and by itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "exec/memory/tensor.h"
#include "ir/graph.h"
#include "verify/inputs/input_meanings.h"
#include "verify/inputs/step.h"

namespace kvlift {

class Stimulus {
 public:
  // Reads the source's inputs (input_meanings.h). `after` is the converted model. Errors are those
  // of ReadInterface.
  static absl::StatusOr<Stimulus> Create(const Graph& source, const Graph& after,
                                         const Manifest& relation, uint64_t seed);

  // Returns the value of a source input that is not a cache. fill: if set, axes of P + S keys are
  // as long as the capacity, and elements behind a sequence's own length are this number.
  // FailedPrecondition if the source has no such input, or if the step's lengths differ, or it has
  // right padding, and the input holds one value for the whole batch or counts tokens. OutOfRange
  // if the tensor is over the run's limits (exec/memory/budget.h).
  absl::StatusOr<exec::Tensor> Feed(const std::string& input, const StepSpec& step,
                                    int64_t capacity,
                                    std::optional<int64_t> fill = std::nullopt) const;
  // Returns the shape that Feed gives an input; empty if the source has no such input.
  exec::Shape ShapeOf(const std::string& input, const StepSpec& step, int64_t capacity,
                      std::optional<int64_t> fill = std::nullopt) const;
  // Returns the shape, in the source's layout, of a source cache with `length` rows.
  exec::Shape CacheShape(const ManifestCache& cache, int64_t batch, int64_t length) const;
  // Fills a source cache, in the source's layout, with noise in [-amplitude, amplitude), integer
  // types with whole numbers of most of their range. first: the token that row 0 holds.
  void FillWithNoise(const ManifestCache& cache, const std::vector<int>& sequences, int64_t first,
                     double amplitude, const exec::View& view) const;

  SourceInterface& interface() { return interface_; }
  const SourceInterface& interface() const { return interface_; }
  std::optional<int64_t> fixed_batch() const { return interface_.fixed_batch; }
  std::optional<int64_t> fixed_tokens() const { return interface_.fixed_tokens; }
  // Returns true if an input is a mask, by its chosen reading.
  bool IsMask(const std::string& input) const;

 private:
  // Returns the element for sequence b, new token `token` and key `key`; `rest` is its index along
  // all other axes, which are those of heads in a mask.
  double Value(const SourceInput& input, const StepSpec& step, int64_t b, int64_t token,
               int64_t key, int64_t rest) const;

  // Returns the element of a mask that is fed freely (StepSpec::free_masks); indices are those of
  // Value.
  double FreeMask(const SourceInput& input, const StepSpec& step, int64_t b, int64_t token,
                  int64_t key, int64_t rest) const;
  // Returns the token whose row a source's cache holds in a slot after the step.
  int64_t TokenInSlot(const StepSpec& step, int64_t b, int64_t slot, int64_t capacity) const;

  SourceInterface interface_;
  uint64_t seed_ = 1;
  // Tokens that are fed more often than others: the first ones, and those that a model compares
  // with.
  std::vector<int64_t> marked_ = {0};
  bool shifts_ = false;  // a source's cache shifts its rows, the newest last (ring_slots.h)
};

// Returns a number in [-1, 1) that depends on the four arguments only, the same on every machine.
double Noise(uint64_t a, uint64_t b, uint64_t c, uint64_t d);
// Stores v in element i of a tensor of a float, integer or bool type; any other type is left as is.
void StoreDouble(const exec::View& view, int64_t i, double v);

}  // namespace kvlift
