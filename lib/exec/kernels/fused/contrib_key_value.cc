// KeyValueCache of OpenPPL in its functional form (onnxio/model/functional_form.h): new rows are
// written into a copy of the cache, and all rows of each sequence are read from it, sequence by
// sequence.
//
// With quant_bit 8, rows are stored as int8 with one scale per group of elements, in the type of
// the rows:
//
//   scale = max(max |x| / 127, 1e-5)
//   stored = x / scale, rounded to nearest, ties to even, saturated
//   read = stored * scale, in the type of the scales
//
// In the dynamic_batching domains, slot t of sequence b is at cachestarts[b] + t or, with pages, at
// cachestarts[b, t / page_size] + t % page_size.
//
// Source: the operator pages, the appendix on quantisation and the reference implementation of
// openppl-public/ppl.pmx, which define 127, 1e-5 and the types.
#include "exec/kernels/fused/contrib_key_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/move_util.h"
#include "ir/types.h"
#include "onnxio/model/functional_form.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT
using onnx::TensorProto;
using Slots = KeyValueCacheSlots;

// A packed cache tensor and the positions of its rows, in elements.
struct Packed {
  int64_t slots = 0, width = 0;
  int64_t layer = 0;  // of the first row of the layer
  int64_t role_stride = 0, slot_stride = 0, head_stride = 0, sequence_stride = 0;

  int64_t Row(int64_t b, int64_t role, int64_t t, int64_t h) const {
    return layer + b * sequence_stride + role * role_stride + t * slot_stride + h * head_stride;
  }
};

// The new rows of a sequence, and all its rows: where they are in the operands, the results and the
// slots.
struct Sequence {
  int64_t index = 0;        // on the packed tensor's axis of sequences, if it has one
  int64_t from = 0, S = 0;  // new rows
  int64_t to = 0, T = 0;    // all rows
  // The slots at which the pages of the sequence begin.
  std::vector<int64_t> pages = {0};
  int64_t page_size = INT64_MAX;

  int64_t Slot(int64_t t) const {
    return pages[static_cast<size_t>(t / page_size)] + t % page_size;
  }
};

struct Plan {
  int64_t Nk = 0, D = 0, repeat = 1, group = 0;
  std::vector<Sequence> sequences;
  Packed cache, scale;
};

// Returns the letters of a packed tensor's axes: M slots, L layers, R keys or values, B sequences,
// N heads, D elements.
absl::StatusOr<std::string_view> LettersOf(const KernelContext& context) {
  constexpr std::string_view kApart[] = {"BLRMND", "LBRNMD"};
  constexpr std::string_view kJoined[] = {"MLRND", "LMRND", "LRMND", "LRNMD"};
  const bool joins = Slots::Of(context.node).joins_sequences();
  const auto layouts = joins ? absl::MakeConstSpan(kJoined) : absl::MakeConstSpan(kApart);
  const int64_t layout = IntAttribute(context, "cache_layout", 0);
  if (layout < 0 || layout >= static_cast<int64_t>(layouts.size())) {
    return Invalid(context, "cache_layout");
  }
  return layouts[static_cast<size_t>(layout)];
}

// Reads the sizes of a packed tensor that holds rows of `width` elements for `sequences` sequences.
absl::StatusOr<Packed> Unpack(const KernelContext& context, int input, const Plan& p, int64_t width,
                              int64_t sequences) {
  const Shape& shape = context.inputs[static_cast<size_t>(input)].shape;
  KV_ASSIGN_OR_RETURN(const std::string_view letters, LettersOf(context));
  const int64_t layers = IntAttribute(context, "num_layer", 1);
  const int64_t layer = IntAttribute(context, "layer_idx", 0);
  if (layer < 0 || layer >= layers) return Invalid(context, "layer_idx");
  Packed packed;
  packed.width = width;
  int64_t stride = 1;
  bool fits = shape.size() == letters.size();
  for (size_t k = letters.size(); fits && k-- > 0; stride *= shape[k]) {
    switch (letters[k]) {
      case 'B':
        packed.sequence_stride = stride;
        fits = shape[k] >= sequences;
        break;
      case 'L':
        packed.layer = layer * stride;
        fits = shape[k] == layers;
        break;
      case 'R':
        packed.role_stride = stride;
        fits = shape[k] == 2;
        break;
      case 'M':
        packed.slot_stride = stride;
        packed.slots = shape[k];
        break;
      case 'N':
        packed.head_stride = stride;
        fits = shape[k] == p.Nk;
        break;
      default:
        fits = shape[k] == width;
        break;
    }
  }
  if (!fits) {
    return Invalid(context, fmt::format("input {} of {} does not fit rows of {}", input,
                                        ShapeString(shape), ShapeString(context.inputs[0].shape)));
  }
  return packed;
}

