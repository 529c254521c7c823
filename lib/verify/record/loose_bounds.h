// Bounds that hold for runtimes that fuse operators.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "verify/record/quantized_rows.h"
#include "verify/steps/oracle_runner.h"

namespace kvlift {

// The oracle takes a product of two exact numbers for exact up to one rounding, as it is in an
// executor that computes operator by operator. A runtime that fuses a product and a sum rounds
// once in place of twice. These bounds therefore take each real number that is fed to the converted
// model for inexact by half a unit in the last place. For rows that are fed to a cache which the
// runtime stores quantised, the error of that quantisation counts if it is larger.
class LooseBounds : public ErrorBounds {
 public:
  // `bounds` must outlive this.
  LooseBounds(ErrorBounds* bounds, std::map<std::string, RowStorage> stored)
      : bounds_(bounds), stored_(std::move(stored)) {}

  OracleRun Source(const exec::Feeds& feeds, const exec::Fetches& got,
                   const std::string& where) override {
    return bounds_->Source(feeds, got, where);
  }
  OracleRun Converted(const exec::Feeds& feeds, const std::map<std::string, exec::Tensor>& gaps,
                      const exec::Fetches& got, const std::string& where) override;

 private:
  ErrorBounds* bounds_;
  std::map<std::string, RowStorage> stored_;  // by input
};

}  // namespace kvlift
