// com.microsoft EmbedLayerNormalization, the normalised sum of word, position and segment
// embeddings; and GatherBlockQuantized, which gathers rows of a block-quantised table.
#include <fmt/format.h>

#include <cmath>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/move_util.h"
#include "exec/kernels/common/tables.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT

enum EmbedInput {
  kWords,
  kSegments,
  kWord,
  kPosition,
  kSegment,
  kNormGamma,
  kNormBeta,
  kMask,
  kPositionIds
};

absl::Status EmbedShape(KernelContext& context) {
  for (const size_t i : {kWords, kWord, kPosition, kNormGamma, kNormBeta}) {
    if (!HasInput(context, i)) return Invalid(context, fmt::format("input {} is missing", i));
  }
  const Shape& ids = context.inputs[kWords].shape;
  const View& word = context.inputs[kWord];
  if (ids.size() != 2 || word.shape.size() != 2) return Invalid(context, "ranks must be 2");
  for (const size_t i : {kPosition, kSegment, kNormGamma, kNormBeta}) {
    if (!HasInput(context, i)) continue;
    const size_t rank = i == kPosition || i == kSegment ? 2 : 1;
    const View& view = context.inputs[i];
    if (view.type != word.type || view.shape.size() != rank || view.shape.back() != word.shape[1]) {
      return Invalid(context, fmt::format("input {} does not fit", i));
    }
  }
  if (HasInput(context, kSegments) != HasInput(context, kSegment)) {
    return Invalid(context, "segment ids and embeddings must be given together");
  }
  for (const size_t i : {kWords, kSegments, kMask, kPositionIds}) {
    if (!HasInput(context, i)) continue;
    const View& view = context.inputs[i];
    const bool fits = view.shape == ids || (i == kPositionIds && view.shape == Shape({1, ids[1]}));
    if (!fits || !move::IsIndexType(view.type)) {
      return Invalid(context, fmt::format("input {} does not fit", i));
    }
  }
  const Shape out = {ids[0], ids[1], word.shape[1]};
  SetSpec(context, 0, word.type, out);
  if (context.node.output_size() > 1) SetSpec(context, 1, onnx::TensorProto::INT32, {ids[0]});
  if (context.node.output_size() > 2) SetSpec(context, 2, word.type, out);
  return absl::OkStatus();
}

// Adds row `index` of table `input` to `sum`.
template <typename T>
absl::Status AddRow(const KernelContext& context, size_t input, int64_t index, int64_t width,
                    Compute<T>* sum) {
  const View& table = context.inputs[input];
  if (index < 0 || index >= table.shape[0]) {
    return Invalid(
        context, fmt::format("index {} is out of range for a table of {}", index, table.shape[0]));
  }
  for (int64_t i = 0; i < width; ++i) sum[i] += Widen(table.as<T>()[index * width + i]);
  return absl::OkStatus();
}

template <typename T>
absl::Status EmbedTyped(KernelContext& context) {
  using C = Compute<T>;
  const Shape& out = context.outputs[0].shape;
  const int64_t S = out[1], width = out[2];
  const C epsilon = FloatAttribute(context, "epsilon", 1e-12f);
  const T* gamma = context.inputs[kNormGamma].as<T>();
  const T* beta = context.inputs[kNormBeta].as<T>();
  ScratchScope scratch;
  C* sum = scratch.Get<C>(width);
  for (int64_t i = 0; i < out[0] * S; ++i) {
    int64_t position = i % S;
    if (HasInput(context, kPositionIds)) {
      const View& ids = context.inputs[kPositionIds];
      position = move::IndexAt(ids, ids.shape[0] == 1 ? i % S : i);
    }
    std::fill(sum, sum + width, C{0});
    KV_RETURN_IF_ERROR(
        AddRow<T>(context, kWord, move::IndexAt(context.inputs[kWords], i), width, sum));
    KV_RETURN_IF_ERROR(AddRow<T>(context, kPosition, position, width, sum));
    if (HasInput(context, kSegments)) {
      KV_RETURN_IF_ERROR(
          AddRow<T>(context, kSegment, move::IndexAt(context.inputs[kSegments], i), width, sum));
    }
    if (WantsOutput(context, 2)) NarrowArray(sum, width, context.outputs[2].as<T>() + i * width);
    const C mean = Vectors<C>().sum(sum, width) / static_cast<C>(width);
    const C variance = Vectors<C>().sum_centered_squares(sum, width, mean) / static_cast<C>(width);
    const C deviation = std::sqrt(variance + epsilon);
    for (int64_t j = 0; j < width; ++j) {
      sum[j] = (sum[j] - mean) / deviation * Widen(gamma[j]) + Widen(beta[j]);
    }
    NarrowArray(sum, width, context.outputs[0].as<T>() + i * width);
  }
  return absl::OkStatus();
}

absl::Status EmbedCompute(KernelContext& context) {
  if (WantsOutput(context, 1)) {  // number of words that the mask keeps
    const int64_t S = context.inputs[kWords].shape[1];
    for (int64_t b = 0; b < context.outputs[1].size(); ++b) {
      int32_t count = 0;
      for (int64_t s = 0; HasInput(context, kMask) && s < S; ++s) {
        count += move::IndexAt(context.inputs[kMask], b * S + s) == 1 ? 1 : 0;
      }
      context.outputs[1].as<int32_t>()[b] = count;
    }
  }
  return VisitFloat(context.outputs[0].type,
                    [&](auto tag) { return EmbedTyped<typename decltype(tag)::Type>(context); });
}

