// Reductions along axes, running sums, softmax, largest elements.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "oracle/core/op.h"
#include "oracle/core/sums.h"

namespace kvlift::oracle {
namespace {

using onnx::TensorProto;

// Maps each element of the operand to its element of the result.
struct Reduction {
  Dims dims;          // of the result
  int64_t count = 1;  // number of results
  int64_t each = 1;   // elements per result
  std::vector<int64_t> to;
};

absl::Status Plan(const OpContext& c, Reduction* r) {
  const Value& x = c.in[0];
  std::vector<int64_t> axes = IntsOf(c, 1, "axes");
  if (c.node.op_type().starts_with("Global")) {  // GlobalAveragePool, GlobalMaxPool
    if (x.rank() < 3) return Wrong(c, "rank");
    for (int64_t k = 2; k < x.rank(); ++k) axes.push_back(k);
  }
  const bool noop = c.Int("noop_with_empty_axes", 0) != 0;
  std::vector<bool> gone(x.dims().size(), axes.empty() && !noop);
  for (int64_t axis : axes) {
    const int64_t a = AxisOf(axis, x.rank());
    if (a < 0) return Wrong(c, "axis");
    gone[a] = true;
  }
  const bool keep = c.Int("keepdims", 1) != 0;
  Dims full = x.dims();
  for (size_t k = 0; k < full.size(); ++k) {
    if (!gone[k]) continue;
    r->each *= full[k];
    full[k] = 1;
  }
  Dims strides = StridesOf(full);
  for (size_t k = 0; k < full.size(); ++k) {
    if (gone[k]) strides[k] = 0;
    if (!gone[k] || keep) r->dims.push_back(full[k]);
  }
  r->count = Product(full);
  r->to.resize(static_cast<size_t>(x.size()));
  ForEach(x.dims(), [&](int64_t i, const Dims& at) { r->to[i] = Flat(at, strides); });
  return absl::OkStatus();
}

// Computes g(sum of f(element)).
template <typename F, typename G>
absl::Status SumLike(OpContext& c, F f, double roundings, G g,
                     int64_t (*integers)(int64_t) = nullptr, bool mean = false) {
  Reduction r;
  const absl::Status status = Plan(c, &r);
  if (!status.ok()) return status;
  const Value& x = c.in[0];
  if (!x.real()) {
    if (integers == nullptr) return NoMeaning(c, "integers");
    std::vector<int64_t> out(static_cast<size_t>(r.count), 0);
    for (int64_t i = 0; i < x.size(); ++i) out[r.to[i]] += integers(x.integers()[i]);
    for (int64_t& v : out) {
      if (mean && r.each > 0) v /= r.each;
      v = Wrap(x.type(), v);
    }
    (*c.out)[0] = Value::FromIntegers(x.type(), r.dims, std::move(out));
    return absl::OkStatus();
  }
  std::vector<Sum> sums(static_cast<size_t>(r.count));
  for (int64_t i = 0; i < x.size(); ++i) sums[r.to[i]].Add(f(x.reals().At(i)));
  Reals out(r.count);
  for (int64_t i = 0; i < r.count; ++i) {
    out.Set(i, g(sums[i].Carried(x.type(), roundings), x.type()));
  }
  (*c.out)[0] = Value::FromReals(x.type(), r.dims, std::move(out));
  return absl::OkStatus();
}

Number Itself(const Number& x) { return x; }
Number Size(const Number& x) { return {std::fabs(x.value), x.worst, x.spread}; }
Number Square(const Number& x) {
  const double size = std::fabs(x.value);
  return {x.value * x.value, 2 * size * x.worst + x.worst * x.worst,
          2 * size * x.spread + x.spread * x.spread};
}
Number Power(const Number& x) {
  return Monotone(x, std::exp(x.value), [](double v) { return std::exp(v); });
}
Number Logarithm(const Number& x, int32_t type) {
  return Approximated(Monotone(x, 1 / x.value, [](double v) { return std::log(v); }), type, 2);
}
Number SumResult(const Number& n, int32_t type) {
  return UnitOf(type) >= 2 * SumUnitOf(type) || n.exact() ? Rounded(n, type) : Limited(n, type);
}

absl::Status ReduceSum(OpContext& c) {
  return SumLike(c, Itself, 0, SumResult, [](int64_t v) { return v; });
}

absl::Status ReduceMean(OpContext& c) {
  Reduction r;
  const absl::Status status = Plan(c, &r);
  if (!status.ok()) return status;
  const auto n = static_cast<double>(r.each);
  return SumLike(
      c, Itself, 0,
      [n](const Number& sum, int32_t type) {
        return Approximated(Over(sum, {n, 0, 0}), type, 1);
      },
      [](int64_t v) { return v; }, true);
}

absl::Status ReduceSumSquare(OpContext& c) {
  return SumLike(c, Square, 1, SumResult, [](int64_t v) { return v * v; });
}

absl::Status ReduceL1(OpContext& c) {
  return SumLike(c, Size, 0, SumResult, [](int64_t v) { return v < 0 ? -v : v; });
}

absl::Status ReduceL2(OpContext& c) {
  return SumLike(c, Square, 1, [](const Number& sum, int32_t type) {
    Number root = Monotone(sum, 0.5 / std::sqrt(sum.value),
                           [](double v) { return std::sqrt(std::max(v, 0.0)); });
    if (std::isinf(root.spread)) root.spread = std::sqrt(sum.spread);
    return Approximated(root, type, 1);
  });
}

absl::Status ReduceLogSum(OpContext& c) { return SumLike(c, Itself, 0, Logarithm); }
absl::Status ReduceLogSumExp(OpContext& c) { return SumLike(c, Power, 40, Logarithm); }

absl::Status ReduceProd(OpContext& c) {
  Reduction r;
  const absl::Status status = Plan(c, &r);
  if (!status.ok()) return status;
  const Value& x = c.in[0];
  if (x.real()) {
    Reals out(r.count);
    std::fill(out.value.begin(), out.value.end(), 1.0);
    for (int64_t i = 0; i < x.size(); ++i) {
      out.Set(r.to[i], Rounded(Times(out.At(r.to[i]), x.reals().At(i)), x.type()));
    }
    (*c.out)[0] = Value::FromReals(x.type(), r.dims, std::move(out));
    return absl::OkStatus();
  }
  std::vector<int64_t> out(static_cast<size_t>(r.count), 1);
  for (int64_t i = 0; i < x.size(); ++i) {
    out[r.to[i]] = Wrap(x.type(), out[r.to[i]] * x.integers()[i]);
  }
  (*c.out)[0] = Value::FromIntegers(x.type(), r.dims, std::move(out));
  return absl::OkStatus();
}

template <bool larger>
absl::Status ReduceExtreme(OpContext& c) {
  Reduction r;
  const absl::Status status = Plan(c, &r);
  if (!status.ok()) return status;
  const Value& x = c.in[0];
  if (x.real()) {
    Reals out(r.count);
    std::fill(out.value.begin(), out.value.end(), larger ? -HUGE_VAL : HUGE_VAL);
    for (int64_t i = 0; i < x.size(); ++i) {
      const Number a = out.At(r.to[i]), b = x.reals().At(i);
      if (std::isnan(a.value)) continue;
      const bool better = std::isnan(b.value) || (larger ? b.value > a.value : b.value < a.value);
      out.Set(r.to[i], {better ? b.value : a.value, std::max(a.worst, b.worst),
                        std::max(a.spread, b.spread)});
    }
    (*c.out)[0] = Value::FromReals(x.type(), r.dims, std::move(out));
    return absl::OkStatus();
  }
  const bool is_unsigned = x.type() == TensorProto::UINT64;
  std::vector<int64_t> out(static_cast<size_t>(r.count));
  std::vector<bool> seen(static_cast<size_t>(r.count), false);
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t a = out[r.to[i]], b = x.integers()[i];
    const bool less = is_unsigned ? static_cast<uint64_t>(a) < static_cast<uint64_t>(b) : a < b;
    if (!seen[r.to[i]] || (a != b && less == larger)) out[r.to[i]] = b;
    seen[r.to[i]] = true;
  }
  if (std::find(seen.begin(), seen.end(), false) != seen.end()) return NoMeaning(c, "no elements");
  (*c.out)[0] = Value::FromIntegers(x.type(), r.dims, std::move(out));
  return absl::OkStatus();
}

// A tensor as lines along an axis: outer x extent x inner.
struct Lines {
  int64_t outer = 1, extent = 1, inner = 1;

