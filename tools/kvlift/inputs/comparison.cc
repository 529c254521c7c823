#include "kvlift/inputs/comparison.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <vector>

#include "fmt/format.h"
#include "ir/types.h"
#include "onnx/onnx_pb.h"

namespace kvlift::cli {
namespace {

using onnx::TensorProto;

struct Tolerance {
  double relative, absolute;
};

Tolerance ToleranceOf(int32_t type, const CompareOptions& options) {
  Tolerance own{1e-3, 1e-5};
  if (options.as_onnx) {
    // Source: onnx.backend.test.runner, assert_similar_outputs.
    own = {type == TensorProto::BFLOAT16 ? 0x1p-6 : 1e-3, 1e-7};
  } else if (type == TensorProto::FLOAT16) {
    own = {1e-2, 1e-2};
  } else if (type == TensorProto::BFLOAT16) {
    own = {4e-2, 4e-2};
  }
  return {options.rtol.value_or(own.relative), options.atol.value_or(own.absolute)};
}

bool SameNumber(double actual, double expected, const Tolerance& tolerance) {
  if (std::isnan(actual) || std::isnan(expected)) return std::isnan(actual) == std::isnan(expected);
  if (std::isinf(actual) || std::isinf(expected)) return actual == expected;
  return std::abs(actual - expected) <=
         tolerance.absolute + tolerance.relative * std::abs(expected);
}

std::string Described(const exec::View& value) {
  if (value.type == exec::kNothing) return "nothing";
  return fmt::format("{} {}", KindName(value), exec::ShapeString(value.shape));
}

// Compares the items of two sequences of one length.
ValueComparison CompareItems(const exec::View& actual, const exec::View& expected,
                             const CompareOptions& options) {
  ValueComparison all;
  all.equal = true;
  const auto& a = *actual.as<std::vector<exec::Tensor>>();
  const auto& e = *expected.as<std::vector<exec::Tensor>>();
  for (size_t i = 0; i < a.size(); ++i) {
    const ValueComparison c = Compare(a[i].view(), e[i].view(), options);
    all.max_abs = std::max(all.max_abs, c.max_abs);
    all.max_rel = std::max(all.max_rel, c.max_rel);
    if (c.equal || !all.equal) continue;
    all.equal = false;
    all.text = fmt::format("item {}: {}", i, c.text);
  }
  return all;
}

// Compares two tensors of numbers of one type and shape.
ValueComparison CompareNumbers(const exec::View& actual, const exec::View& expected,
                               const CompareOptions& options) {
  ValueComparison c;
  c.equal = true;
  if (!IsFloatType(actual.type)) {
    const auto bytes = static_cast<size_t>(actual.bytes());
    if (bytes == 0 || std::memcmp(actual.data, expected.data, bytes) == 0) return c;
  }
  const Tolerance tolerance = ToleranceOf(actual.type, options);
  for (int64_t i = 0; i < actual.size(); ++i) {
    const double a = exec::ElementAsDouble(actual, i), e = exec::ElementAsDouble(expected, i);
    const bool same = IsFloatType(actual.type) ? SameNumber(a, e, tolerance) : a == e;
    if (std::isfinite(a) && std::isfinite(e)) {
      c.max_abs = std::max(c.max_abs, std::abs(a - e));
      if (e != 0) c.max_rel = std::max(c.max_rel, std::abs(a - e) / std::abs(e));
    }
    if (!same && c.equal) {
      c.equal = false;
      c.text = fmt::format("element {} is {:.9g}, expected {:.9g}", i, a, e);
    }
  }
  // Integers may exceed the precision of doubles, so their bytes are compared. The unused bits
  // behind the last element of a packed type do not count.
  if (c.equal && !IsFloatType(actual.type) && ElementBits(actual.type) >= 8) {
    c.equal = false;
    c.text = "differs";
  }
  return c;
}

}  // namespace

bool IsOnnxTestData(const std::string& folder) {
  std::filesystem::path path(folder);
  if (!path.has_filename()) path = path.parent_path();  // behind a final separator
  return path.filename().string().rfind("test_data_set_", 0) == 0;
}

std::string KindName(const exec::View& value) {
  return value.type == exec::kSequence  ? "sequence"
         : value.type == exec::kNothing ? "nothing"
                                        : ElementTypeName(value.type);
}

ValueComparison Compare(const exec::View& actual, const exec::View& expected,
                        const CompareOptions& options) {
  ValueComparison c;
  if (actual.type != expected.type || actual.shape != expected.shape) {
    c.text = fmt::format("is {}, expected {}", Described(actual), Described(expected));
    return c;
  }
  if (actual.type == exec::kNothing) {
    c.equal = true;
    return c;
  }
  if (actual.type == exec::kSequence) return CompareItems(actual, expected, options);
  if (actual.type == TensorProto::STRING) {
    const auto a = actual.span<std::string>(), e = expected.span<std::string>();
    c.equal = std::equal(a.begin(), a.end(), e.begin(), e.end());
    if (!c.equal) c.text = "differs";
    return c;
  }
  if (actual.bytes() >= 0) return CompareNumbers(actual, expected, options);
  c.text = "is no tensor";
  return c;
}

}  // namespace kvlift::cli