absl::Status PlanQuantized(const KernelContext& context, int64_t sequences, Plan* p) {
  const Slots slots = Slots::Of(context.node);
  const int64_t bits = IntAttribute(context, "quant_bit", 0);
  const int32_t rows = context.inputs[Slots::kKey].type, kept = context.inputs[slots.cache].type;
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
  if (!HasInput(context, slots.scale)) return Invalid(context, "quant_bit without scales");
  if (kept != TensorProto::INT8 || !is_float(rows) || !is_float(context.inputs[slots.scale].type)) {
    return Unsupported(context, "these types");
  }
  KV_ASSIGN_OR_RETURN(p->scale, Unpack(context, slots.scale, *p, p->D / p->group, sequences));
  if (p->scale.slots != p->cache.slots) return Invalid(context, "scale does not fit cache");
  return absl::OkStatus();
}

// Plans what depends on shapes alone. `sequences` sequences of the packed tensor are written.
absl::StatusOr<Plan> PlanRows(const KernelContext& context, int64_t sequences) {
  const Slots slots = Slots::Of(context.node);
  const View& key = context.inputs[Slots::kKey];
  Plan p;
  p.Nk = key.shape[key.shape.size() - 2];
  p.D = key.shape.back();
  p.repeat = IntAttribute(context, "num_repeat", 1);
  if (p.repeat < 1 || (p.Nk > 0 && p.repeat > INT64_MAX / p.Nk)) {
    return Invalid(context, "num_repeat");
  }
  KV_ASSIGN_OR_RETURN(p.cache, Unpack(context, slots.cache, p, p.D, sequences));
  KV_RETURN_IF_ERROR(PlanQuantized(context, sequences, &p));
  return p;
}

absl::Status CheckRows(const KernelContext& context) {
  const Slots slots = Slots::Of(context.node);
  KV_RETURN_IF_ERROR(NeedInputs(context, static_cast<size_t>(slots.cache) + 1));
  const View& key = context.inputs[Slots::kKey];
  const bool joins = slots.joins_sequences();
  if (key.shape.size() != (joins ? 3 : 4) || context.inputs[Slots::kValue].shape != key.shape ||
      context.inputs[Slots::kValue].type != key.type) {
    return Invalid(context, fmt::format("current_key and current_value must be [{}, Nk, D], and "
                                        "alike",
                                        joins ? "sum of S" : "B, S"));
  }
  if (context.node.output_size() <= Slots::kPresentCache) {
    return Unsupported(context,
                       "writing into a tensor that is no input of the graph, or is read "
                       "by something else");
  }
  return absl::OkStatus();
}

absl::StatusOr<Plan> MakePlan(const KernelContext& context) {
  KV_RETURN_IF_ERROR(CheckRows(context));
  const View& key = context.inputs[Slots::kKey];
  const int64_t sequences = key.shape[0], added = key.shape[1];
  KV_ASSIGN_OR_RETURN(Plan p, PlanRows(context, sequences));
  const View& starts = context.inputs[Slots::Of(context.node).start];
  if (!move::IsIndexType(starts.type) || starts.size() != 1) {
    return Invalid(context, "start_pos must be one number");
  }
  const int64_t start = move::IndexAt(starts, 0);
  if (start < 0 || start > p.cache.slots - added) {
    return Invalid(context, fmt::format("start_pos {} and {} rows exceed {} slots", start, added,
                                        p.cache.slots));
  }
  for (int64_t b = 0; b < sequences; ++b) {
    p.sequences.push_back({b, b * added, added, b * (start + added), start + added});
  }
  return p;
}

// Returns the elements of an int32 or int64 input of the given rank; InvalidArgument for others.
absl::StatusOr<std::vector<int64_t>> Indices(const KernelContext& context, int input,
                                             std::string_view name, size_t rank = 1) {
  const View& view = context.inputs[static_cast<size_t>(input)];
  if (!move::IsIndexType(view.type) || view.shape.size() != rank) {
    return Invalid(context, fmt::format("{} must be indices of rank {}", name, rank));
  }
  std::vector<int64_t> all;
  for (int64_t k = 0; k < view.size(); ++k) all.push_back(move::IndexAt(view, k));
  return all;
}

