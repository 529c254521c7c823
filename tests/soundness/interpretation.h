// Decides whether two models differ at any small shape, by running both in the oracle. Feeds are
// arbitrary within what the relation and the ledger of the proof require: masks with holes,
// positions with gaps, arbitrary values in unused slots, sequences of different lengths.
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
#include "oracle/core/interpreter.h"
#include "soundness/compare.h"
#include "soundness/restrictions.h"
#include "soundness/shown_attentions.h"
#include "soundness/sketch.h"
#include "soundness/step.h"

namespace kvlift::soundness {

struct Decision {
  int runs = 0;    // steps that the source ran
  int unfed = 0;   // steps that the source refused
  int judged = 0;  // outputs that were compared
  std::optional<Difference> difference;
};

class Interpretation {
 public:
  // Returns Unimplemented for dimensions or caches that cannot be fed, and for operators that the
  // oracle cannot compute.
  static absl::StatusOr<Interpretation> Create(std::shared_ptr<const onnx::ModelProto> before,
                                               std::shared_ptr<const onnx::ModelProto> after,
                                               const Manifest& manifest,
                                               const Assumptions& assumptions);

  // Runs up to `steps` random steps; stops at the first difference.
  Decision Decide(int steps, Random& random) const;

 private:
  Interpretation() = default;
  absl::Status Understand() const;
  std::optional<int64_t> Extent(const onnx::TensorShapeProto::Dimension& dim, const Step& step,
                                int64_t past) const;
  absl::StatusOr<Tensor> DrawInput(const onnx::ValueInfoProto& input, const Step& step,
                                   int64_t sequence, int64_t past, Random& random) const;
  // Returns true if the sizes of a step satisfy the ledger.
  bool Permits(const Step& step) const;
  bool Permits(const Step& step, int64_t sequences, int64_t past) const;
  // Returns true if sequences may have padding tokens: all caches grow, and no size has a name that
  // may stand for the number of tokens.
  bool MayPad() const;
  bool IsAxisOfPast(const std::string& input, int axis) const;
  absl::Status Draw(const Step& step, Random& random, Made* made) const;
  // Runs the source on a step, once or once for each sequence. Returns false if it does not run, or
  // if the ledger excludes what it computed.
  bool RunSource(const Step& step, const Made& made, int64_t* work,
                 std::vector<oracle::Values>* results) const;
  absl::StatusOr<oracle::Values> SourceFeeds(const Step& step, const Made& made, int first,
                                             int count) const;
  absl::StatusOr<oracle::Values> ConvertedFeeds(const Step& step, const Made& made) const;
  static oracle::Value AsValue(const Tensor& tensor);

  std::shared_ptr<const onnx::ModelProto> before_, after_;
  Manifest manifest_;
  Restrictions restrictions_;
  ShownAttentions attentions_;
  std::optional<int64_t> sequences_;  // the fixed batch size of the conversion's caches, if any
  std::shared_ptr<oracle::Interpreter> source_, converted_;
};

}  // namespace kvlift::soundness
