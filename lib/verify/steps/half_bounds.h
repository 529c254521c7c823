// Bounds for models of half precision that run in their own types. The source's rounding error is
// measured: its outputs are compared with those of the source computed in float32 on the same
// inputs.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "verify/steps/decisions.h"
#include "verify/steps/drive.h"
#include "verify/steps/oracle_runner.h"
#include "verify/variants/lifted_types.h"

namespace kvlift {

class HalfBounds : public ErrorBounds {
 public:
  // Creates the float32 source, which follows the decisions of the source. `decisions` must outlive
  // the bounds. Errors are those of LiftedWeights::WithFloat32 and Runner::Create.
  static absl::StatusOr<HalfBounds> Create(const Model& source, const LiftedWeights& weights,
                                           const Decisions& decisions, int threads);

  bool IsCheap() const override { return true; }
  // Returns one bound for all elements of an output: 8 times the largest error of the output, and
  // at least 8 epsilons of its largest number, in the type of its numbers; float32 outputs of
  // models that compute in half types have errors, too. Integers have no bound. Null if the float32
  // source refuses the step.
  OracleRun Source(const exec::Feeds& feeds, const exec::Fetches& got,
                   const std::string& where) override;
  // Returns the bound 0 for each output of floats: the source's bound covers both models.
  OracleRun Converted(const exec::Feeds& feeds, const std::map<std::string, exec::Tensor>& gaps,
                      const exec::Fetches& got, const std::string& where) override;

 private:
  HalfBounds(Runner source, const Decisions& decisions)
      : source_(std::move(source)), decisions_(decisions) {}

  Runner source_;  // in float32
  const Decisions& decisions_;
};

}  // namespace kvlift
