// KeyValueCache of pmx and opmx in its functional form (onnxio/in_out.h): rows are written into a
// copy of the cache, which is what all rows so far are read from.
//
// quant_bit 8 keeps rows as int8 with one scale per group of elements, in the type of the rows:
//
//   scale = max(max |x| / 127, 1e-5)      value = x / scale, to the nearest, ties to even,
//   saturated read  = value * scale, in the type of the scales
//
// Source: the operator page, its appendix on quantisation and the reference of openppl-public's
// ppl.pmx, which fixes 127, 1e-5 and the types.
#include "exec/kernels/contrib_key_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/status.h"
#include "exec/kernels/math_util.h"
#include "exec/kernels/move_util.h"
#include "ir/types.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT
using onnx::TensorProto;

enum Input { kKey, kValue, kStart, kCache, kScale };
enum Output { kPresentCache = 2, kPresentScale = 3 };

// Where the row of a sequence, role, slot and head lies in a packed tensor.
struct Packed {
  int64_t sequences = 0, layers = 0, slots = 0, heads = 0, width = 0;
  int64_t layer = 0, layout = 0;

  int64_t Row(int64_t b, int64_t role, int64_t t, int64_t h) const {
    if (layout == 0) return ((((b * layers + layer) * 2 + role) * slots + t) * heads + h) * width;
    return ((((layer * sequences + b) * 2 + role) * heads + h) * slots + t) * width;
  }
};

struct Plan {
  int64_t B = 0, S = 0, Nk = 0, D = 0, T = 0, start = 0, repeat = 1, group = 0;
  Packed cache, scale;
};

// Reads the extents of a packed tensor whose last axis is `width`.
absl::StatusOr<Packed> Unpack(const KernelContext& context, size_t input, const Plan& p,
                              int64_t width) {
  const Shape& shape = context.inputs[input].shape;
  Packed packed;
  packed.layout = IntAttribute(context, "cache_layout", 0);
  packed.layers = IntAttribute(context, "num_layer", 1);
  packed.layer = IntAttribute(context, "layer_idx", 0);
  packed.heads = p.Nk;
  packed.width = width;
  if (packed.layout != 0 && packed.layout != 1) return Invalid(context, "cache_layout");
  if (packed.layer < 0 || packed.layer >= packed.layers) return Invalid(context, "layer_idx");
  const bool sequences_first = packed.layout == 0;
  if (shape.size() == 6) {
    packed.sequences = shape[sequences_first ? 0 : 1];
    packed.slots = shape[sequences_first ? 3 : 4];
  }
  const Shape wanted = sequences_first
                           ? Shape{packed.sequences, packed.layers, 2, packed.slots, p.Nk, width}
                           : Shape{packed.layers, packed.sequences, 2, p.Nk, packed.slots, width};
  if (shape != wanted || packed.sequences < p.B) {
    return Invalid(context, fmt::format("input {} of {} does not fit rows of {}", input,
                                        ShapeString(shape), ShapeString(context.inputs[0].shape)));
  }
  return packed;
}

absl::Status PlanQuantized(const KernelContext& context, Plan* p) {
  const int64_t bits = IntAttribute(context, "quant_bit", 0);
  const int32_t rows = context.inputs[kKey].type, kept = context.inputs[kCache].type;
  if (bits == 0) {
    if (rows == kept && ElementBits(rows) % 8 == 0 && rows != TensorProto::STRING) {
      return absl::OkStatus();
    }
    return Unsupported(context, "a cache of another type than its rows");
  }
  if (bits != 8) return Unsupported(context, fmt::format("quant_bit {}", bits));
  const auto is_float = [](int32_t type) {
    return type == TensorProto::FLOAT || type == TensorProto::FLOAT16;
  };
  p->group = IntAttribute(context, "quant_group", 8);
  if (p->group < 1 || p->D % p->group != 0) return Invalid(context, "quant_group");
  if (!HasInput(context, kScale)) return Invalid(context, "quant_bit without scales");
  if (kept != TensorProto::INT8 || !is_float(rows) || !is_float(context.inputs[kScale].type)) {
    return Unsupported(context, "these types");
  }
  KV_ASSIGN_OR_RETURN(p->scale, Unpack(context, kScale, *p, p->D / p->group));
  if (p->scale.sequences < p->B || p->scale.slots != p->cache.slots) {
    return Invalid(context, "scale does not fit cache");
  }
  return absl::OkStatus();
}

