// What a source model is fed with: which graph input means what, and values for it.
//
// Roles are read from the graph: an integer input that indexes a table of weights is tokens, one
// that is as long as all keys is a mask, another one of the token's shape is positions. Names break
// ties only. Values depend on seed, input, step, sequence and token alone, so a sequence gets the
// same ones in a batch and on its own.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "exec/tensor.h"
#include "ir/graph.h"

namespace kvlift {

// One call of a model. Letters: B sequences, each with its own past length, S new tokens.
struct StepSpec {
  int number = 0;              // within its plan: seeds the tokens
  std::vector<int64_t> past;   // P per sequence
  int64_t new_tokens = 1;      // S
  std::vector<int64_t> pads;   // left pads per sequence; empty: none
  std::vector<int> sequences;  // their numbers, which seed the tokens

  int64_t batch() const { return static_cast<int64_t>(past.size()); }
  StepSpec Alone(int b) const;  // sequence b only
};

class Stimulus {
 public:
  // FailedPrecondition names an input that cannot be fed.
  static absl::StatusOr<Stimulus> Create(const Graph& source, const Manifest& relation,
                                         uint64_t seed);

  // Value of a source input that is no cache. All pasts of the step must be equal, unless the input
  // has a row per sequence and no axis as long as the past. width: if set, the extent of the axis
  // that is otherwise P + S, filled with `fill` behind each sequence's own length.
  absl::StatusOr<exec::Tensor> Feed(const std::string& input, const StepSpec& step,
                                    std::optional<int64_t> width = std::nullopt,
                                    int64_t fill = 0) const;
  // Shape of a source cache (its own layout) holding `length` tokens.
  exec::Shape CacheShape(const ManifestCache& cache, int64_t batch, int64_t length) const;

  std::vector<std::string> inputs() const;  // that are no caches
  std::optional<int64_t> fixed_batch() const { return fixed_batch_; }
  std::optional<int64_t> fixed_tokens() const { return fixed_tokens_; }
  // As long as all keys of a step: a mask.
  bool IsWide(const std::string& input) const;

 private:
  enum class Role { kTokens, kPositions, kMask, kReal, kConstant, kFlag, kLength };
  enum class Extent { kStatic, kBatch, kTokens, kKeys, kPast };
  struct Axis {
    Extent extent = Extent::kStatic;
    int64_t value = 1;
  };
  struct Input {
    Role role = Role::kReal;
    int32_t type = 0;
    std::vector<Axis> axes;
    int64_t rows = 0;  // of the table that tokens index
    uint64_t salt = 0;
  };
  friend class StimulusBuilder;

  double Value(const Input& input, const StepSpec& step, int64_t b, int64_t token, int64_t key,
               int64_t rest) const;

  std::map<std::string, Input> inputs_;
  std::map<std::string, std::vector<Axis>> caches_;
  std::optional<int64_t> fixed_batch_, fixed_tokens_;
  uint64_t seed_ = 1;
};

// A double in [-1, 1) from any numbers, the same on every machine.
double Noise(uint64_t a, uint64_t b, uint64_t c, uint64_t d);
// Stores v in element i of a tensor of any float, integer or bool type.
void StoreDouble(const exec::View& view, int64_t i, double v);

}  // namespace kvlift
