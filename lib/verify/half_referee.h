// Says how far models of half precision may be apart when they run in their own types: the source's
// own rounding error is measured, against the source computed in float32 on the same inputs.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "verify/drive.h"
#include "verify/lifted_types.h"
#include "verify/referee.h"

namespace kvlift {

class HalfReferee : public Referee {
 public:
  // InvalidArgument, NotFound and the executor's errors if the source does not run in float32.
  static absl::StatusOr<HalfReferee> Create(const Model& source, const LiftedWeights& weights,
                                            int threads);

  // The bound of each element of a half type is some times the largest error of its output, and at
  // least some units in the last place of the output's largest number. Null if the lifted source
  // refuses the step. Integers and other types have no bound.
  OracleRun Source(const exec::Feeds& feeds, const exec::Fetches& got,
                   const std::string& where) override;
  // Nothing is added for the converted model.
  OracleRun Converted(const exec::Feeds& feeds, const std::map<std::string, exec::Tensor>& gaps,
                      const exec::Fetches& got, const std::string& where) override;

 private:
  explicit HalfReferee(Runner source) : source_(std::move(source)) {}

  Runner source_;  // in float32
};

}  // namespace kvlift
