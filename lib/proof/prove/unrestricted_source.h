// The unrestricted source of a converted model with static shapes, in addition to its restriction
// to those shapes (proof/graphs/frozen_sizes.h).
#pragma once

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnx/onnx_pb.h"
#include "proof/correspondence/correspondence.h"
#include "proof/correspondence/equality.h"
#include "proof/graphs/pair.h"
#include "proof/lower/branches.h"
#include "proof/lower/expand_contrib_ops.h"

namespace kvlift {

// The pair of the unrestricted source and the converted model, in which B and S are symbols. It
// shows whether padding tokens or other sequences change a result, which the restriction would
// hide.
class UnrestrictedSource {
 public:
  // `relation` and `steps` must outlive the result. Fails as GraphPair::Create.
  static absl::StatusOr<std::unique_ptr<UnrestrictedSource>> Create(ExpandedModel source,
                                                                    const onnx::ModelProto& after,
                                                                    const Manifest& relation,
                                                                    const SourceCase& steps);

  const GraphPair& pair() const { return *pair_; }
  const Correspondence& twins() const { return *twins_; }
  Equality& equality() { return *equality_; }

 private:
  UnrestrictedSource() = default;

  ExpandedModel source_;
  onnx::ModelProto result_;
  std::optional<GraphPair> pair_;
  std::optional<Correspondence> twins_;
  std::optional<Equality> equality_;
};

}  // namespace kvlift