absl::StatusOr<Plan> MakePlan(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 4));
  const View& key = context.inputs[kKey];
  if (key.shape.size() != 4 || context.inputs[kValue].shape != key.shape ||
      context.inputs[kValue].type != key.type) {
    return Invalid(context, "current_key and current_value must be [B, S, Nk, D], and alike");
  }
  if (context.node.output_size() <= kPresentCache) {
    return Unsupported(context,
                       "writing into a tensor that is no input of the graph, or is read "
                       "by something else");
  }
  Plan p;
  p.B = key.shape[0];
  p.S = key.shape[1];
  p.Nk = key.shape[2];
  p.D = key.shape[3];
  p.repeat = IntAttribute(context, "num_repeat", 1);
  if (p.repeat < 1 || (p.Nk > 0 && p.repeat > INT64_MAX / p.Nk)) {
    return Invalid(context, "num_repeat");
  }
  KV_ASSIGN_OR_RETURN(p.cache, Unpack(context, kCache, p, p.D));
  KV_RETURN_IF_ERROR(PlanQuantized(context, &p));
  const View& start = context.inputs[kStart];
  if (!move::IsIndexType(start.type) || start.size() != 1) {
    return Invalid(context, "start_pos must be one number");
  }
  p.start = move::IndexAt(start, 0);
  if (p.start < 0 || p.start > p.cache.slots - p.S) {
    return Invalid(context, fmt::format("start_pos {} and {} rows exceed {} slots", p.start, p.S,
                                        p.cache.slots));
  }
  p.T = p.start + p.S;
  return p;
}

absl::Status KeyValueShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const Plan p, MakePlan(context));
  const int32_t type = context.inputs[kKey].type;
  for (size_t role = 0; role < 2; ++role) {
    SetSpec(context, role, type, {p.B, p.T, p.Nk * p.repeat, p.D});
  }
  SetSpec(context, kPresentCache, context.inputs[kCache].type, context.inputs[kCache].shape);
  if (context.node.output_size() <= kPresentScale) return absl::OkStatus();
  if (!HasInput(context, kScale)) return Invalid(context, "present_scale without scales");
  SetSpec(context, kPresentScale, context.inputs[kScale].type, context.inputs[kScale].shape);
  return absl::OkStatus();
}

template <typename F>
void VisitHalfOrFloat(int32_t type, F f) {
  if (type == TensorProto::FLOAT16) {
    f(TypeTag<Half>());
  } else {
    f(TypeTag<float>());
  }
}

// A value rounded to the type, as float.
template <typename T>
float Rounded(float x) {
  return Widen(Narrow<T>(x));
}

// T: of rows, W: of scales.
template <typename T, typename W>
class Quantized {
 public:
  Quantized(KernelContext& context, const Plan& plan) : p_(plan) {
    kept_ = context.outputs[kPresentCache].as<int8_t>();
    scales_ = context.outputs[kPresentScale].as<W>();
  }

  void Write(const T* row, int64_t b, int64_t role, int64_t t, int64_t h) const {
    int8_t* kept = kept_ + p_.cache.Row(b, role, t, h);
    W* scales = scales_ + p_.scale.Row(b, role, t, h);
    for (int64_t g = 0; g < p_.scale.width; ++g, row += p_.group, kept += p_.group) {
      float largest = 0;
      for (int64_t k = 0; k < p_.group; ++k) largest = std::max(largest, std::fabs(Widen(row[k])));
      const float scale = std::max(Rounded<T>(largest / 127.0F), Rounded<T>(1e-5F));
      scales[g] = Narrow<W>(scale);
      for (int64_t k = 0; k < p_.group; ++k) {
        const float q = std::nearbyint(Rounded<T>(Widen(row[k]) / scale));
        kept[k] = std::isnan(q) ? int8_t{0} : static_cast<int8_t>(std::clamp(q, -128.0F, 127.0F));
      }
    }
  }

