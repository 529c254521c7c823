// Products of matrices, and sums of products over named dimensions (Einsum).
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/status.h"
#include "oracle/core/op.h"
#include "oracle/core/sums.h"
#include "oracle/ops/product.h"

namespace kvlift::oracle {
namespace {

// Rows of results while they are being summed.
struct Sums {
  std::vector<double> value, sizes, worst, variance;

  explicit Sums(size_t n) : value(n), sizes(n), worst(n), variance(n) {}
};

// One row of the right operand.
struct Row {
  std::vector<double> value, size, square, worst, spread2;

  explicit Row(size_t n) : value(n), size(n), square(n) {}
  void Read(const Value& b, int64_t begin) {
    const size_t n = value.size();
    b.Read(begin, static_cast<int64_t>(n), value.data());
    Measure();
    if (b.exact()) return;
    worst.assign(b.reals().worst.begin() + begin, b.reals().worst.begin() + begin + n);
    spread2.resize(n);
    for (size_t i = 0; i < n; ++i) {
      const double s = b.reals().spread[begin + i];
      spread2[i] = s * s;
    }
  }
  // Reads these columns of an exact operand.
  void Read(const Value& b, int64_t begin, const std::vector<int64_t>& columns) {
    for (size_t i = 0; i < columns.size(); ++i) b.Read(begin + columns[i], 1, &value[i]);
    Measure();
  }

 private:
  void Measure() {
    for (size_t i = 0; i < value.size(); ++i) {
      size[i] = std::fabs(value[i]);
      square[i] = value[i] * value[i];
    }
  }
};

// A product with more columns than kWide may be computed in kColumns of them only.
constexpr int64_t kWide = 4096, kColumns = 64;

// Returns columns that are spread evenly over all; empty if all columns are computed.
std::vector<int64_t> SomeColumns(const OpContext& c, const Value& b, int64_t n, int64_t work) {
  std::vector<int64_t> columns;
  if (!c.is_last || !b.exact() || !b.is_stored() || b.rank() != 2 || n <= kWide) return columns;
  if (work <= (c.budget - c.work) / 2) return columns;
  for (int64_t i = 0; i < kColumns; ++i) columns.push_back((2 * i + 1) * n / (2 * kColumns));
  return columns;
}

void AddRow(const Number& a, const Row& row, size_t at, Sums* sums) {
  const size_t n = row.value.size();
  // `columns` may be empty.
  double *value = sums->value.data() + at, *sizes = sums->sizes.data() + at;
  const double size = std::fabs(a.value);
  for (size_t i = 0; i < n; ++i) {
    value[i] += a.value * row.value[i];
    sizes[i] += size * row.size[i];
  }
  double *worst = sums->worst.data() + at, *variance = sums->variance.data() + at;
  if (!a.exact()) {
    const double spread2 = a.spread * a.spread;
    for (size_t i = 0; i < n; ++i) {
      worst[i] += a.worst * row.size[i];
      variance[i] += spread2 * row.square[i];
    }
  }
  if (row.worst.empty()) return;
  const double far = size + a.worst, square = a.value * a.value + a.spread * a.spread;
  if (far == 0) return;
  for (size_t i = 0; i < n; ++i) {
    worst[i] += far * row.worst[i];
    variance[i] += square * row.spread2[i];
  }
}

Number Finished(const Sums& sums, size_t i, int64_t terms, double factor, int32_t type,
                bool one_exact) {
  const double u = SumUnitOf(type), k = static_cast<double>(terms) + (factor == 1 ? 0 : 1);
  const double value = factor * sums.value[i];
  if (one_exact) return Rounded({value, 0, 0}, type);
  if (!std::isfinite(value)) return {value, 0, 0};
  const double scale = std::fabs(factor), sizes = scale * sums.sizes[i];
  const double worst = scale * sums.worst[i];
  const double carried = u * std::sqrt(k) * sizes;
  Number y{value, worst + Gamma(k, u) * (sizes + worst) + TinyOf(type) * u * k,
           std::sqrt(scale * scale * sums.variance[i] + carried * carried) + TinyOf(type) * u * k};
  if (sizes == 0 && worst == 0) return {value, 0, 0};
  if (std::isnan(y.worst)) y.worst = HUGE_VAL;
  if (std::isnan(y.spread)) y.spread = HUGE_VAL;
  return UnitOf(type) >= 2 * u ? Rounded(y, type) : Limited(y, type);
}

}  // namespace

absl::Status MatrixProduct(OpContext& c, const Value& a, const Value& b, double factor, Value* y) {
  if (!a.real() || !b.real()) return NoMeaning(c, "integers");
  const int64_t m = a.dims()[a.rank() - 2], k = a.dims()[a.rank() - 1], n = b.dims()[b.rank() - 1];
  if (b.dims()[b.rank() - 2] != k) return Wrong(c, "shapes that do not fit");
  const Dims lead_a(a.dims().begin(), a.dims().end() - 2);
  const Dims lead_b(b.dims().begin(), b.dims().end() - 2);
  Dims lead;
  if (!Broadcast(lead_a, lead_b, &lead)) return Wrong(c, "shapes that do not fit");
  const auto index_a = BroadcastIndex(lead_a, lead), index_b = BroadcastIndex(lead_b, lead);
  const auto batch = static_cast<int64_t>(index_a.size());
  const int64_t work = batch * m * (k + 1) * (b.exact() ? 4 : 7);
  const std::vector<int64_t> columns = SomeColumns(c, b, n, work * n);
  const auto width = columns.empty() ? n : static_cast<int64_t>(columns.size());
  KV_RETURN_IF_ERROR(c.Spend(work * width));
  const Reals& left = a.reals();
  Dims dims = lead;
  dims.push_back(m);
  dims.push_back(n);
  Reals out(Product(dims));
  if (!columns.empty()) {
    for (int64_t i = 0; i < Product(dims); ++i) out.Set(i, {0, HUGE_VAL, HUGE_VAL});
  }
  // A single product of exact numbers is rounded once.
  const bool one_exact = k == 1 && factor == 1 && a.exact() && b.exact();
  // A right matrix that is the same for the whole batch is read once.
  const bool shared = Product(lead_b) == 1;
  const int64_t rows = shared ? batch * m : m;
  for (int64_t p = 0; p < (shared ? std::min<int64_t>(batch, 1) : batch); ++p) {
    Sums sums(static_cast<size_t>(rows * width));
    Row row(static_cast<size_t>(width));
    for (int64_t t = 0; t < k; ++t) {
      const int64_t begin = (index_b[p] * k + t) * n;
      if (columns.empty()) {
        row.Read(b, begin);
      } else {
        row.Read(b, begin, columns);
      }
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t block = shared ? index_a[r / m] : index_a[p];
        AddRow(left.At((block * m + r % m) * k + t), row, static_cast<size_t>(r * width), &sums);
      }
    }
    for (int64_t i = 0; i < rows * width; ++i) {
      const int64_t r = i / width, column = columns.empty() ? i % width : columns[i % width];
      out.Set((p * rows + r) * n + column,
              Finished(sums, static_cast<size_t>(i), k, factor, a.type(), one_exact));
    }
  }
  *y = Value::FromReals(a.type(), std::move(dims), std::move(out));
  if (!columns.empty()) y->columns = width;
  return absl::OkStatus();
}

