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
#include "soundness/compare.h"
#include "soundness/restrictions.h"
#include "soundness/shown_attentions.h"
#include "soundness/sketch.h"
#include "soundness/step.h"

namespace kvlift::soundness {

struct Decision {
  int runs = 0;    // steps that the source took
  int unfed = 0;   // steps that it refused
  int judged = 0;  // outputs that were compared
  std::optional<Difference> difference;
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
  Interpretation() = default;
  absl::Status Understand() const;
  std::optional<int64_t> Extent(const onnx::TensorShapeProto::Dimension& dim, const Step& step,
                                int64_t past) const;
  absl::StatusOr<Tensor> DrawInput(const onnx::ValueInfoProto& input, const Step& step,
                                   int64_t sequence, int64_t past, Random& random) const;
  // Whether sizes of a step are equal where the ledger says so.
  bool Permits(const Step& step) const;
  bool Permits(const Step& step, int64_t sequences, int64_t past) const;
  bool IsAxisOfPast(const std::string& input, int axis) const;
  absl::Status Draw(const Step& step, Random& random, Made* made) const;
  absl::StatusOr<oracle::Values> SourceFeeds(const Step& step, const Made& made, int first,
                                             int count) const;
  absl::StatusOr<oracle::Values> ConvertedFeeds(const Step& step, const Made& made) const;
  static oracle::Value AsValue(const Tensor& tensor);

  std::shared_ptr<const onnx::ModelProto> before_, after_;
  Manifest manifest_;
  Restrictions restrictions_;
  ShownAttentions attentions_;
  std::optional<int64_t> sequences_;  // where the caches of the conversion are for so many
  std::shared_ptr<oracle::Interpreter> source_, converted_;
};

}  // namespace kvlift::soundness
