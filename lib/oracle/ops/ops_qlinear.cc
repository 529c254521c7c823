// Operators over codes that onnxruntime.quantization writes for the format QOperator: each stands
// for its operator over the real numbers (code - zero point) * scale, whose result is quantised.
// Source: ONNX QLinearMatMul; ONNX Runtime, contrib operators.
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "base/status.h"
#include "ir/types.h"
#include "oracle/core/op.h"
#include "oracle/ops/codes.h"

namespace kvlift::oracle {
namespace {

using onnx::TensorProto;

// Roundings of float32 that a kernel may make on the way to a quotient.
constexpr double kRoundings = 8;

// The scale and the zero point at operand `first`, of one element each.
struct Grid {
  double scale = 0, zero = 0;
};

bool ReadGrid(const OpContext& c, size_t first, Grid* grid) {
  if (!c.has(first) || !c.in[first].real() || !AreScalars(c, first, first + 1)) return false;
  grid->scale = ScalarOf(c.in[first]);
  grid->zero = c.has(first + 1) ? ScalarOf(c.in[first + 1]) : 0;
  return true;
}

bool AreCodes(const OpContext& c, size_t operand) {
  return c.has(operand) && !c.in[operand].real() && RangeOfCodes(c.in[operand].type()).second > 0;
}

// Returns a quotient that a kernel computes from terms of the size `size`.
Number Quotient(double value, double size) {
  const double unit = UnitOf(TensorProto::FLOAT) * (std::fabs(size) + std::fabs(value));
  return {value, kRoundings * unit, kRoundings * unit};
}

// Writes codes of `type`; f(i) returns the quotient of element i.
absl::Status SetCodes(OpContext& c, int32_t type, const Dims& dims, double zero,
                      const std::function<Number(int64_t)>& f) {
  std::vector<int64_t> out(static_cast<size_t>(Product(dims)));
  bool doubtful = false;
  for (int64_t i = 0; i < Product(dims); ++i) {
    out[static_cast<size_t>(i)] = NearestCode(f(i), zero, type, &doubtful);
  }
  (*c.out)[0] = Value::FromIntegers(type, dims, std::move(out));
  (*c.out)[0].doubtful = doubtful;
  return absl::OkStatus();
}

template <bool product>
absl::Status QBinary(OpContext& c) {
  constexpr size_t kRight = 3, kResult = 6;
  Grid x, y, z;
  if (!AreCodes(c, 0) || !AreCodes(c, kRight) || !ReadGrid(c, 1, &x) ||
      !ReadGrid(c, kRight + 1, &y) || !ReadGrid(c, kResult, &z)) {
    return Wrong(c, "operands");
  }
  const Value &a = c.in[0], &b = c.in[kRight];
  Dims dims;
  if (!Broadcast(a.dims(), b.dims(), &dims)) return Wrong(c, "shapes that do not fit");
  const auto ia = BroadcastIndex(a.dims(), dims), ib = BroadcastIndex(b.dims(), dims);
  return SetCodes(c, a.type(), dims, z.zero, [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    const double p = static_cast<double>(a.integers()[ia[at]]),
                 q = static_cast<double>(b.integers()[ib[at]]);
    const double left = (p - x.zero) * x.scale, right = (q - y.zero) * y.scale;
    if (product) return Quotient(left * right / z.scale, 0);
    const double size =
        (std::fabs(p) + std::fabs(x.zero)) * x.scale + (std::fabs(q) + std::fabs(y.zero)) * y.scale;
    return Quotient((left + right) / z.scale, size / z.scale + std::fabs(z.zero));
  });
}

// f is the function of real numbers.
absl::Status QUnary(OpContext& c, const std::function<double(double)>& f) {
  constexpr size_t kResult = 3;
  Grid x, y;
  if (!AreCodes(c, 0) || !ReadGrid(c, 1, &x) || !ReadGrid(c, kResult, &y)) {
    return Wrong(c, "operands");
  }
  const Value& codes = c.in[0];
  return SetCodes(c, codes.type(), codes.dims(), y.zero, [&](int64_t i) {
    const double code = static_cast<double>(codes.integers()[static_cast<size_t>(i)]);
    const double real = f((code - x.zero) * x.scale);
    return Quotient(real / y.scale, real / y.scale);
  });
}

absl::Status QSigmoid(OpContext& c) {
  return QUnary(c, [](double x) { return 1 / (1 + std::exp(-x)); });
}

absl::Status QLeakyRelu(OpContext& c) {
  const auto alpha = static_cast<double>(c.Float("alpha", 0.01F));
  return QUnary(c, [alpha](double x) { return x < 0 ? alpha * x : x; });
}

absl::Status QSoftmax(OpContext& c) {
  constexpr size_t kResult = 3;
  constexpr int64_t kOneAxis = 13;  // before, all axes from the axis on are one
  Grid x, y;
  if (!AreCodes(c, 0) || !ReadGrid(c, 1, &x) || !ReadGrid(c, kResult, &y)) {
    return Wrong(c, "operands");
  }
  const Value& codes = c.in[0];
  const int64_t axis = AxisOf(c.Int("axis", -1), codes.rank());
  if (axis < 0) return Wrong(c, "axis");
  int64_t extent = codes.dims()[static_cast<size_t>(axis)];
  int64_t inner = StridesOf(codes.dims())[static_cast<size_t>(axis)];
  if (c.Int("opset", 0) < kOneAxis) {
    extent *= inner;
    inner = 1;
  }
  if (codes.size() == 0) return SetCodes(c, codes.type(), codes.dims(), y.zero, {});
  const auto code = [&](int64_t at) {
    return static_cast<double>(codes.integers()[static_cast<size_t>(at)]);
  };
  const auto first = [&](int64_t i) { return i / (extent * inner) * extent * inner + i % inner; };
  c.work += 20 * codes.size();
  std::vector<double> tops(static_cast<size_t>(codes.size())), sums = tops;
  for (int64_t i = 0; i < codes.size(); ++i) {
    const auto line = static_cast<size_t>(first(i));
    tops[line] = i == first(i) ? code(i) : std::max(tops[line], code(i));
  }
  for (int64_t i = 0; i < codes.size(); ++i) {
    const auto line = static_cast<size_t>(first(i));
    sums[line] += std::exp((code(i) - tops[line]) * x.scale);
  }
  // The reciprocal of the scale is rounded down to a whole number (qlinear_softmax.cc).
  const double steps = std::floor(static_cast<double>(static_cast<float>(1 / y.scale)));
  return SetCodes(c, codes.type(), codes.dims(), y.zero, [&](int64_t i) {
    const auto line = static_cast<size_t>(first(i));
    const double weight = std::exp((code(i) - tops[line]) * x.scale) / sums[line] * steps;
    return Quotient(weight, weight);
  });
}

// Returns the quotient of element `at` of the codes `from`, at operand `operand`, on another grid.
Number OnGrid(const OpContext& c, size_t operand, int64_t at, const Grid& from, const Grid& to) {
  const double code = static_cast<double>(c.in[operand].integers()[static_cast<size_t>(at)]);
  if (from.scale == to.scale) return {code - from.zero, 0, 0};
  return Quotient((code - from.zero) * from.scale / to.scale, 0);
}

absl::Status QConcat(OpContext& c) {
  constexpr size_t kFirst = 2, kStep = 3;
  Grid to;
  if (!AreCodes(c, kFirst) || !ReadGrid(c, 0, &to)) return Wrong(c, "operands");
  Dims dims = c.in[kFirst].dims();
  const int64_t axis = AxisOf(c.Int("axis", 0), static_cast<int64_t>(dims.size()));
  if (axis < 0) return Wrong(c, "axis");
  const auto along = static_cast<size_t>(axis);
  dims[along] = 0;
  std::vector<Grid> grids;
  std::vector<int64_t> ends;  // of the parts, along the axis
  for (size_t k = kFirst; k < c.in.size(); k += kStep) {
    Dims own = AreCodes(c, k) ? c.in[k].dims() : Dims();
    if (own.size() != dims.size() || !ReadGrid(c, k + 1, &grids.emplace_back())) {
      return Wrong(c, "parts");
    }
    ends.push_back(dims[along] += own[along]);
    own[along] = dims[along];
    if (own != dims) return Wrong(c, "parts that do not fit");
  }
  std::vector<Number> quotients(static_cast<size_t>(Product(dims)));
  ForEach(dims, [&](int64_t i, const Dims& at) {
    const auto part =
        static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), at[along]) - ends.begin());
    const Value& own = c.in[kFirst + kStep * part];
    Dims place = at;
    place[along] -= part == 0 ? 0 : ends[part - 1];
    quotients[static_cast<size_t>(i)] =
        OnGrid(c, kFirst + kStep * part, Flat(place, StridesOf(own.dims())), grids[part], to);
  });
  return SetCodes(c, c.in[kFirst].type(), dims, to.zero,
                  [&](int64_t i) { return quotients[static_cast<size_t>(i)]; });
}