  Lines(const Dims& dims, int64_t axis) {
    for (int64_t k = 0; k < axis; ++k) outer *= dims[k];
    extent = dims[axis];
    for (size_t k = static_cast<size_t>(axis) + 1; k < dims.size(); ++k) inner *= dims[k];
  }
  int64_t At(int64_t line, int64_t k) const {
    return (line / inner * extent + k) * inner + line % inner;
  }
  int64_t count() const { return outer * inner; }
};

template <typename F>
absl::Status SoftmaxLike(OpContext& c, F f) {
  const Value& x = c.in[0];
  const int64_t axis = AxisOf(c.Int("axis", c.opset < 13 ? 1 : -1), x.rank());
  if (axis < 0) return Wrong(c, "axis");
  Lines lines(x.dims(), axis);
  if (c.opset < 13) {  // all dimensions from the axis on form one
    lines.extent *= lines.inner;
    lines.inner = 1;
  }
  Reals out(x.size());
  std::vector<Number> row(static_cast<size_t>(lines.extent));
  for (int64_t line = 0; line < lines.count(); ++line) {
    for (int64_t k = 0; k < lines.extent; ++k) row[k] = x.reals().At(lines.At(line, k));
    f(row, x.type());
    for (int64_t k = 0; k < lines.extent; ++k) out.Set(lines.At(line, k), row[k]);
  }
  c.work += 20 * x.size();
  (*c.out)[0] = Value::FromReals(x.type(), x.dims(), std::move(out));
  return absl::OkStatus();
}

absl::Status Softmax(OpContext& c) { return SoftmaxLike(c, SoftmaxRow); }

absl::Status LogSoftmax(OpContext& c) {
  return SoftmaxLike(c, [](std::vector<Number>& row, int32_t type) {
    double top = -HUGE_VAL, sum = 0, most = 0;
    for (const Number& x : row) {
      top = std::max(top, x.value);
      most = std::max(most, x.worst);
    }
    double spread = 0;
    for (const Number& x : row) {
      sum += std::exp(x.value - top);
      spread = std::max(spread, x.spread);
    }
    const double n = static_cast<double>(row.size()), u = SumUnitOf(type);
    for (Number& x : row) {
      const double y = x.value - top - std::log(sum);
      const double size = std::fabs(x.value - top) + std::log(sum) + 1;
      x = Approximated({y, x.worst + most + Gamma(n + 8, u) * size,
                        std::hypot(x.spread + spread, u * std::sqrt(n + 8) * size)},
                       type, 2);
    }
  });
}

absl::Status Hardmax(OpContext& c) {
  bool doubtful = false;
  const absl::Status status = SoftmaxLike(c, [&doubtful](std::vector<Number>& row, int32_t) {
    size_t best = 0;
    for (size_t k = 1; k < row.size(); ++k) {
      if (row[k].value > row[best].value) best = k;
    }
    for (const Number& x : row) doubtful = doubtful || !x.exact();
    for (size_t k = 0; k < row.size(); ++k) row[k] = {k == best ? 1.0 : 0.0, 0, 0};
  });
  (*c.out)[0].doubtful = doubtful;
  return status;
}

absl::Status CumSum(OpContext& c) {
  if (!AreScalars(c, 1, 1)) return Wrong(c, "axis");
  const Value& x = c.in[0];
  const int64_t axis = AxisOf(c.in[1].integers()[0], x.rank());
  if (axis < 0) return Wrong(c, "axis");
  const bool exclusive = c.Int("exclusive", 0) != 0, reverse = c.Int("reverse", 0) != 0;
  const Lines lines(x.dims(), axis);
  Reals out(x.real() ? x.size() : 0);
  std::vector<int64_t> whole(static_cast<size_t>(x.real() ? 0 : x.size()));
  for (int64_t line = 0; line < lines.count(); ++line) {
    Sum sum;
    int64_t total = 0;
    for (int64_t step = 0; step < lines.extent; ++step) {
      const int64_t at = lines.At(line, reverse ? lines.extent - 1 - step : step);
      if (x.real()) {
        if (exclusive) out.Set(at, SumResult(sum.Carried(x.type()), x.type()));
        sum.Add(x.reals().At(at));
        // A running sum in the type itself rounds at each step.
        Number now = sum.Carried(x.type());
        if (!now.exact() && UnitOf(x.type()) >= 2 * SumUnitOf(x.type())) {
          const double steps = static_cast<double>(step) + 1;
          now = Approximated({now.value, now.worst * steps, now.spread * steps}, x.type(), steps);
        }
        if (!exclusive) out.Set(at, SumResult(now, x.type()));
      } else {
        if (exclusive) whole[at] = Wrap(x.type(), total);
        total += x.integers()[at];
        if (!exclusive) whole[at] = Wrap(x.type(), total);
      }
    }
  }
  (*c.out)[0] = x.real() ? Value::FromReals(x.type(), x.dims(), std::move(out))
                         : Value::FromIntegers(x.type(), x.dims(), std::move(whole));
  return absl::OkStatus();
}

// The order of the elements of a line of reals or integers.
struct Ranking {
  const Value& x;