// GatherBlockQuantized. `pack` is the number of values in a byte of uint8 data, whose last
// dimension has that many more values.
struct BlockPlan {
  int64_t gather = 0, quantize = 0, block = 0, bits = 4, pack = 1;
  Shape data, out;  // in values
};

absl::StatusOr<BlockPlan> PlanBlocks(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 3));
  const View& data = context.inputs[0];
  const View& scales = context.inputs[2];
  const auto rank = static_cast<int64_t>(data.shape.size());
  BlockPlan p;
  KV_ASSIGN_OR_RETURN(p.gather, move::Axis(context, "gather_axis", 0, rank));
  KV_ASSIGN_OR_RETURN(p.quantize, move::Axis(context, "quantize_axis", 1, rank));
  p.block = IntAttribute(context, "block_size", 128);
  const bool bytes = data.type == onnx::TensorProto::UINT8;
  p.bits = bytes ? IntAttribute(context, "bits", 4) : 4;
  if (!bytes && data.type != onnx::TensorProto::INT4 && data.type != onnx::TensorProto::UINT4) {
    return Unsupported(context, "data of this type is not supported");
  }
  if ((p.bits != 2 && p.bits != 4 && p.bits != 8) || p.block <= 0 ||
      !move::IsIndexType(context.inputs[1].type)) {
    return Invalid(context, "bits, block_size or indices do not fit");
  }
  p.data = data.shape;
  if (bytes) p.pack = 8 / p.bits;
  p.data.back() *= p.pack;
  Shape wanted = p.data;
  wanted[p.quantize] = (wanted[p.quantize] + p.block - 1) / p.block;
  if (scales.shape != wanted) return Invalid(context, "the scales do not fit");
  if (HasInput(context, 3)) {
    Shape zeros = wanted;
    if (bytes) zeros.back() = (zeros.back() + p.pack - 1) / p.pack;
    if (context.inputs[3].shape != zeros || context.inputs[3].type != data.type) {
      return Invalid(context, "the zero points do not fit");
    }
  }
  const Shape& indices = context.inputs[1].shape;
  p.out.assign(p.data.begin(), p.data.begin() + p.gather);
  p.out.insert(p.out.end(), indices.begin(), indices.end());
  p.out.insert(p.out.end(), p.data.begin() + p.gather + 1, p.data.end());
  return p;
}

absl::Status BlocksShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const BlockPlan p, PlanBlocks(context));
  SetSpec(context, 0, context.inputs[2].type, p.out);
  return absl::OkStatus();
}

// Returns value `index` of packed data. In uint8 data rows of `row` values start at whole bytes;
// other types are contiguous.
int64_t PackedAt(const View& view, int64_t index, int64_t row, int64_t bits) {
  int64_t bit = index * bits;
  if (view.type == onnx::TensorProto::UINT8) {
    const int64_t bytes = (row * bits + 7) / 8;
    bit = index / row * bytes * 8 + index % row * bits;
  }
  const int64_t value = (view.as<uint8_t>()[bit / 8] >> (bit % 8)) & ((1 << bits) - 1);
  return view.type == onnx::TensorProto::INT4 && value > 7 ? value - 16 : value;
}

template <typename T>
absl::Status BlocksTyped(KernelContext& context, const BlockPlan& p) {
  const View& indices = context.inputs[1];
  const auto g = static_cast<size_t>(p.gather);
  const int64_t n = p.data[g], count = indices.size();
  const int64_t inner = move::Product(p.data, g + 1, p.data.size());
  const Shape& scales = context.inputs[2].shape;
  const bool bytes = context.inputs[0].type == onnx::TensorProto::UINT8;
  const int64_t middle = bytes ? int64_t{1} << (p.bits - 1) : 0;
  T* y = context.outputs[0].as<T>();
  for (int64_t i = 0; i < context.outputs[0].size(); ++i) {
    int64_t index = move::IndexAt(indices, i / inner % count);
    if (index < -n || index >= n) {
      return Invalid(context, fmt::format("index {} is out of range for an axis of {}", index, n));
    }
    if (index < 0) index += n;
    const int64_t at = (i / inner / count * n + index) * inner + i % inner;
    int64_t rest = at, scale_at = 0, stride = 1;
    for (size_t d = p.data.size(); d-- > 0;) {
      const int64_t position = rest % p.data[d];
      rest /= p.data[d];
      scale_at += (static_cast<int64_t>(d) == p.quantize ? position / p.block : position) * stride;
      stride *= scales[d];
    }
    const int64_t zero = HasInput(context, 3)
                             ? PackedAt(context.inputs[3], scale_at, scales.back(), p.bits)
                             : middle;
    const int64_t value = PackedAt(context.inputs[0], at, p.data.back(), p.bits) - zero;
    y[i] = Narrow<T>(static_cast<Compute<T>>(value) * Widen(context.inputs[2].as<T>()[scale_at]));
  }
  return absl::OkStatus();
}

absl::Status BlocksCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const BlockPlan plan, PlanBlocks(context));
  return VisitFloat(context.inputs[2].type, [&](auto tag) {
    return BlocksTyped<typename decltype(tag)::Type>(context, plan);
  });
}

}  // namespace

absl::Span<const OpDef> EmbedOps() {
  static const OpDef ops[] = {
      {"com.microsoft", "EmbedLayerNormalization", 1, EmbedShape, EmbedCompute},
      {"com.microsoft", "GatherBlockQuantized", 1, BlocksShape, BlocksCompute},
  };
  return ops;
}

}  // namespace kvlift::exec
