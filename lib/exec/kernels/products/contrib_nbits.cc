// com.microsoft MatMulNBits: products with block-quantised weights of 2, 4 or 8 bits.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/tables.h"
#include "exec/kernels/products/bits_panel.h"
#include "exec/kernels/products/dequantized_product.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT

// B is [N, blocks, bytes of a block], the first value in the lowest bits.
struct BitsPlan {
  int64_t m = 0, N = 0, K = 0, block = 0, blocks = 0, bits = 0;
};

absl::StatusOr<BitsPlan> PlanBits(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 3));
  BitsPlan p;
  p.N = IntAttribute(context, "N", 0);
  p.K = IntAttribute(context, "K", 0);
  p.bits = IntAttribute(context, "bits", 4);
  p.block = IntAttribute(context, "block_size", 0);
  if (IntAttribute(context, "weight_prepacked", 0) != 0 ||
      (p.bits != 2 && p.bits != 4 && p.bits != 8)) {
    return Unsupported(context, "this form of the weights is not supported");
  }
  const View& a = context.inputs[0];
  const View& scales = context.inputs[2];
  if (p.N <= 0 || p.K <= 0 || p.block <= 0 || p.block * p.bits % 8 != 0 || a.shape.empty() ||
      a.shape.back() != p.K) {
    return Invalid(context, "N, K or block_size do not fit A");
  }
  p.m = a.size() / p.K;
  p.blocks = (p.K + p.block - 1) / p.block;
  if (context.inputs[1].type != onnx::TensorProto::UINT8 ||
      context.inputs[1].size() != p.N * p.blocks * (p.block * p.bits / 8) ||
      scales.type != a.type || scales.size() != p.N * p.blocks) {
    return Invalid(context, "the weights or their scales do not fit");
  }
  if (HasInput(context, 3)) {
    const View& zero = context.inputs[3];
    const int64_t packed = p.N * ((p.blocks * p.bits + 7) / 8);
    if (zero.type == onnx::TensorProto::UINT8
            ? zero.size() != packed
            : zero.type != a.type || zero.size() != scales.size()) {
      return Invalid(context, "the zero points do not fit");
    }
  }
  if (HasInput(context, 4) &&
      (context.inputs[4].type != onnx::TensorProto::INT32 || context.inputs[4].size() < p.K)) {
    return Invalid(context, "g_idx does not fit");
  }
  if (HasInput(context, 5) &&
      (context.inputs[5].size() != p.N || context.inputs[5].type != a.type)) {
    return Invalid(context, "the bias does not fit");
  }
  return p;
}

absl::Status BitsShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const BitsPlan p, PlanBits(context));
  SetShapeOfProduct(context, p.N);
  return absl::OkStatus();
}

int64_t BitsAt(const uint8_t* data, int64_t index, int64_t bits) {
  const int64_t first = index * bits;
  return (data[first / 8] >> (first % 8)) & ((1 << bits) - 1);
}

template <typename T>
Compute<T> ZeroPoint(const KernelContext& context, const BitsPlan& p, int64_t n, int64_t block) {
  using C = Compute<T>;
  if (!HasInput(context, 3)) return static_cast<C>(int64_t{1} << (p.bits - 1));
  const View& zero = context.inputs[3];
  if (zero.type != onnx::TensorProto::UINT8) return Widen(zero.as<T>()[n * p.blocks + block]);
  const int64_t row = (p.blocks * p.bits + 7) / 8;
  return static_cast<C>(BitsAt(zero.as<uint8_t>() + n * row, block, p.bits));
}

absl::Status CheckGroups(const KernelContext& context, const BitsPlan& p) {
  if (!HasInput(context, 4)) return absl::OkStatus();
  const int32_t* groups = context.inputs[4].as<int32_t>();
  const bool fits = std::all_of(groups, groups + p.K,
                                [&](int32_t group) { return group >= 0 && group < p.blocks; });
  return fits ? absl::OkStatus() : Invalid(context, "g_idx is out of range");
}

// Unpacks the codes of a block, one per byte.
template <int kBits>
void UnpackCodes(const uint8_t* data, int64_t count, uint8_t* codes) {
  constexpr int kInByte = 8 / kBits, kMask = (1 << kBits) - 1;
  const int64_t bytes = (count + kInByte - 1) / kInByte;
#pragma omp simd
  for (int64_t i = 0; i < bytes; ++i) {
    for (int k = 0; k < kInByte; ++k) {
      codes[i * kInByte + k] = static_cast<uint8_t>((data[i] >> (k * kBits)) & kMask);
    }
  }
}

// Dequantises a block, which has one zero point and one scale. `codes` is scratch for one block.
template <typename C>
void DequantizeBlock(const uint8_t* data, int64_t count, int64_t bits, C zero, C scale,
                     uint8_t* codes, C* row) {
  if (bits == 4) UnpackCodes<4>(data, count, codes);
  if (bits == 2) UnpackCodes<2>(data, count, codes);
  const uint8_t* all = bits == 8 ? data : codes;
#pragma omp simd
  for (int64_t k = 0; k < count; ++k) row[k] = (static_cast<C>(all[k]) - zero) * scale;
}