  double Bound(int64_t i) const {
    if (!x.real()) return 0;
    const Number n = x.reals().At(i);
    return BoundOf(n.worst, n.spread);
  }
  bool Less(int64_t i, int64_t k) const {
    if (x.real()) return x.reals().value[i] < x.reals().value[k];
    const int64_t flip = x.type() == TensorProto::UINT64 ? INT64_MIN : 0;
    return (x.integers()[i] ^ flip) < (x.integers()[k] ^ flip);
  }
  // Returns true if rounding errors could change the order of two elements.
  bool Near(int64_t i, int64_t k) const {
    if (!x.real()) return false;
    const double bound = Bound(i) + Bound(k);
    return bound > 0 && std::fabs(x.reals().value[i] - x.reals().value[k]) <= bound;
  }
};

template <bool larger>
absl::Status ArgExtreme(OpContext& c) {
  const Value& x = c.in[0];
  const int64_t axis = AxisOf(c.Int("axis", 0), x.rank());
  if (axis < 0 || x.dims()[axis] == 0) return Wrong(c, "axis");
  const bool last = c.Int("select_last_index", 0) != 0;
  const Lines lines(x.dims(), axis);
  const Ranking ranking{x};
  Dims dims = x.dims();
  if (c.Int("keepdims", 1) != 0) {
    dims[axis] = 1;
  } else {
    dims.erase(dims.begin() + axis);
  }
  std::vector<int64_t> out;
  bool doubtful = false;
  for (int64_t line = 0; line < lines.count(); ++line) {
    int64_t best = 0;
    for (int64_t k = 1; k < lines.extent; ++k) {
      const int64_t a = lines.At(line, best), b = lines.At(line, k);
      const bool better = larger ? ranking.Less(a, b) : ranking.Less(b, a);
      const bool equal = !ranking.Less(a, b) && !ranking.Less(b, a);
      if (better || (equal && last)) best = k;
    }
    for (int64_t k = 0; k < lines.extent; ++k) {
      if (k != best && ranking.Near(lines.At(line, best), lines.At(line, k))) doubtful = true;
    }
    out.push_back(best);
  }
  (*c.out)[0] = Value::FromIntegers(TensorProto::INT64, dims, std::move(out));
  (*c.out)[0].doubtful = doubtful;
  return absl::OkStatus();
}

absl::Status TopK(OpContext& c) {
  if (!AreScalars(c, 1, 1)) return Wrong(c, "k");
  const Value& x = c.in[0];
  const int64_t axis = AxisOf(c.Int("axis", -1), x.rank());
  const int64_t count = c.has(1) ? c.in[1].integers()[0] : c.Int("k", 1);
  if (axis < 0 || count < 0 || count > x.dims()[axis]) return Wrong(c, "axis or k");
  const bool largest = c.Int("largest", 1) != 0;
  const Lines lines(x.dims(), axis);
  const Ranking ranking{x};
  Dims dims = x.dims();
  dims[axis] = count;
  std::vector<int64_t> from(static_cast<size_t>(Product(dims))), places(from.size());
  bool doubtful = false;
  std::vector<int64_t> order(static_cast<size_t>(lines.extent));
  for (int64_t line = 0; line < lines.count(); ++line) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      const int64_t i = lines.At(line, a), k = lines.At(line, b);
      return largest ? ranking.Less(k, i) : ranking.Less(i, k);
    });
    const int64_t outer = line / lines.inner, inner = line % lines.inner;
    for (int64_t k = 0; k < count; ++k) {
      const int64_t at = (outer * count + k) * lines.inner + inner;
      from[at] = lines.At(line, order[k]);
      places[at] = order[k];
      if (k + 1 < lines.extent) {
        doubtful = doubtful || ranking.Near(lines.At(line, order[k]), lines.At(line, order[k + 1]));
      }
    }
  }
  (*c.out)[0] = Take(x, dims, from);
  (*c.out)[0].doubtful = doubtful;
  if (c.wants(1)) {
    (*c.out)[1] = Value::FromIntegers(TensorProto::INT64, dims, std::move(places));
    (*c.out)[1].doubtful = doubtful;
  }
  return absl::OkStatus();
}

constexpr OpEntry kReductionOps[] = {
    {"", "ReduceSum", ReduceSum},
    {"", "ReduceMean", ReduceMean},
    {"", "ReduceSumSquare", ReduceSumSquare},
    {"", "ReduceL1", ReduceL1},
    {"", "ReduceL2", ReduceL2},
    {"", "ReduceLogSum", ReduceLogSum},
    {"", "ReduceLogSumExp", ReduceLogSumExp},
    {"", "ReduceProd", ReduceProd},
    {"", "ReduceMax", ReduceExtreme<true>},
    {"", "GlobalAveragePool", ReduceMean},
    {"", "GlobalMaxPool", ReduceExtreme<true>},
    {"", "ReduceMin", ReduceExtreme<false>},
    {"", "Softmax", Softmax},
    {"", "LogSoftmax", LogSoftmax},
    {"", "Hardmax", Hardmax},
    {"", "CumSum", CumSum},
    {"", "ArgMax", ArgExtreme<true>},
    {"", "ArgMin", ArgExtreme<false>},
    {"", "TopK", TopK},
};

}  // namespace

absl::Span<const OpEntry> ReductionOps() { return kReductionOps; }

}  // namespace kvlift::oracle