  void Read(T* row, int64_t b, int64_t role, int64_t t, int64_t h) const {
    const int8_t* kept = kept_ + p_.cache.Row(b, role, t, h);
    const W* scales = scales_ + p_.scale.Row(b, role, t, h);
    for (int64_t d = 0; d < p_.D; ++d) {
      row[d] = Narrow<T>(Rounded<W>(static_cast<float>(kept[d]) * Widen(scales[d / p_.group])));
    }
  }

 private:
  const Plan& p_;
  int8_t* kept_;
  W* scales_;
};

// T: as many bytes as an element.
template <typename T>
class Plain {
 public:
  Plain(KernelContext& context, const Plan& plan) : p_(plan) {
    kept_ = context.outputs[kPresentCache].as<T>();
  }
  void Write(const T* row, int64_t b, int64_t role, int64_t t, int64_t h) const {
    std::copy_n(row, p_.D, kept_ + p_.cache.Row(b, role, t, h));
  }
  void Read(T* row, int64_t b, int64_t role, int64_t t, int64_t h) const {
    std::copy_n(kept_ + p_.cache.Row(b, role, t, h), p_.D, row);
  }

 private:
  const Plan& p_;
  T* kept_;
};

template <typename T, typename Rows>
void Run(KernelContext& context, const Plan& p, const Rows& rows) {
  for (int64_t role = 0; role < 2; ++role) {
    const T* from = context.inputs[role == 0 ? kKey : kValue].as<T>();
    for (int64_t i = 0; i < p.B * p.S * p.Nk; ++i) {
      const int64_t h = i % p.Nk, s = i / p.Nk % p.S, b = i / p.Nk / p.S;
      rows.Write(from + i * p.D, b, role, p.start + s, h);
    }
    if (!WantsOutput(context, static_cast<size_t>(role))) continue;
    T* to = context.outputs[role].as<T>();
    ParallelFor(context.threads, p.B * p.T * p.Nk, 1, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t h = i % p.Nk, t = i / p.Nk % p.T, b = i / p.Nk / p.T;
        T* row = to + i * p.repeat * p.D;
        rows.Read(row, b, role, t, h);
        for (int64_t k = 1; k < p.repeat; ++k) std::copy_n(row, p.D, row + k * p.D);
      }
    });
  }
}

void Copy(const View& from, const View& to) {
  if (from.data != to.data && to.bytes() > 0) {
    std::memcpy(to.data, from.data, static_cast<size_t>(to.bytes()));
  }
}

absl::Status KeyValueCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const Plan p, MakePlan(context));
  if (!WantsOutput(context, kPresentCache) ||
      (p.group > 0 && !WantsOutput(context, kPresentScale))) {
    return Unsupported(context, "tensors that are written and not given");
  }
  Copy(context.inputs[kCache], context.outputs[kPresentCache]);
  if (WantsOutput(context, kPresentScale)) {
    Copy(context.inputs[kScale], context.outputs[kPresentScale]);
  }
  if (p.group > 0) {
    VisitHalfOrFloat(context.inputs[kKey].type, [&](auto row) {
      VisitHalfOrFloat(context.inputs[kScale].type, [&](auto scale) {
        using T = typename decltype(row)::Type;
        Run<T>(context, p, Quantized<T, typename decltype(scale)::Type>(context, p));
      });
    });
    return absl::OkStatus();
  }
  switch (ElementBits(context.inputs[kKey].type)) {
    case 8:
      Run<uint8_t>(context, p, Plain<uint8_t>(context, p));
      return absl::OkStatus();
    case 16:
      Run<uint16_t>(context, p, Plain<uint16_t>(context, p));
      return absl::OkStatus();
    case 32:
      Run<uint32_t>(context, p, Plain<uint32_t>(context, p));
      return absl::OkStatus();
    default:
      return Unsupported(context, "these types");
  }
}

}  // namespace

absl::Span<const OpDef> KeyValueCacheOps() {
  static const OpDef ops[] = {
      {"opmx", "KeyValueCache", 1, KeyValueShape, KeyValueCompute},
      {"pmx", "KeyValueCache", 1, KeyValueShape, KeyValueCompute},
  };
  return ops;
}

}  // namespace kvlift::exec
