// Whether two models differ at any small shape, by running both in the oracle. What is fed is free
// within what the relation and the ledger of the proof ask for: masks with holes, positions with
// gaps, noise in unused slots, sequences of different lengths.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/assumptions.h"
#include "contract/manifest.h"
#include "onnx/onnx_pb.h"
#include "oracle/interpreter.h"
#include "soundness/sketch.h"

namespace kvlift::soundness {

struct Difference {
  // The conversion stops where the source runs.
  bool stops = false;
  std::string where;  // the shape, the output, the element, and both numbers
};

struct Decision {
  int runs = 0;    // steps that the source took
  int unfed = 0;   // steps that it refused
  int judged = 0;  // outputs that were compared
  std::optional<Difference> difference;
};

struct Restrictions {
  bool one_length = false;  // of all sequences
  bool one_token_with_past = false;
  bool tokens_visible = false;       // no token is hidden from itself
  std::vector<std::string> counted;  // inputs that hold P..T-1
  std::vector<std::string> ones, zeros, binary;
  bool tame = false;  // no large numbers
  bool may_stop = false;
  bool reordered = false;  // an input `beams` says from which sequences a step goes on
};

class Interpretation {
 public:
  // Unimplemented: dimensions or caches that nothing says how to feed, or operators that the oracle
  // does not know.
  static absl::StatusOr<Interpretation> Create(std::shared_ptr<const onnx::ModelProto> before,
                                               std::shared_ptr<const onnx::ModelProto> after,
                                               const Manifest& manifest,
                                               const Assumptions& assumptions);

  // Stops at the first difference.
  Decision Decide(int steps, Random& random) const;

 private:
  struct Tensor {
    int32_t type = 0;
    oracle::Dims dims;
    std::vector<double> values;
  };
  struct Step;
  struct Made;

  Interpretation() = default;
  void Restrict(const Assumptions& assumptions);
  absl::Status Understand() const;
  std::optional<int64_t> Extent(const onnx::TensorShapeProto::Dimension& dim, const Step& step,
                                int64_t past) const;
  absl::StatusOr<Tensor> DrawInput(const onnx::ValueInfoProto& input, const Step& step,
                                   int64_t sequence, int64_t past, Random& random) const;
  absl::Status Draw(const Step& step, Random& random, Made* made) const;
  absl::StatusOr<oracle::Values> SourceFeeds(const Step& step, const Made& made, int first,
                                             int count) const;
  absl::StatusOr<oracle::Values> ConvertedFeeds(const Step& step, const Made& made) const;
  std::optional<Difference> Compare(const Step& step, const Made& made,
                                    const std::vector<oracle::Values>& source,
                                    const oracle::Values& converted, int* judged) const;
  static oracle::Value AsValue(const Tensor& tensor);

  std::shared_ptr<const onnx::ModelProto> before_, after_;
  Manifest manifest_;
  Restrictions restrictions_;
  std::shared_ptr<oracle::Interpreter> source_, converted_;
};

}  // namespace kvlift::soundness