absl::Status QWhere(OpContext& c) {
  constexpr size_t kYes = 1, kNo = 4, kResult = 7;
  Grid yes, no, to;
  if (!AreCodes(c, kYes) || !AreCodes(c, kNo) || !ReadGrid(c, kYes + 1, &yes) ||
      !ReadGrid(c, kNo + 1, &no) || !ReadGrid(c, kResult, &to)) {
    return Wrong(c, "operands");
  }
  Dims both, dims;
  if (!Broadcast(c.in[kYes].dims(), c.in[kNo].dims(), &both) ||
      !Broadcast(c.in[0].dims(), both, &dims)) {
    return Wrong(c, "shapes that do not fit");
  }
  const auto which = BroadcastIndex(c.in[0].dims(), dims);
  const auto left = BroadcastIndex(c.in[kYes].dims(), dims);
  const auto right = BroadcastIndex(c.in[kNo].dims(), dims);
  return SetCodes(c, c.in[kYes].type(), dims, to.zero, [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    return c.in[0].integers()[which[at]] != 0 ? OnGrid(c, kYes, left[at], yes, to)
                                              : OnGrid(c, kNo, right[at], no, to);
  });
}

// Returns the number of a scale or zero point at an index of a line: there is one for all, or one
// for each.
double PerLine(const Value& v, int64_t line) {
  const auto at = static_cast<size_t>(v.size() == 1 ? 0 : line);
  return v.real() ? v.reals().value[static_cast<int64_t>(at)]
                  : static_cast<double>(v.integers()[at]);
}