Value Transposed(const Value& x) {
  Dims dims = x.dims(), strides = StridesOf(x.dims());
  std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
  std::swap(strides[dims.size() - 1], strides[dims.size() - 2]);
  std::vector<int64_t> from(static_cast<size_t>(x.size()));
  ForEach(dims, [&](int64_t i, const Dims& at) { from[i] = Flat(at, strides); });
  return Take(x, dims, from);
}

namespace {

absl::Status MatMul(OpContext& c) {
  Value a = c.in[0], b = c.in[1];
  if (a.rank() == 0 || b.rank() == 0) return Wrong(c, "a scalar");
  const bool row = a.rank() == 1, column = b.rank() == 1;
  if (row) a = a.WithDims({1, a.dims()[0]});
  if (column) b = b.WithDims({b.dims()[0], 1});
  KV_RETURN_IF_ERROR(MatrixProduct(c, a, b, 1, &(*c.out)[0]));
  Dims dims = (*c.out)[0].dims();
  if (row) dims.erase(dims.end() - 2);
  if (column) dims.pop_back();
  (*c.out)[0] = (*c.out)[0].WithDims(dims);
  return absl::OkStatus();
}

absl::Status Gemm(OpContext& c) {
  const Value a = c.Int("transA", 0) != 0 ? Transposed(c.in[0]) : c.in[0];
  const Value b = c.Int("transB", 0) != 0 ? Transposed(c.in[1]) : c.in[1];
  const auto alpha = static_cast<double>(c.Float("alpha", 1));
  const auto beta = static_cast<double>(c.Float("beta", 1));
  Value y;
  KV_RETURN_IF_ERROR(MatrixProduct(c, a, b, alpha, &y));
  if (!c.has(2)) {
    (*c.out)[0] = y;
    return absl::OkStatus();
  }
  const Value& bias = c.in[2];
  Dims dims;
  if (!Broadcast(bias.dims(), y.dims(), &dims) || dims != y.dims()) return Wrong(c, "bias");
  const auto index = BroadcastIndex(bias.dims(), dims);
  Reals out = y.reals();
  for (int64_t i = 0; i < y.size(); ++i) {
    // The bias may be added before all other terms, which counts as one more rounding of the sum.
    const Number term = Times({beta, 0, 0}, bias.reals().At(index[i]));
    const double u = SumUnitOf(y.type()), k = static_cast<double>(a.dims()[1]) + 2;
    Number sum = Plus(out.At(i), term);
    sum.worst += Gamma(k, u) * std::fabs(term.value);
    sum.spread = std::hypot(sum.spread, std::sqrt(k) * u * std::fabs(term.value));
    out.Set(i, Approximated(sum, y.type(), 1));
  }
  (*c.out)[0] = Value::FromReals(y.type(), dims, std::move(out));
  (*c.out)[0].columns = y.columns;
  return absl::OkStatus();
}

struct Equation {
  std::vector<std::string> operands;
  std::string result;
};

// Reads the letters of each operand. The dimensions of "..." get capital letters from Z down, the
// last dimension first.
bool Parse(std::string text, const std::vector<Value>& in, Equation* e) {
  std::erase(text, ' ');
  const size_t arrow = text.find("->");
  std::string left = text.substr(0, arrow);
  left += ',';
  for (size_t begin = 0, comma; (comma = left.find(',', begin)) != std::string::npos;
       begin = comma + 1) {
    e->operands.push_back(left.substr(begin, comma - begin));
  }
  if (e->operands.size() != in.size()) return false;
  size_t widest = 0;
  const auto spelled = [](size_t n) {
    std::string letters;
    for (size_t k = n; k-- > 0;) letters += static_cast<char>('\x01' + k);
    return letters;
  };
  for (size_t i = 0; i < in.size(); ++i) {
    std::string& letters = e->operands[i];
    const size_t dots = letters.find("...");
    if (dots != std::string::npos) {
      if (in[i].dims().size() + 3 < letters.size()) return false;
      const size_t n = in[i].dims().size() - (letters.size() - 3);
      widest = std::max(widest, n);
      letters.replace(dots, 3, spelled(n));
    }
    if (letters.size() != in[i].dims().size()) return false;
  }
  if (arrow != std::string::npos) {
    e->result = text.substr(arrow + 2);
    const size_t dots = e->result.find("...");
    if (dots != std::string::npos) e->result.replace(dots, 3, spelled(widest));
    return true;
  }
  std::map<char, int> seen;
  for (const std::string& letters : e->operands) {
    for (char letter : letters) ++seen[letter];
  }
  e->result = spelled(widest);
  for (const auto& [letter, count] : seen) {
    if (count == 1 && letter > '\x20') e->result += letter;
  }
  return true;
}

absl::Status Einsum(OpContext& c) {
  Equation e;
  if (!Parse(c.Text("equation", ""), c.in, &e)) return Wrong(c, "equation");
  std::map<char, int64_t> extents;
  for (size_t i = 0; i < c.in.size(); ++i) {
    if (!c.in[i].real()) return NoMeaning(c, "integers");
    for (size_t k = 0; k < e.operands[i].size(); ++k) {
      int64_t& extent = extents.try_emplace(e.operands[i][k], 1).first->second;
      if (extent == 1) extent = c.in[i].dims()[k];
      if (c.in[i].dims()[k] != extent && c.in[i].dims()[k] != 1) return Wrong(c, "shapes");
    }
  }
  std::string letters = e.result;
  for (const auto& [letter, extent] : extents) {
    if (letters.find(letter) == std::string::npos) letters += letter;
  }
  Dims dims, out_dims;
  for (char letter : letters) dims.push_back(extents.contains(letter) ? extents[letter] : 1);
  out_dims.assign(dims.begin(), dims.begin() + static_cast<int64_t>(e.result.size()));
  KV_RETURN_IF_ERROR(c.Spend(Product(dims) * 12 * static_cast<int64_t>(c.in.size())));
  std::vector<Dims> strides(c.in.size(), Dims(letters.size(), 0));
  for (size_t i = 0; i < c.in.size(); ++i) {
    const Dims own = StridesOf(c.in[i].dims());
    for (size_t k = 0; k < own.size(); ++k) {
      if (c.in[i].dims()[k] != 1) strides[i][letters.find(e.operands[i][k])] += own[k];
    }
  }
  std::vector<Sum> sums(static_cast<size_t>(Product(out_dims)));
  const int64_t each = sums.empty() ? 1 : Product(dims) / static_cast<int64_t>(sums.size());
  ForEach(dims, [&](int64_t at, const Dims& place) {
    Number term{1, 0, 0};
    for (size_t i = 0; i < c.in.size(); ++i) {
      term = Times(term, c.in[i].reals().At(Flat(place, strides[i])));
    }
    sums[at / each].Add(term);
  });
  const int32_t type = c.in[0].type();
  Reals out(static_cast<int64_t>(sums.size()));
  for (size_t i = 0; i < sums.size(); ++i) {
    const Number n = sums[i].Carried(type, static_cast<double>(c.in.size()) - 1);
    out.Set(static_cast<int64_t>(i), c.in.size() == 1 && each == 1 ? n : Rounded(n, type));
  }
  (*c.out)[0] = Value::FromReals(type, out_dims, std::move(out));
  return absl::OkStatus();
}

constexpr OpEntry kProductOps[] = {
    {"", "MatMul", MatMul},
    {"", "Gemm", Gemm},
    {"", "Einsum", Einsum},
};

}  // namespace

absl::Span<const OpEntry> ProductOps() { return kProductOps; }

}  // namespace kvlift::oracle
