// Closed forms of constant tensors: one value everywhere, an arithmetic progression along each
// axis, blocks of equal values, or a triangle or band of two values.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>

#include "ir/spans.h"
#include "ir/tensor_data.h"
#include "sym/forms/forms_engine.h"

namespace kvlift::sym::internal {
namespace {

constexpr int64_t kMaxConstant = int64_t{1} << 25;  // elements
constexpr int64_t kMaxGrid = int64_t{1} << 20;

// The elements of a constant, compared as bit patterns and read one by one, without widening the
// whole tensor.
class Elements {
 public:
  explicit Elements(const onnx::TensorProto& tensor) : type_(tensor.data_type()) {
    const auto count = NumElements(tensor);
    if (!count.ok() || *count > kMaxConstant) return;
    size_ = *count;
    bytes_ = ElementBits(type_) / 8;
    RawData raw = RawDataOf(tensor);
    if (bytes_ > 0 && size_ > 0 && static_cast<int64_t>(raw.bytes.size()) == size_ * bytes_) {
      raw_ = raw.bytes.data();
      owner_ = std::move(raw.owner);
      ok_ = true;
    } else if (IsFloatType(type_)) {
      if (auto floats = ReadFloats(tensor); floats.ok()) {
        floats_ = *std::move(floats);
        ok_ = static_cast<int64_t>(floats_.size()) == size_;
      }
    } else if (auto ints = ReadInts(tensor); ints.ok()) {
      ints_ = *std::move(ints);
      ok_ = static_cast<int64_t>(ints_.size()) == size_;
    }
  }

  bool ok() const { return ok_; }
  int64_t size() const { return size_; }
  bool Same(int64_t a, int64_t b) const {
    if (raw_ != nullptr) return std::memcmp(raw_ + a * bytes_, raw_ + b * bytes_, bytes_) == 0;
    if (!floats_.empty()) return std::memcmp(&floats_[a], &floats_[b], sizeof(double)) == 0;
    return ints_[a] == ints_[b];
  }
  std::optional<int64_t> Int(int64_t i) const {
    if (raw_ == nullptr) return ints_[i];
    switch (type_) {
      case onnx::TensorProto::INT64:
        return Raw<int64_t>(i);
      case onnx::TensorProto::INT32:
        return Raw<int32_t>(i);
      case onnx::TensorProto::INT16:
        return Raw<int16_t>(i);
      case onnx::TensorProto::INT8:
        return Raw<int8_t>(i);
      case onnx::TensorProto::UINT8:
        return Raw<uint8_t>(i);
      case onnx::TensorProto::BOOL:
        return Raw<uint8_t>(i) != 0;
      case onnx::TensorProto::UINT16:
        return Raw<uint16_t>(i);
      case onnx::TensorProto::UINT32:
        return Raw<uint32_t>(i);
      default:
        return std::nullopt;
    }
  }
  // Returns element i as a constant expression; null if it cannot be read.
  Expr At(Pool& pool, int64_t i) const {
    if (!IsFloatType(type_)) {
      const std::optional<int64_t> x = Int(i);
      return x ? pool.Integer(*x) : nullptr;
    }
    if (raw_ == nullptr) return Real(pool, floats_[i]);
    onnx::TensorProto one;
    one.set_data_type(type_);
    one.set_raw_data(std::string(raw_ + i * bytes_, bytes_));
    const auto value = ReadFloats(one);
    return value.ok() && value->size() == 1 ? Real(pool, value->front()) : nullptr;
  }

 private:
  // Returns null for -0.0, which constants of expressions cannot represent: its reciprocal differs
  // from that of 0.
  static Expr Real(Pool& pool, double value) {
    return value == 0 && std::signbit(value) ? nullptr : pool.Float(value);
  }

  template <typename T>
  T Raw(int64_t i) const {
    T x;
    std::memcpy(&x, raw_ + i * sizeof(T), sizeof(T));
    return x;
  }