// Returns the starts of sequences, which must begin with 0 and be sorted.
absl::StatusOr<std::vector<int64_t>> Starts(const KernelContext& context, int input,
                                            std::string_view name) {
  KV_ASSIGN_OR_RETURN(std::vector<int64_t> starts, Indices(context, input, name));
  if (starts.empty() || starts.front() != 0 || !std::is_sorted(starts.begin(), starts.end())) {
    return Invalid(context, fmt::format("{} must begin with 0 and not decrease", name));
  }
  return starts;
}

// Assigns slots to the T rows of a sequence.
absl::Status FindSlots(const KernelContext& context, const std::vector<int64_t>& starts, size_t b,
                       size_t sequences, int64_t slots, Sequence* sequence) {
  const bool paged = IntAttribute(context, "cache_mode", 0) == 1;
  if (paged) sequence->page_size = IntAttribute(context, "page_size", 128);
  if (sequence->page_size < 1) return Invalid(context, "page_size");
  const size_t columns = starts.size() / sequences;
  sequence->pages.assign(starts.begin() + static_cast<std::ptrdiff_t>(b * columns),
                         starts.begin() + static_cast<std::ptrdiff_t>((b + 1) * columns));
  int64_t left = sequence->T;
  for (size_t page = 0; left > 0; ++page, left -= sequence->page_size) {
    if (page >= columns) {
      return Invalid(context, fmt::format("{} rows of sequence {} exceed its {} pages", sequence->T,
                                          b, columns));
    }
    const int64_t rows = std::min(left, sequence->page_size), start = sequence->pages[page];
    if (start < 0 || start > slots - rows) {
      return Invalid(context, fmt::format("{} rows of sequence {} from {} on exceed {} slots", rows,
                                          b, start, slots));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Plan> MakeJoinedPlan(const KernelContext& context) {
  KV_RETURN_IF_ERROR(CheckRows(context));
  KV_ASSIGN_OR_RETURN(Plan p, PlanRows(context, 1));
  const Slots slots = Slots::Of(context.node);
  const int64_t mode = IntAttribute(context, "cache_mode", 0);
  if (mode != 0 && mode != 1) return Invalid(context, "cache_mode");
  KV_ASSIGN_OR_RETURN(const auto rows, Starts(context, slots.seqstarts, "seqstarts"));
  KV_ASSIGN_OR_RETURN(const auto all, Starts(context, slots.kvstarts, "kvstarts"));
  KV_ASSIGN_OR_RETURN(const auto past, Indices(context, slots.start, "start_pos"));
  KV_ASSIGN_OR_RETURN(const auto places,
                      Indices(context, slots.cachestarts, "cachestarts", mode == 1 ? 2 : 1));
  const size_t sequences = past.size();
  const Shape& table = context.inputs[static_cast<size_t>(slots.cachestarts)].shape;
  if (rows.size() != sequences + 1 || all.size() != sequences + 1 ||
      table[0] != static_cast<int64_t>(sequences)) {
    return Invalid(context,
                   "seqstarts, kvstarts, cachestarts and start_pos are not of as many "
                   "sequences");
  }
  if (rows.back() != context.inputs[Slots::kKey].shape[0]) {
    return Invalid(context,
                   fmt::format("seqstarts ends with {}, not with the number of rows", rows.back()));
  }
  for (size_t b = 0; b < sequences; ++b) {
    Sequence sequence = {0, rows[b], rows[b + 1] - rows[b], all[b], all[b + 1] - all[b]};
    if (past[b] < 0 || sequence.T < sequence.S || past[b] != sequence.T - sequence.S) {
      return Invalid(context, fmt::format("sequence {} has {} rows after {} new ones at {}", b,
                                          sequence.T, sequence.S, past[b]));
    }
    KV_RETURN_IF_ERROR(FindSlots(context, places, b, sequences, p.cache.slots, &sequence));
    p.sequences.push_back(std::move(sequence));
  }
  return p;
}

absl::Status SetSpecs(KernelContext& context, const Shape& all) {
  const Slots slots = Slots::Of(context.node);
  for (size_t role = 0; role < 2; ++role) {
    SetSpec(context, role, context.inputs[Slots::kKey].type, all);
  }
  for (const int output : {Slots::kPresentCache, Slots::kPresentScale}) {
    if (context.node.output_size() <= output) continue;
    const auto input = static_cast<size_t>(slots.Written(output));
    if (!HasInput(context, input)) return Invalid(context, "present_scale without scales");
    SetSpec(context, static_cast<size_t>(output), context.inputs[input].type,
            context.inputs[input].shape);
  }
  return absl::OkStatus();
}

absl::Status KeyValueShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const Plan p, MakePlan(context));
  const Shape& rows = context.inputs[Slots::kKey].shape;
  const View& start = context.inputs[Slots::Of(context.node).start];
  return SetSpecs(context,
                  {rows[0], move::IndexAt(start, 0) + rows[1], rows[2] * p.repeat, rows[3]});
}

// Only kvstarts is read here; of the other operands only shapes are known.
absl::Status JoinedKeyValueShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(CheckRows(context));
  KV_ASSIGN_OR_RETURN(const Plan p, PlanRows(context, 1));
  const int kvstarts = Slots::Of(context.node).kvstarts;
  KV_ASSIGN_OR_RETURN(const auto all, Starts(context, kvstarts, "kvstarts"));
  return SetSpecs(context, {all.back(), p.Nk * p.repeat, p.D});
}

