// Runs the oracle (lib/oracle) beside the executor. It computes, for each element of a step's
// outputs, how far rounding errors may move it, and checks that the executor's element lies within
// that bound.
//
// The oracle has a budget of work per verdict. Steps beyond the budget, and models with operators
// that the oracle does not implement, are judged by the fixed bound of compare.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "exec/session/session.h"
#include "onnxio/model/model.h"
#include "oracle/core/interpreter.h"
#include "verify/report/verify_report.h"

namespace kvlift {

// The bounds of one step of one model.
struct OracleStep {
  // How far an execution may be from the exact value, by output: doubles of the output's shape.
  // Infinite: nothing is known about the element. An output has no entry if it holds integers, or
  // if it is in `doubtful`.
  exec::Fetches bounds;
  // Outputs that depend on a decision that rounding errors may change (TopK, ArgMax, a comparison,
  // an integer code of a quantiser).
  std::set<std::string> doubtful;

  const exec::Tensor* BoundOf(const std::string& output) const;  // null if there is no entry
};
using OracleRun = std::shared_ptr<const OracleStep>;  // null: no bounds are known of the step

// Returns why a difference of an output in OracleStep::doubtful is not judged. what: the output,
// and where it was seen.
std::string RoundingMayDecide(std::string_view what);

// Computes how far rounding errors may move the outputs of a step.
class ErrorBounds {
 public:
  virtual ~ErrorBounds() = default;

  // Returns true if bounds cost about as much as an execution of the source, so that each plan may
  // have them; false if they cost much more, so that plans whose sizes alone matter have none.
  virtual bool IsCheap() const { return false; }
  // Returns the bounds of the source's outputs `got`; null if nothing is known. `where` names the
  // step in the report.
  virtual OracleRun Source(const exec::Feeds& feeds, const exec::Fetches& got,
                           const std::string& where) = 0;
  // Returns the bounds of the converted model's outputs `got`; null if nothing is known. gaps: by
  // input, doubles of its shape: the distance of each element from what the source was fed.
  virtual OracleRun Converted(const exec::Feeds& feeds,
                              const std::map<std::string, exec::Tensor>& gaps,
                              const exec::Fetches& got, const std::string& where) = 0;
};

class OracleBounds : public ErrorBounds {
 public:
  // full: a budget of minutes instead of seconds. deviations: the number of standard deviations of
  // an error that a gap counts as. A model that the oracle cannot run has no bounds; report() says
  // why.
  OracleBounds(const Model& before, const Model& after, bool full,
               double deviations = oracle::kDeviations);

  // Null if the oracle cannot run the step, or has no budget left for it.
  OracleRun Source(const exec::Feeds& feeds, const exec::Fetches& got,
                   const std::string& where) override;
  OracleRun Converted(const exec::Feeds& feeds, const std::map<std::string, exec::Tensor>& gaps,
                      const exec::Fetches& got, const std::string& where) override;
  const OracleReport& report() const { return report_; }

 private:
  struct Side {
    std::string name;  // "source" or "converted"
    std::optional<oracle::Interpreter> oracle;
    bool able = true;  // the oracle knows all operators, and no step failed for another reason
  };
  void Prepare(const Model& model, Side* side);
  // Returns the scalar operations that the model's products take per row; 0 if it cannot be run.
  static int64_t WorkPerRow(const Side& side);
  OracleRun Run(Side& side, const exec::Feeds& feeds,
                const std::map<std::string, exec::Tensor>& gaps, const exec::Fetches& got,
                const std::string& where);
  // Compares the executor's output with the oracle's, notes a disagreement in the report, and adds
  // the bounds to `step`.
  void Hold(const Side& side, const std::string& output, const oracle::Value& value,
            const exec::View& got, const std::string& where, OracleStep* step);

  Side source_, converted_;
  double deviations_;
  int64_t left_;       // scalar operations that the budget still has
  int exhausted_ = 0;  // steps that were found to exceed the budget after much work
  OracleReport report_;
};

}  // namespace kvlift
