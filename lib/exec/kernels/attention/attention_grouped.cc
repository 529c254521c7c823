#include "exec/kernels/attention/attention_grouped.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "exec/kernels/common/math_util.h"

namespace kvlift::exec {
namespace {

using math::Bfloat;
using math::Half;

int64_t ElementBytes(Storage storage) { return storage == Storage::kNative ? 4 : 2; }

const void* At(const GroupedHeads::Part& part, int64_t element) {
  return static_cast<const std::byte*>(part.data) + element * ElementBytes(part.storage);
}

void Widen(const void* x, Storage storage, int64_t n, float* y) {
  switch (storage) {
    case Storage::kHalf:
      return math::WidenArray(static_cast<const Half*>(x), n, y);
    case Storage::kBfloat:
      return math::WidenArray(static_cast<const Bfloat*>(x), n, y);
    default:
      return math::WidenArray(static_cast<const float*>(x), n, y);
  }
}

// Dequantises `size` int8 elements, each with the scale of its group.
void WidenInt8(const int8_t* x, const float* scales, int64_t group, int64_t size, float* y) {
  if (group == 1) {
    for (int64_t d = 0; d < size; ++d) y[d] = static_cast<float>(x[d]) * scales[d];
    return;
  }
  for (int64_t d = 0; d < size; ++d) y[d] = static_cast<float>(x[d]) * scales[d / group];
}

}  // namespace

void KeyMask::Apply(int64_t, int64_t, int64_t, int64_t, int64_t, float*) const {}

void LoadQuery(const GroupedHeads& heads, int64_t b, int64_t h, int64_t s, int64_t padded,
               float* out) {
  Widen(At(heads.q, heads.q.layout.Offset(b, h, s)), heads.q.storage, heads.D, out);
  AttentionIsa().scale(out, heads.D, static_cast<float>(heads.scale));
  std::fill(out + heads.D, out + padded, 0.0f);
}

void StoreResult(const GroupedHeads& heads, int64_t b, int64_t h, int64_t s, const float* x) {
  const int64_t at = heads.y_layout.Offset(b, h, s);
  switch (heads.y_storage) {
    case Storage::kHalf:
      return math::NarrowArray(x, heads.Dv, static_cast<Half*>(heads.y) + at);
    case Storage::kBfloat:
      return math::NarrowArray(x, heads.Dv, static_cast<Bfloat*>(heads.y) + at);
    default:
      return math::NarrowArray(x, heads.Dv, static_cast<float*>(heads.y) + at);
  }
}

float* FloatResult(const GroupedHeads& heads, int64_t b, int64_t h, int64_t s) {
  if (heads.y_storage != Storage::kNative) return nullptr;
  return static_cast<float*>(heads.y) + heads.y_layout.Offset(b, h, s);
}

RowBlock RowsOf(const GroupedHeads::Part& part, int64_t size, int64_t b, int64_t kv_head,
                int64_t begin, int64_t end, ScratchScope& scratch) {
  const int64_t padded = (size + 15) / 16 * 16;
  if (part.scales != nullptr) {
    const auto* bytes =
        static_cast<const int8_t*>(part.data) + part.layout.Offset(b, kv_head, begin);
    const float* scales = part.scales + part.scale_layout.Offset(b, kv_head, begin);
    if (size % 16 == 0 && part.group % 16 == 0) {
      return {bytes,   Storage::kNative, part.layout.token,       end - begin, size,
              nullptr, scales,           part.scale_layout.token, part.group};
    }
    float* rows = scratch.Get<float>((end - begin) * padded);
    for (int64_t t = 0; t < end - begin; ++t) {
      float* row = rows + t * padded;
      WidenInt8(bytes + t * part.layout.token, scales + t * part.scale_layout.token, part.group,
                size, row);
      std::fill(row + size, row + padded, 0.0f);
    }
    return {rows, Storage::kNative, padded, end - begin, padded};
  }
  const void* data = At(part, part.layout.Offset(b, kv_head, begin));
  if (size % 16 == 0) return {data, part.storage, part.layout.token, end - begin, size};
  float* rows = scratch.Get<float>((end - begin) * padded);
  for (int64_t t = begin; t < end; ++t) {
    float* row = rows + (t - begin) * padded;
    Widen(At(part, part.layout.Offset(b, kv_head, t)), part.storage, size, row);
    std::fill(row + size, row + padded, 0.0f);
  }
  return {rows, Storage::kNative, padded, end - begin, padded};
}

RowBlock RowsFrom(const RowBlock& block, int64_t first, int64_t count) {
  RowBlock rows = block;
  const int64_t bytes = block.scales != nullptr ? 1 : ElementBytes(block.storage);
  rows.data = static_cast<const std::byte*>(block.data) + first * block.stride * bytes;
  if (block.scales != nullptr) rows.scales += first * block.scale_stride;
  rows.rows = count;
  return rows;
}

RowBlock Widened(const RowBlock& block, ScratchScope& scratch) {
  if (block.storage == Storage::kNative && block.scales == nullptr) return block;
  float* rows = scratch.Get<float>(block.rows * block.size);
  for (int64_t t = 0; t < block.rows; ++t) {
    if (block.scales != nullptr) {
      WidenInt8(static_cast<const int8_t*>(block.data) + t * block.stride,
                block.scales + t * block.scale_stride, block.group, block.size,
                rows + t * block.size);
      continue;
    }
    Widen(RowsFrom(block, t, 1).data, block.storage, block.size, rows + t * block.size);
  }
  return {rows, Storage::kNative, block.size, block.rows, block.size};
}

float HighestScore(const float* x, int64_t n) {
  const float highest = AttentionIsa().highest(x, n);
  if (highest > -std::numeric_limits<float>::infinity()) return highest;
  return Vectors<float>().max(x, n);
}

void RunGrouped(const GroupedHeads& heads, int threads) {
  if (heads.B == 0 || heads.N == 0 || heads.S == 0 || heads.Dv == 0) return;
  if (heads.S == 1 || heads.S * heads.G() <= kFewRows) {
    RunFewQueries(heads, threads);
  } else {
    RunManyQueries(heads, threads);
  }
}

}  // namespace kvlift::exec
