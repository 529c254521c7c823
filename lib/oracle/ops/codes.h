// Codes of quantised numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "onnx/onnx_pb.h"
#include "oracle/core/number.h"

namespace kvlift::oracle {

// Returns the least and the largest code of an integer type of 4, 8 or 16 bits; {0, 0} for others.
inline std::pair<double, double> RangeOfCodes(int32_t type) {
  using onnx::TensorProto;
  switch (type) {
    case TensorProto::UINT8:
      return {0, 255};
    case TensorProto::INT8:
      return {-128, 127};
    case TensorProto::UINT16:
      return {0, 65535};
    case TensorProto::INT16:
      return {-32768, 32767};
    case TensorProto::UINT4:
      return {0, 15};
    case TensorProto::INT4:
      return {-8, 7};
    default:
      return {0, 0};
  }
}

// Returns the code of the type that is nearest to quotient + zero, ties to even quotients. Sets
// *doubtful if an error of the quotient could change it.
inline int64_t NearestCode(const Number& quotient, double zero, int32_t type, bool* doubtful) {
  const auto [low, high] = RangeOfCodes(type);
  const double bound = BoundOf(quotient.worst, quotient.spread);
  const auto whole = [&, lowest = low, highest = high](double v) {
    return std::clamp(std::nearbyint(v) + zero, lowest, highest);
  };
  if (whole(quotient.value - bound) != whole(quotient.value + bound)) *doubtful = true;
  return static_cast<int64_t>(whole(quotient.value));
}

}  // namespace kvlift::oracle
