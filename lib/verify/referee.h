// Runs the oracle beside the executor: says how far rounding errors may move each element that a
// step gives, and whether the executor's elements lie within that.
//
// The oracle may do a fixed amount of work per run of verify. Steps that it has no work left for,
// and models with operators that have no meaning there, are judged by the fixed bound of compare.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exec/session.h"
#include "onnxio/model.h"
#include "oracle/interpreter.h"
#include "verify/verify.h"

namespace kvlift {

// Of one step of one model: per output a tensor of doubles of the output's shape.
struct OracleStep {
  // How far from the oracle's value an execution may be. Infinite: nothing is known. Absent:
  // integers, and outputs behind a decision that rounding errors may turn.
  exec::Fetches bounds;

  const exec::Tensor* BoundOf(const std::string& output) const;
};
using OracleRun = std::shared_ptr<const OracleStep>;  // null: the oracle did not run

// A referee says how far rounding errors may move what a step gives.
class Referee {
 public:
  virtual ~Referee() = default;

  // The bounds of what the source gave; null if nothing is known. `where` names the step in the
  // report.
  virtual OracleRun Source(const exec::Feeds& feeds, const exec::Fetches& got,
                           const std::string& where) = 0;
  // The bounds of what the converted model gave. `gaps`: per input how far each element is from
  // what the source was fed.
  virtual OracleRun Converted(const exec::Feeds& feeds,
                              const std::map<std::string, exec::Tensor>& gaps,
                              const exec::Fetches& got, const std::string& where) = 0;
};

class OracleReferee : public Referee {
 public:
  // `deviations`: what a gap is in standard deviations of its kind.
  OracleReferee(const Model& before, const Model& after, bool full,
                double deviations = oracle::kDeviations);

  // Null if the oracle cannot, or may not, run the step.
  OracleRun Source(const exec::Feeds& feeds, const exec::Fetches& got,
                   const std::string& where) override;
  OracleRun Converted(const exec::Feeds& feeds, const std::map<std::string, exec::Tensor>& gaps,
                      const exec::Fetches& got, const std::string& where) override;
  const OracleReport& report() const { return report_; }

 private:
  struct Side {
    std::string name;  // "source"
    std::optional<oracle::Interpreter> oracle;
    bool able = true;
  };
  void Prepare(const Model& model, Side* side);
  static int64_t WorkPerRow(const Side& side);
  OracleRun Run(Side& side, const exec::Feeds& feeds,
                const std::map<std::string, exec::Tensor>& gaps, const exec::Fetches& got,
                const std::string& where);
  void Hold(const Side& side, const std::string& output, const oracle::Value& value,
            const exec::View& got, const std::string& where, OracleStep* step);

  Side source_, converted_;
  double deviations_;
  int64_t left_;
  int exhausted_ = 0;
  OracleReport report_;
};

}  // namespace kvlift
