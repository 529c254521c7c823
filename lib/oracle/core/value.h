// Tensors of the oracle: reals as doubles with error bounds, integers and bools as int64 (uint64 as
// its two's complement), and the element type that the model declares.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"
#include "oracle/core/number.h"

namespace kvlift::oracle {

using Dims = std::vector<int64_t>;

int64_t Product(const Dims& dims);
// The largest number of elements of a value. IsExtent returns true if no dimension is negative and
// the elements are not more than that.
inline constexpr double kMostElements = 1e9;
bool IsExtent(const Dims& dims);
std::string DimsText(const Dims& dims);
bool IsReal(int32_t type);

// Elements of a real tensor. `worst` and `spread` (number.h) are empty if all elements are exact.
struct Reals {
  std::vector<double> value, worst, spread;

  explicit Reals(int64_t size = 0) : value(static_cast<size_t>(size)) {}
  bool exact() const { return worst.empty(); }
  Number At(int64_t i) const {
    if (worst.empty()) return {value[i], 0, 0};
    return {value[i], worst[i], spread[i]};
  }
  void Set(int64_t i, const Number& n);
  void MakeInexact();
};

// Elements of a constant, with the bytes of the model. Real and Integer read element i.
struct Stored {
  int32_t type = 0;
  std::shared_ptr<const void> owner;
  std::string_view bytes;

  double Real(int64_t i) const;
  int64_t Integer(int64_t i) const;
};

class Value {
 public:
  Value() = default;
  static Value FromReals(int32_t type, Dims dims, Reals reals);
  static Value FromIntegers(int32_t type, Dims dims, std::vector<int64_t> integers);
  static Value FromStored(int32_t type, Dims dims, Stored stored);
  // Unimplemented: an element type that the oracle has no numbers for. InvalidArgument: too few
  // bytes. `owner` keeps the proto alive; if null, its bytes are copied.
  static absl::StatusOr<Value> FromProto(const onnx::TensorProto& proto,
                                         const std::string& base_dir,
                                         std::shared_ptr<const void> owner = nullptr);

  bool absent() const { return type_ == 0; }
  int32_t type() const { return type_; }
  const Dims& dims() const { return dims_; }
  int64_t size() const { return Product(dims_); }
  int64_t rank() const { return static_cast<int64_t>(dims_.size()); }
  bool real() const { return IsReal(type_); }

  // Return the elements of a value of a real type, and of one of another type. Constants are
  // converted on the first call.
  const Reals& reals() const;
  const std::vector<int64_t>& integers() const;
  // Reads reals [begin, begin + count) of an exact value, without converting all of a constant.
  void Read(int64_t begin, int64_t count, double* out) const;
  bool exact() const { return reals_ == nullptr || reals_->exact(); }
  bool is_stored() const { return stored_ != nullptr; }
  const Stored* stored() const { return stored_.get(); }

  // An element depends on a decision that rounding errors could change: nothing is known of the
  // value.
  bool doubtful = false;
  // The number of columns of a wide product that were computed, if not all were. The bounds of the
  // other columns are infinite.
  std::optional<int64_t> columns;

  Value WithDims(Dims dims) const;

 private:
  int32_t type_ = 0;
  Dims dims_;
  mutable std::shared_ptr<const Reals> reals_;
  mutable std::shared_ptr<const std::vector<int64_t>> integers_;
  std::shared_ptr<const Stored> stored_;
};

// Wraps an integer around at the range of its type.
int64_t Wrap(int32_t type, int64_t value);

// Element i of the result of Collect is element picks[i].index of sources[picks[i].which]. All
// sources have one type.
struct Pick {
  int which = 0;
  int64_t index = 0;
};
Value Collect(const std::vector<const Value*>& sources, Dims dims, const std::vector<Pick>& picks);
// Returns the elements from[i] of one source; -1 stands for the only element of `fill` (0 if
// absent).
Value Take(const Value& source, Dims dims, const std::vector<int64_t>& from,
           const Value& fill = Value());
Value ZeroOf(int32_t type);

}  // namespace kvlift::oracle