  int32_t type_;
  int64_t size_ = 0, bytes_ = 0;
  const char* raw_ = nullptr;
  std::shared_ptr<const void> owner_;  // keeps what raw_ points to
  std::vector<double> floats_;
  std::vector<int64_t> ints_;
  bool ok_ = false;
};

using Dims = std::vector<int64_t>;

bool AllSame(const Elements& elements) {
  for (int64_t i = 1; i < elements.size(); ++i) {
    if (!elements.Same(0, i)) return false;
  }
  return true;
}

// The last two axes of a constant that are longer than 1.
struct Plane {
  int row_axis, column_axis;
  int64_t rows, columns;
};

std::optional<Plane> PlaneOf(const Dims& dims) {
  std::vector<int> long_axes;
  for (size_t k = 0; k < dims.size(); ++k) {
    if (dims[k] > 1) long_axes.push_back(static_cast<int>(k));
  }
  if (long_axes.size() < 2) return std::nullopt;
  const int row_axis = long_axes[long_axes.size() - 2], column_axis = long_axes.back();
  return Plane{row_axis, column_axis, dims[row_axis], dims[column_axis]};
}

// The places first <= c - r <= last of a plane with rows r and columns c.
struct Diagonals {
  int64_t first, last;
  bool Contains(int64_t r, int64_t c) const { return first <= c - r && c - r <= last; }
};

// Returns the diagonals that hold the same as element `inside`, if they are those of a lower
// triangle, or of a band that has [0, 0] in it; null if neither can be. The rows between the first
// and the last one are not looked at.
std::optional<Diagonals> DiagonalsOf(const Elements& x, const Plane& plane, int64_t inside) {
  const int64_t bottom = (plane.rows - 1) * plane.columns;
  int64_t first = 0;  // how many elements of row 0 are inside
  while (first < plane.columns && x.Same(first, inside)) ++first;
  int64_t last = first - 1;
  if (first == 0) {
    int64_t row = 0;
    while (row < plane.rows && !x.Same(row * plane.columns, inside)) ++row;
    last = -row;
  }
  int64_t outside = 0;  // how many elements at the start of the last row are outside
  while (outside < plane.columns && !x.Same(bottom + outside, inside)) ++outside;
  if (outside == plane.columns) return std::nullopt;
  return Diagonals{outside - (plane.rows - 1), last};
}

// Returns x[.., r, .., c, ..] = (c - r is one of some diagonals ? a : b), for lower triangles and
// bands such as the masks of causal attention and of its sliding windows, if it holds for all other
// indices; null otherwise.
Expr Band(Pool& pool, const Elements& x, const Dims& dims) {
  const std::optional<Plane> plane = PlaneOf(dims);
  if (!plane) return nullptr;
  const int64_t rows = plane->rows, columns = plane->columns;
  const int64_t corner = (rows - 1) * columns, outside = columns - 1;
  const bool is_triangle = !x.Same(corner, outside);
  const int64_t inside = is_triangle ? corner : 0;
  if (x.Same(inside, outside)) return nullptr;
  const std::optional<Diagonals> diagonals = DiagonalsOf(x, *plane, inside);
  if (!diagonals) return nullptr;
  const int64_t blocks = x.size() / (rows * columns);
  for (int64_t block = 0; block < blocks; ++block) {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t base = (block * rows + r) * columns;
      for (int64_t c = 0; c < columns; ++c) {
        if (!x.Same(base + c, diagonals->Contains(r, c) ? inside : outside)) return nullptr;
      }
    }
  }
  const Expr a = x.At(pool, inside), b = x.At(pool, outside);
  if (a == nullptr || b == nullptr) return nullptr;
  const Facts facts;
  const Expr row = pool.Index(plane->row_axis), column = pool.Index(plane->column_axis);
  const Expr end = pool.Add(row, pool.Integer(diagonals->last));
  Expr is_inside = pool.Le(column, end, facts);
  if (!is_triangle && diagonals->first == diagonals->last) {
    is_inside = pool.Eq(column, end, facts);
  } else if (!is_triangle) {
    const Expr from = pool.Add(row, pool.Integer(diagonals->first));
    is_inside = pool.And(is_inside, pool.Le(from, column, facts));
  }
  return pool.Select(is_inside, a, b);
}

// One axis of a grid: it contributes step * (i div block).
struct GridAxis {
  int64_t step = 0, block = 1;
};

// Returns x[i] = c + the sum over all axes of step_k * (i_k div block_k); null if x is not such a
// grid.
Expr Grid(Pool& pool, const std::function<int64_t(int64_t)>& at, const Dims& dims,
          absl::Span<const int> names) {
  std::vector<int64_t> strides(dims.size(), 1);
  for (int k = static_cast<int>(dims.size()) - 2; k >= 0; --k) {
    strides[k] = strides[k + 1] * dims[k + 1];
  }
  int64_t size = 1;
  for (int64_t d : dims) size *= d;
  std::vector<GridAxis> axes(dims.size());
  const int64_t base = at(0);
  for (size_t k = 0; k < dims.size(); ++k) {
    for (int64_t i = 1; i < dims[k]; ++i) {
      int64_t delta = 0;
      if (__builtin_sub_overflow(at(i * strides[k]), base, &delta)) return nullptr;
      if (delta == 0) continue;
      axes[k] = {delta, i};
      break;
    }
  }
  for (int64_t i = 0; i < size; ++i) {
    int64_t expected = base;
    for (size_t k = 0; k < dims.size(); ++k) {
      const int64_t steps = (i / strides[k]) % dims[k] / axes[k].block;
      int64_t part = 0;
      if (__builtin_mul_overflow(axes[k].step, steps, &part) ||
          __builtin_add_overflow(expected, part, &expected)) {
        return nullptr;
      }
    }
    if (at(i) != expected) return nullptr;
  }
  Expr e = pool.Integer(base);
  for (size_t k = 0; k < dims.size(); ++k) {
    if (axes[k].step == 0) continue;
    const Expr index = pool.Index(names[k]);
    const Expr place = pool.FloorDiv(index, pool.Integer(axes[k].block), Facts{});
    e = pool.Add(e, pool.Mul(pool.Integer(axes[k].step), place));
  }
  return e;
}

Expr IntegerGrid(Pool& pool, const Elements& x, const Dims& dims) {
  if (x.size() > kMaxGrid || !x.Int(0)) return nullptr;
  std::vector<int> names;
  for (size_t k = 0; k < dims.size(); ++k) names.push_back(static_cast<int>(k));
  const auto all = [&](int64_t i) { return *x.Int(i); };
  if (const Expr e = Grid(pool, all, dims, names)) return e;
  // Coordinates may stand side by side on the last axis, as ScatterND takes them.
  const int64_t width = dims.back();
  if (dims.size() < 2 || width > 4) return nullptr;
  const Dims outer(dims.begin(), dims.end() - 1);
  names.pop_back();
  Expr result = nullptr;
  for (int64_t c = width - 1; c >= 0; --c) {
    const auto column = [&](int64_t i) { return *x.Int(i * width + c); };
    const Expr e = Grid(pool, column, outer, names);
    if (e == nullptr) return nullptr;
    const Expr here =
        pool.Eq(pool.Index(static_cast<int>(dims.size()) - 1), pool.Integer(c), Facts{});
    result = result == nullptr ? e : pool.Select(here, e, result);
  }
  return result;
}

// Returns a vector of whole numbers of a float type, such as bounds and slots that TensorFlow
// computes in float32: a few numbers, or a grid with one axis of more than one element, as which
// numbers that count up are read. Returns null for others.
Expr WholeNumbers(Pool& pool, const Elements& x, const Dims& dims) {
  constexpr int64_t kMostElements = 8;
  const auto longer = std::count_if(dims.begin(), dims.end(), [](int64_t d) { return d != 1; });
  if (x.size() > kMaxGrid || longer != 1) return nullptr;
  std::vector<int64_t> numbers;
  for (int64_t k = 0; k < static_cast<int64_t>(x.size()); ++k) {
    const Expr number = x.At(pool, k);
    if (number == nullptr || number->kind() != Kind::kInteger) return nullptr;
    numbers.push_back(number->value());
  }
  const auto at = [&](int64_t k) { return numbers[static_cast<size_t>(k)]; };
  const auto skips = [](int64_t a, int64_t b) { return b - a != 1; };
  const bool counts_up = std::adjacent_find(numbers.begin(), numbers.end(), skips) == numbers.end();
  if (counts_up || dims.size() != 1 || dims[0] > kMostElements) {
    std::vector<int> names(dims.size());
    std::iota(names.begin(), names.end(), 0);
    return Grid(pool, at, dims, names);
  }
  Expr result = nullptr;
  for (int64_t k = dims[0] - 1; k >= 0; --k) {
    const Expr number = pool.Integer(at(k));
    const Expr here = pool.Eq(pool.Index(0), pool.Integer(k), Facts{});
    result = result == nullptr ? number : pool.Select(here, number, result);
  }
  return result;
}

}  // namespace

Expr ConstantPattern(Engine& engine, const onnx::TensorProto& tensor) {
  Pool& pool = engine.pool();
  const bool is_float = IsFloatType(tensor.data_type());
  const bool is_bool = tensor.data_type() == onnx::TensorProto::BOOL;
  if (!is_float && !is_bool && !IsIntegerType(tensor.data_type())) return nullptr;
  if (ElementBits(tensor.data_type()) < 8) return nullptr;
  const Elements x(tensor);
  if (!x.ok() || x.size() == 0) return nullptr;
  const Dims dims(tensor.dims().begin(), tensor.dims().end());
  if (AllSame(x)) return x.At(pool, 0);
  if (const Expr e = Band(pool, x, dims)) return e;
  return is_float ? WholeNumbers(pool, x, dims) : IntegerGrid(pool, x, dims);
}

}  // namespace kvlift::sym::internal