// Dequantises the weights of output column n.
template <typename T>
void Dequantize(const KernelContext& context, const BitsPlan& p, int64_t n, Compute<T>* row) {
  using C = Compute<T>;
  const int64_t bytes = p.block * p.bits / 8;
  const uint8_t* data = context.inputs[1].as<uint8_t>() + n * p.blocks * bytes;
  const T* scales = context.inputs[2].as<T>() + n * p.blocks;
  const int32_t* groups = HasInput(context, 4) ? context.inputs[4].as<int32_t>() : nullptr;
  std::vector<uint8_t> codes(static_cast<size_t>(p.block) + 4);
  for (int64_t block = 0; block < p.blocks; ++block, data += bytes) {
    const C zero = ZeroPoint<T>(context, p, n, block), scale = Widen(scales[block]);
    const int64_t first = block * p.block, end = std::min(p.K, first + p.block);
    if (groups == nullptr) {
      DequantizeBlock(data, end - first, p.bits, zero, scale, codes.data(), row + first);
      continue;
    }
    for (int64_t k = first; k < end; ++k) {
      if (groups[k] != block) {
        const C value = static_cast<C>(BitsAt(data, k - first, p.bits));
        row[k] = (value - ZeroPoint<T>(context, p, n, groups[k])) * Widen(scales[groups[k]]);
      } else {
        row[k] = (static_cast<C>(BitsAt(data, k - first, p.bits)) - zero) * scale;
      }
    }
  }
}

template <typename T>
absl::Status BitsTyped(KernelContext& context, const BitsPlan& p) {
  KV_RETURN_IF_ERROR(CheckGroups(context, p));
  const T* bias = HasInput(context, 5) ? context.inputs[5].as<T>() : nullptr;
  MultiplyDequantized<T>(context, p.m, p.N, p.K, bias,
                         [&](int64_t n, Compute<T>* row) { Dequantize<T>(context, p, n, row); });
  return absl::OkStatus();
}

int64_t IntOf(const onnx::NodeProto& node, std::string_view name, int64_t fallback) {
  for (const onnx::AttributeProto& a : node.attribute()) {
    if (a.name() == name) return a.i();
  }
  return fallback;
}

// Returns true if g_idx is a constant that describes consecutive blocks, as without g_idx.
bool InOrder(const View& groups, int64_t k, int64_t block) {
  if (groups.absent() || groups.type != onnx::TensorProto::INT32 || groups.size() < k ||
      block <= 0) {
    return false;
  }
  for (int64_t i = 0; i < k; ++i) {
    if (groups.as<int32_t>()[i] != i / block) return false;
  }
  return true;
}

std::shared_ptr<const Prepacked> BitsPack(const PackRequest& request) {
  const absl::Span<const View> in = request.inputs;
  // A permutation, or operands that are computed, cannot be packed.
  if (in.size() > 4 && !request.node.input(4).empty() &&
      !InOrder(in[4], IntOf(request.node, "K", 0), IntOf(request.node, "block_size", 0))) {
    return nullptr;
  }
  for (size_t i = 1; i < std::min<size_t>(in.size(), 4); ++i) {
    if (in[i].absent() && !request.node.input(static_cast<int>(i)).empty()) return nullptr;
  }
  if (in.size() < 3) return nullptr;
  BitsSource source;
  source.n = IntOf(request.node, "N", 0);
  source.k = IntOf(request.node, "K", 0);
  source.bits = static_cast<int>(IntOf(request.node, "bits", 4));
  source.block = IntOf(request.node, "block_size", 0);
  const auto storage = StorageOfType(in[2].type);
  const int bits = source.bits;
  if (source.n <= 0 || source.k <= 0 || source.block <= 0 || !storage.has_value() ||
      (bits != 2 && bits != 4 && bits != 8) || in[1].type != onnx::TensorProto::UINT8 ||
      IntOf(request.node, "weight_prepacked", 0) != 0 || source.block * bits % 8 != 0) {
    return nullptr;
  }
  const int64_t blocks = (source.k + source.block - 1) / source.block;
  if (in[1].size() != source.n * blocks * (source.block * bits / 8) ||
      in[2].size() != source.n * blocks) {
    return nullptr;
  }
  source.codes = in[1].as<uint8_t>();
  source.scales = in[2].data;
  source.storage = *storage;
  if (in.size() > 3 && !in[3].absent()) {
    const bool codes = in[3].type == onnx::TensorProto::UINT8;
    const int64_t size = codes ? source.n * ((blocks * bits + 7) / 8) : source.n * blocks;
    if (in[3].size() != size || (!codes && in[3].type != in[2].type)) return nullptr;
    if (codes) {
      source.packed_zeros = in[3].as<uint8_t>();
    } else {
      source.zeros = in[3].data;
    }
  }
  // accuracy_level 4 allows rounding the rows of A to 8 bits.
  const bool integer_dot =
      !request.canonical && IntOf(request.node, "accuracy_level", 0) == 4 && source.block <= 256;
  return PackedBits::Make(source, integer_dot, request.threads);
}

absl::Status BitsPacked(KernelContext& context, const BitsPlan& p) {
  const auto* b = static_cast<const PackedBits*>(context.packed);
  PanelProduct product;
  product.b = b;
  product.m = p.m;
  product.a = context.inputs[0].data;
  product.c = context.outputs[0].data;
  product.storage = *StorageOfType(context.inputs[0].type);
  if (HasInput(context, 5)) {
    product.bias = context.inputs[5].data;
    product.bias_column = 1;
  }
  (b->integer_dot() ? MultiplyBitsDot : MultiplyPanels)(product, context.threads);
  return absl::OkStatus();
}

absl::Status BitsCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const BitsPlan plan, PlanBits(context));
  if (context.packed != nullptr) return BitsPacked(context, plan);
  return VisitFloat(context.inputs[0].type, [&](auto tag) {
    return BitsTyped<typename decltype(tag)::Type>(context, plan);
  });
}

}  // namespace

absl::Span<const OpDef> NBitsOps() {
  static const OpDef ops[] = {
      {"com.microsoft", "MatMulNBits", 1, BitsShape, BitsCompute, ViewKind::kNone, -1, BitsPack, 1},
  };
  return ops;
}

}  // namespace kvlift::exec