template <typename F>
void VisitHalfOrFloat(int32_t type, F f) {
  if (type == TensorProto::FLOAT16) {
    f(TypeTag<Half>());
  } else {
    f(TypeTag<float>());
  }
}

// Rounds a value to the type T, as float.
template <typename T>
float Rounded(float x) {
  return Widen(Narrow<T>(x));
}

// T is the type of rows, W that of scales.
template <typename T, typename W>
class Quantized {
 public:
  Quantized(KernelContext& context, const Plan& plan) : p_(plan) {
    kept_ = context.outputs[Slots::kPresentCache].as<int8_t>();
    scales_ = context.outputs[Slots::kPresentScale].as<W>();
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

// T is any type with the size of an element.
template <typename T>
class Plain {
 public:
  Plain(KernelContext& context, const Plan& plan) : p_(plan) {
    kept_ = context.outputs[Slots::kPresentCache].as<T>();
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
  for (const Sequence& q : p.sequences) {
    for (int64_t role = 0; role < 2; ++role) {
      const T* from = context.inputs[role].as<T>() + q.from * p.Nk * p.D;
      for (int64_t i = 0; i < q.S * p.Nk; ++i) {
        rows.Write(from + i * p.D, q.index, role, q.Slot(q.T - q.S + i / p.Nk), i % p.Nk);
      }
    }
    for (int64_t role = 0; role < 2; ++role) {
      if (!WantsOutput(context, static_cast<size_t>(role))) continue;
      T* to = context.outputs[role].as<T>() + q.to * p.Nk * p.repeat * p.D;
      ParallelFor(context.threads, q.T * p.Nk, 1, 64, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          T* row = to + i * p.repeat * p.D;
          rows.Read(row, q.index, role, q.Slot(i / p.Nk), i % p.Nk);
          for (int64_t k = 1; k < p.repeat; ++k) std::copy_n(row, p.D, row + k * p.D);
        }
      });
    }
  }
}

void Copy(const View& from, const View& to) {
  if (from.data != to.data && to.bytes() > 0) {
    std::memcpy(to.data, from.data, static_cast<size_t>(to.bytes()));
  }
}

absl::Status KeyValueCompute(KernelContext& context) {
  const Slots slots = Slots::Of(context.node);
  auto plan = slots.joins_sequences() ? MakeJoinedPlan(context) : MakePlan(context);
  KV_ASSIGN_OR_RETURN(const Plan p, std::move(plan));
  if (!WantsOutput(context, Slots::kPresentCache) ||
      (p.group > 0 && !WantsOutput(context, Slots::kPresentScale))) {
    return Unsupported(context, "tensors that are written and not given");
  }
  Copy(context.inputs[slots.cache], context.outputs[Slots::kPresentCache]);
  if (WantsOutput(context, Slots::kPresentScale)) {
    Copy(context.inputs[slots.scale], context.outputs[Slots::kPresentScale]);
  }
  if (p.group > 0) {
    VisitHalfOrFloat(context.inputs[Slots::kKey].type, [&](auto row) {
      VisitHalfOrFloat(context.inputs[slots.scale].type, [&](auto scale) {
        using T = typename decltype(row)::Type;
        Run<T>(context, p, Quantized<T, typename decltype(scale)::Type>(context, p));
      });
    });
    return absl::OkStatus();
  }
  switch (ElementBits(context.inputs[Slots::kKey].type)) {
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
      {"opmx.dynamic_batching", "KeyValueCache", 1, JoinedKeyValueShape, KeyValueCompute},
      {"pmx", "KeyValueCache", 1, KeyValueShape, KeyValueCompute},
      {"pmx.dynamic_batching", "KeyValueCache", 1, JoinedKeyValueShape, KeyValueCompute},
  };
  return ops;
}

}  // namespace kvlift::exec
