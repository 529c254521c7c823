// Tensors of the oracle: reals as double with error terms, integers and bools as int64 (uint64 as
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
#include "oracle/number.h"

namespace kvlift::oracle {

using Dims = std::vector<int64_t>;

int64_t Product(const Dims& dims);
// What a value may have: no extent is negative, and there are at most so many elements.
inline constexpr double kMostElements = 1e9;
bool IsExtent(const Dims& dims);
std::string DimsText(const Dims& dims);
bool IsReal(int32_t type);

// Error terms are empty where all elements are exact.
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

// Elements of a constant as they lie in the model.
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
  // InvalidArgument, Unimplemented: a type the oracle has no numbers for. `owner` keeps the proto
  // alive; without one, its bytes are copied.
  static absl::StatusOr<Value> FromProto(const onnx::TensorProto& proto,
                                         const std::string& base_dir,
                                         std::shared_ptr<const void> owner = nullptr);

  bool absent() const { return type_ == 0; }
  int32_t type() const { return type_; }
  const Dims& dims() const { return dims_; }
  int64_t size() const { return Product(dims_); }
  int64_t rank() const { return static_cast<int64_t>(dims_.size()); }
  bool real() const { return IsReal(type_); }

  // Of real types, of others: constants are widened on the first call.
  const Reals& reals() const;
  const std::vector<int64_t>& integers() const;
  // Reals [begin, begin + count) of an exact value, without widening all of a constant.
  void Read(int64_t begin, int64_t count, double* out) const;
  bool exact() const { return reals_ == nullptr || reals_->exact(); }
  bool is_stored() const { return stored_ != nullptr; }
  const Stored* stored() const { return stored_.get(); }

  // Some element depends on a decision that rounding errors may turn: nothing is known of it.
  bool doubtful = false;
  // How many columns of a wide product were computed, where not all were. Bounds of the others are
  // infinite.
  std::optional<int64_t> columns;

  Value WithDims(Dims dims) const;
  Value WithType(int32_t type) const;

 private:
  int32_t type_ = 0;
  Dims dims_;
  mutable std::shared_ptr<const Reals> reals_;
  mutable std::shared_ptr<const std::vector<int64_t>> integers_;
  std::shared_ptr<const Stored> stored_;
};

// Integers of a type wrap around.
int64_t Wrap(int32_t type, int64_t value);

// Element i of the result is element from[i] of sources[which]; the sources have one type.
struct Pick {
  int which = 0;
  int64_t index = 0;
};
Value Collect(const std::vector<const Value*>& sources, Dims dims, const std::vector<Pick>& picks);
// Of one source; -1 stands for the only element of `fill` (zero if that is absent).
Value Take(const Value& source, Dims dims, const std::vector<int64_t>& from,
           const Value& fill = Value());
Value ZeroOf(int32_t type);

}  // namespace kvlift::oracle