// A product of matrices of codes, at operands 0 and 3.
constexpr size_t kRightCodes = 3;

bool AreLines(const OpContext& c, size_t first, int64_t lines) {
  for (size_t k : {first, first + 1}) {
    if (!c.has(k) || c.in[k].rank() > 1) return false;
    if (c.in[k].size() != 1 && c.in[k].size() != lines) return false;
  }
  return true;
}

absl::Status QMatMul(OpContext& c) {
  constexpr size_t kResult = 6;
  const Value &a = c.in[0], &b = c.in[kRightCodes];
  if (!AreCodes(c, 0) || !AreCodes(c, kRightCodes) || a.rank() < 2 || b.rank() < 2) {
    return NoMeaning(c, "this form");
  }
  const int64_t m = a.dims()[a.rank() - 2], k = a.dims().back(), n = b.dims().back();
  const Dims lead_a(a.dims().begin(), a.dims().end() - 2);
  const Dims lead_b(b.dims().begin(), b.dims().end() - 2);
  Dims dims;
  if (!Broadcast(lead_a, lead_b, &dims) || b.dims()[b.rank() - 2] != k) {
    return Wrong(c, "shapes that do not fit");
  }
  if (!AreLines(c, 1, m) || !AreLines(c, kRightCodes + 1, n) || !AreLines(c, kResult, 1)) {
    return NoMeaning(c, "scales of a batch");
  }
  const auto ia = BroadcastIndex(lead_a, dims), ib = BroadcastIndex(lead_b, dims);
  dims.insert(dims.end(), {m, n});
  KV_RETURN_IF_ERROR(c.Spend(Product(dims) * k * 2));
  const double scale = ScalarOf(c.in[kResult]);
  return SetCodes(c, c.in[kResult + 1].type(), dims, ScalarOf(c.in[kResult + 1]), [&](int64_t i) {
    const auto lead = static_cast<size_t>(i / (m * n));
    const int64_t row = i / n % m, column = i % n;
    double sum = 0;  // exact: codes have at most 16 bits
    for (int64_t t = 0; t < k; ++t) {
      const auto x = static_cast<size_t>((ia[lead] * m + row) * k + t);
      const auto y = static_cast<size_t>((ib[lead] * k + t) * n + column);
      sum += (static_cast<double>(a.integers()[x]) - PerLine(c.in[2], row)) *
             (static_cast<double>(b.integers()[y]) - PerLine(c.in[kRightCodes + 2], column));
    }
    const double value =
        sum * PerLine(c.in[1], row) * PerLine(c.in[kRightCodes + 1], column) / scale;
    return Quotient(value, 0);
  });
}

