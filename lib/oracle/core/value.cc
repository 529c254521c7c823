#include "oracle/core/value.h"

#include <cstring>
#include <utility>

#include "base/status.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "ir/spans.h"
#include "ir/tensor_data.h"
#include "ir/types.h"
#include "onnxio/model/model.h"

namespace kvlift::oracle {
namespace {

using onnx::TensorProto;

template <typename T>
T Load(std::string_view bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

// Decodes a float with these numbers of bits; `ieee`: its largest exponent means infinity or NaN.
double SmallFloat(uint32_t bits, int exponent_bits, int fraction_bits, bool ieee) {
  const uint32_t fraction = bits & ((1u << fraction_bits) - 1);
  const uint32_t top = (1u << exponent_bits) - 1;
  const uint32_t exponent = (bits >> fraction_bits) & top;
  const bool negative = ((bits >> (fraction_bits + exponent_bits)) & 1) != 0;
  const int bias = static_cast<int>(top >> 1);
  double value = 0;
  if (exponent == top && ieee) {
    value = fraction == 0 ? HUGE_VAL : std::nan("");
  } else if (exponent == top && fraction == (1u << fraction_bits) - 1 && !ieee) {
    value = std::nan("");
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<double>(fraction), 1 - bias - fraction_bits);
  } else {
    value = std::ldexp(static_cast<double>(fraction + (1u << fraction_bits)),
                       static_cast<int>(exponent) - bias - fraction_bits);
  }
  return negative ? -value : value;
}

int BitsOfPacked(std::string_view bytes, int64_t i, int bits) {
  const auto position = static_cast<size_t>(i) * static_cast<size_t>(bits);
  return (static_cast<uint8_t>(bytes[position / 8]) >> (position % 8)) & ((1 << bits) - 1);
}

bool Known(int32_t type) {
  switch (type) {
    case TensorProto::FLOAT8E4M3FN:
    case TensorProto::FLOAT8E5M2:
      return true;
    default:
      return type == TensorProto::BOOL || (IsFloatType(type) && ElementBits(type) >= 16) ||
             IsIntegerType(type);
  }
}

}  // namespace

int64_t Product(const Dims& dims) {
  int64_t size = 1;
  for (int64_t d : dims) size *= d;
  return size;
}

bool IsExtent(const Dims& dims) {
  double elements = 1;
  for (int64_t d : dims) {
    if (d < 0) return false;
    elements *= static_cast<double>(d);
  }
  return elements <= kMostElements;
}

std::string DimsText(const Dims& dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

bool IsReal(int32_t type) { return IsFloatType(type); }

void Reals::MakeInexact() {
  worst.assign(value.size(), 0);
  spread.assign(value.size(), 0);
}

void Reals::Set(int64_t i, const Number& n) {
  value[i] = n.value;
  if (worst.empty()) {
    if (n.exact()) return;
    MakeInexact();
  }
  worst[i] = n.worst;
  spread[i] = n.spread;
}

double Stored::Real(int64_t i) const {
  switch (type) {
    case TensorProto::FLOAT:
      return static_cast<double>(Load<float>(bytes, i));
    case TensorProto::DOUBLE:
      return Load<double>(bytes, i);
    case TensorProto::FLOAT16:
      return SmallFloat(Load<uint16_t>(bytes, i), 5, 10, true);
    case TensorProto::BFLOAT16:
      return SmallFloat(Load<uint16_t>(bytes, i), 8, 7, true);
    case TensorProto::FLOAT8E4M3FN:
      return SmallFloat(Load<uint8_t>(bytes, i), 4, 3, false);
    default:
      return SmallFloat(Load<uint8_t>(bytes, i), 5, 2, true);
  }
}

int64_t Stored::Integer(int64_t i) const {
  switch (type) {
    case TensorProto::INT64:
    case TensorProto::UINT64:
      return Load<int64_t>(bytes, i);
    case TensorProto::INT32:
      return Load<int32_t>(bytes, i);
    case TensorProto::UINT32:
      return Load<uint32_t>(bytes, i);
    case TensorProto::INT16:
      return Load<int16_t>(bytes, i);
    case TensorProto::UINT16:
      return Load<uint16_t>(bytes, i);
    case TensorProto::INT8:
      return Load<int8_t>(bytes, i);
    case TensorProto::UINT8:
      return Load<uint8_t>(bytes, i);
    case TensorProto::BOOL:
      return Load<uint8_t>(bytes, i) != 0 ? 1 : 0;
    default:
      break;
  }
  const int bits = ElementBits(type), pattern = BitsOfPacked(bytes, i, bits);
  const bool is_signed = type == TensorProto::INT4 || type == TensorProto::INT2;
  return is_signed && pattern >= 1 << (bits - 1) ? pattern - (1 << bits) : pattern;
}

Value Value::FromReals(int32_t type, Dims dims, Reals reals) {
  Value v;
  v.type_ = type;
  v.dims_ = std::move(dims);
  v.reals_ = std::make_shared<const Reals>(std::move(reals));
  return v;
}

Value Value::FromIntegers(int32_t type, Dims dims, std::vector<int64_t> integers) {
  Value v;
  v.type_ = type;
  v.dims_ = std::move(dims);
  v.integers_ = std::make_shared<const std::vector<int64_t>>(std::move(integers));
  return v;
}

Value Value::FromStored(int32_t type, Dims dims, Stored stored) {
  Value v;
  v.type_ = type;
  v.dims_ = std::move(dims);
  v.stored_ = std::make_shared<const Stored>(std::move(stored));
  return v;
}

absl::StatusOr<Value> Value::FromProto(const TensorProto& proto, const std::string& base_dir,
                                       std::shared_ptr<const void> owner) {
  if (!Known(proto.data_type())) {
    return absl::UnimplementedError(
        fmt::format("a tensor of type {}", ElementTypeName(proto.data_type())));
  }
  std::shared_ptr<std::string> owned;
  Stored stored;
  stored.type = proto.data_type();
  KV_ASSIGN_OR_RETURN(const int64_t size, NumElements(proto));
  KV_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(proto.data_type(), size));
  const bool external = IsElsewhere(proto);
  const RawData raw = RawDataOf(proto);
  if (raw.owner != nullptr) owner = raw.owner;
  if (!external && owner != nullptr && static_cast<int64_t>(raw.bytes.size()) == bytes) {
    stored.bytes = raw.bytes;
    stored.owner = std::move(owner);
    return FromStored(proto.data_type(), Dims(proto.dims().begin(), proto.dims().end()),
                      std::move(stored));
  }
  if (external) {
    KV_ASSIGN_OR_RETURN(std::string read, ReadTensorBytes(proto, base_dir));
    owned = std::make_shared<std::string>(std::move(read));
  } else {
    KV_ASSIGN_OR_RETURN(std::string read, InlineBytes(proto));
    owned = std::make_shared<std::string>(std::move(read));
  }
  if (static_cast<int64_t>(owned->size()) < bytes) {
    return absl::InvalidArgumentError("a tensor with too few bytes");
  }
  stored.bytes = *owned;
  stored.owner = std::move(owned);
  return FromStored(proto.data_type(), Dims(proto.dims().begin(), proto.dims().end()),
                    std::move(stored));
}

const Reals& Value::reals() const {
  if (reals_ == nullptr) {
    auto reals = std::make_shared<Reals>(size());
    if (stored_ != nullptr) Read(0, size(), reals->value.data());
    if (integers_ != nullptr) reals->value.assign(integers_->begin(), integers_->end());
    reals_ = std::move(reals);
  }
  return *reals_;
}

const std::vector<int64_t>& Value::integers() const {
  if (integers_ == nullptr) {
    auto integers = std::make_shared<std::vector<int64_t>>(static_cast<size_t>(size()));
    for (int64_t i = 0; i < size() && stored_ != nullptr; ++i) {
      (*integers)[i] = stored_->Integer(i);
    }
    integers_ = std::move(integers);
  }
  return *integers_;
}

void Value::Read(int64_t begin, int64_t count, double* out) const {
  if (reals_ != nullptr) {
    std::copy_n(reals_->value.begin() + begin, count, out);
  } else if (type_ == TensorProto::FLOAT) {
    for (int64_t i = 0; i < count; ++i) {
      out[i] = static_cast<double>(Load<float>(stored_->bytes, begin + i));
    }
  } else {
    for (int64_t i = 0; i < count; ++i) out[i] = stored_->Real(begin + i);
  }
}

Value Value::WithDims(Dims dims) const {
  Value v = *this;
  v.dims_ = std::move(dims);
  return v;
}

int64_t Wrap(int32_t type, int64_t value) {
  switch (type) {
    case TensorProto::INT32:
      return static_cast<int32_t>(value);
    case TensorProto::UINT32:
      return static_cast<uint32_t>(value);
    case TensorProto::INT16:
      return static_cast<int16_t>(value);
    case TensorProto::UINT16:
      return static_cast<uint16_t>(value);
    case TensorProto::INT8:
      return static_cast<int8_t>(value);
    case TensorProto::UINT8:
      return static_cast<uint8_t>(value);
    case TensorProto::BOOL:
      return value != 0 ? 1 : 0;
    case TensorProto::INT4:
      return ((value + 8) & 15) - 8;
    case TensorProto::UINT4:
      return value & 15;
    case TensorProto::INT2:
      return ((value + 2) & 3) - 2;
    case TensorProto::UINT2:
      return value & 3;
    default:
      return value;
  }
}

Value Collect(const std::vector<const Value*>& sources, Dims dims, const std::vector<Pick>& picks) {
  const int32_t type = sources[0]->type();
  bool doubtful = false;
  for (const Value* source : sources) doubtful = doubtful || source->doubtful;
  Value result;
  if (IsReal(type)) {
    Reals out(static_cast<int64_t>(picks.size()));
    bool exact = true;
    for (const Value* source : sources) exact = exact && source->exact();
    if (!exact) out.MakeInexact();
    // If only a few elements of a large constant are taken, it is not converted as a whole.
    const bool few = exact && static_cast<int64_t>(picks.size()) < sources[0]->size();
    std::vector<const Reals*> reals;
    for (const Value* source : sources) {
      reals.push_back(few && source->is_stored() ? nullptr : &source->reals());
    }
    for (size_t i = 0; i < picks.size(); ++i) {
      const auto [which, index] = picks[i];
      if (reals[which] == nullptr) {
        out.value[i] = sources[which]->stored()->Real(index);
      } else if (exact) {
        out.value[i] = reals[which]->value[index];
      } else {
        out.Set(static_cast<int64_t>(i), reals[which]->At(index));
      }
    }
    result = Value::FromReals(type, std::move(dims), std::move(out));
  } else {
    std::vector<int64_t> out(picks.size());
    for (size_t i = 0; i < picks.size(); ++i) {
      out[i] = sources[picks[i].which]->integers()[picks[i].index];
    }
    result = Value::FromIntegers(type, std::move(dims), std::move(out));
  }
  result.doubtful = doubtful;
  return result;
}

Value Take(const Value& source, Dims dims, const std::vector<int64_t>& from, const Value& fill) {
  const Value zero = fill.absent() ? ZeroOf(source.type()) : fill;
  std::vector<Pick> picks;
  picks.reserve(from.size());
  for (int64_t index : from) picks.push_back(index < 0 ? Pick{1, 0} : Pick{0, index});
  return Collect({&source, &zero}, std::move(dims), picks);
}

Value ZeroOf(int32_t type) {
  return IsReal(type) ? Value::FromReals(type, {}, Reals(1)) : Value::FromIntegers(type, {}, {0});
}

}  // namespace kvlift::oracle
