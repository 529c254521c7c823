// Errors of sums, of products of rows and of softmax, for any order of summation.
#pragma once

#include <cstdint>
#include <vector>

#include "oracle/core/number.h"

namespace kvlift::oracle {

// A sum of many terms.
class Sum {
 public:
  void Add(const Number& term) {
    const double size = std::fabs(term.value);
    value_ += term.value;
    worst_ += term.worst;
    variance_ += term.spread * term.spread;
    sizes_ += size + term.worst;
    sizes_near_ += size;
    exact_ = exact_ && term.exact() && term.value == std::floor(term.value);
    ++count_;
  }
  double value() const { return value_; }
  int64_t count() const { return count_; }
  // Returns the sum with the rounding errors of accumulating it in the accumulation type of `type`,
  // and of `more` roundings per term. It is not rounded to `type`.
  Number Carried(int32_t type, double more = 0) const;
  // Returns the same, rounded to `type`.
  Number Result(int32_t type, double more = 0) const;

 private:
  double value_ = 0, worst_ = 0, variance_ = 0, sizes_ = 0, sizes_near_ = 0;
  int64_t count_ = 0;
  bool exact_ = true;
};

// Computes the softmax of one row in place. `type` is the element type of the result.
void SoftmaxRow(std::vector<Number>& row, int32_t type);

}  // namespace kvlift::oracle