absl::Status QGemm(OpContext& c) {
  constexpr size_t kBias = 6, kResult = 7;
  const Value &a = c.in[0], &b = c.in[kRightCodes];
  if (!AreCodes(c, 0) || !AreCodes(c, kRightCodes) || a.rank() != 2 || b.rank() != 2) {
    return Wrong(c, "operands");
  }
  const bool turned_a = c.Int("transA", 0) != 0, turned_b = c.Int("transB", 0) != 0;
  const int64_t m = a.dims()[turned_a ? 1 : 0], k = a.dims()[turned_a ? 0 : 1];
  const int64_t n = b.dims()[turned_b ? 0 : 1];
  if (b.dims()[turned_b ? 1 : 0] != k || !AreLines(c, 1, 1) || !AreLines(c, kRightCodes + 1, n)) {
    return Wrong(c, "shapes that do not fit");
  }
  const Dims dims = {m, n};
  Dims all;
  std::vector<int64_t> bias(static_cast<size_t>(m * n), 0);
  if (c.has(kBias)) {
    const bool fits = Broadcast(c.in[kBias].dims(), dims, &all) && all == dims;
    if (!fits || c.in[kBias].real()) return Wrong(c, "bias");
    bias = BroadcastIndex(c.in[kBias].dims(), dims);
  }
  KV_RETURN_IF_ERROR(c.Spend(m * n * k * 2));
  const double alpha = static_cast<double>(c.Float("alpha", 1));
  const auto real = [&](int64_t i) {
    const int64_t row = i / n, column = i % n;
    double sum = 0;
    for (int64_t t = 0; t < k; ++t) {
      const auto x = static_cast<size_t>(turned_a ? t * m + row : row * k + t);
      const auto y = static_cast<size_t>(turned_b ? column * k + t : t * n + column);
      sum += (static_cast<double>(a.integers()[x]) - PerLine(c.in[2], 0)) *
             (static_cast<double>(b.integers()[y]) - PerLine(c.in[kRightCodes + 2], column));
    }
    if (c.has(kBias)) {
      sum += static_cast<double>(c.in[kBias].integers()[bias[static_cast<size_t>(i)]]);
    }
    return sum * alpha * PerLine(c.in[1], 0) * PerLine(c.in[kRightCodes + 1], column);
  };
  if (!c.has(kResult)) {
    Reals out(m * n);
    for (int64_t i = 0; i < m * n; ++i) {
      out.Set(i, Approximated({real(i), 0, 0}, TensorProto::FLOAT, kRoundings));
    }
    (*c.out)[0] = Value::FromReals(TensorProto::FLOAT, dims, std::move(out));
    return absl::OkStatus();
  }
  Grid to;
  if (!ReadGrid(c, kResult, &to) || !c.has(kResult + 1)) return Wrong(c, "scale");
  return SetCodes(c, c.in[kResult + 1].type(), dims, to.zero,
                  [&](int64_t i) { return Quotient(real(i) / to.scale, 0); });
}

constexpr OpEntry kQLinearOps[] = {
    {"", "QLinearMatMul", QMatMul},
    {"com.microsoft", "QGemm", QGemm},
    {"com.microsoft", "QLinearAdd", QBinary<false>},
    {"com.microsoft", "QLinearConcat", QConcat},
    {"com.microsoft", "QLinearLeakyRelu", QLeakyRelu},
    {"com.microsoft", "QLinearMul", QBinary<true>},
    {"com.microsoft", "QLinearSigmoid", QSigmoid},
    {"com.microsoft", "QLinearSoftmax", QSoftmax},
    {"com.microsoft", "QLinearWhere", QWhere},
};

}  // namespace

absl::Span<const OpEntry> QLinearOps() { return kQLinearOps; }

}  // namespace kvlift::oracle
