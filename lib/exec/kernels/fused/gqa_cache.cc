#include "exec/kernels/fused/gqa_cache.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "exec/kernels/common/math_util.h"
#include "exec/memory/small_types.h"

namespace kvlift::exec {
namespace {

using onnx::TensorProto;

View RowView(int32_t type, int64_t size, std::byte* row) { return {type, {size}, row}; }

// A byte has two 4-bit values, the first in the low half, each stored as value + kZeroPoint.
constexpr int kZeroPoint = 8;

}  // namespace

CacheRows::CacheRows(int32_t type, int64_t size)
    : type_(type), size_(size), bytes_(NumBytes(type, {size})) {}

CacheRows::CacheRows(int32_t type, int64_t size, const View& scale)
    : type_(type),
      size_(size),
      bytes_(type == TensorProto::UINT8 ? size / 2 : size),
      scale_(scale.as<float>()),
      per_channel_(scale.size() > 1) {}

float CacheRows::Scale(int64_t head, int64_t d) const {
  return scale_[per_channel_ ? head * size_ + d : 0];
}

void CacheRows::Store(int64_t head, const float* x, std::byte* row) const {
  const auto steps = [&](int64_t d) {
    const float scale = Scale(head, d);
    return x[d] * (scale == 0 ? 1 : 1 / scale);
  };
  switch (type_) {
    case TensorProto::FLOAT:
      std::memcpy(row, x, static_cast<size_t>(bytes_));
      return;
    case TensorProto::FLOAT16:
      return math::NarrowArray(x, size_, reinterpret_cast<math::Half*>(row));
    case TensorProto::BFLOAT16:
      return math::NarrowArray(x, size_, reinterpret_cast<math::Bfloat*>(row));
    case TensorProto::FLOAT8E4M3FN:
      for (int64_t d = 0; d < size_; ++d) {
        SetSmallFloat(RowView(type_, size_, row), d, steps(d), true);
      }
      return;
    default:
      break;
  }
  const bool packed = type_ == TensorProto::UINT8;
  const float low = packed ? -8 : -128, high = packed ? 7 : 127;
  if (packed) std::memset(row, 0, static_cast<size_t>(bytes_));
  for (int64_t d = 0; d < size_; ++d) {
    const float code = std::clamp(std::nearbyint(steps(d)), low, high);
    const int value = std::isnan(code) ? 0 : static_cast<int>(code);
    if (packed) {
      row[d / 2] |= static_cast<std::byte>((value + kZeroPoint) << (d % 2 * 4));
    } else {
      row[d] = static_cast<std::byte>(value);
    }
  }
}

void CacheRows::Load(int64_t head, const std::byte* row, float* x) const {
  switch (type_) {
    case TensorProto::FLOAT:
      std::memcpy(x, row, static_cast<size_t>(bytes_));
      return;
    case TensorProto::FLOAT16:
      return math::WidenArray(reinterpret_cast<const math::Half*>(row), size_, x);
    case TensorProto::BFLOAT16:
      return math::WidenArray(reinterpret_cast<const math::Bfloat*>(row), size_, x);
    default:
      break;
  }
  const View view = RowView(type_, size_, const_cast<std::byte*>(row));
  for (int64_t d = 0; d < size_; ++d) {
    float value = 0;
    if (type_ == TensorProto::FLOAT8E4M3FN) {
      value = SmallFloatAt(view, d);
    } else if (type_ == TensorProto::UINT8) {
      const int code = static_cast<int>(row[d / 2] >> (d % 2 * 4)) & 15;
      value = static_cast<float>(code - kZeroPoint);
    } else {
      value = view.as<int8_t>()[d];
    }
    x[d] = value * Scale(head, d);
  }
}

int64_t ResidentRows(int64_t tokens, int64_t capacity, int64_t window) {
  if (tokens <= capacity) return tokens;
  const int64_t step = capacity - window + 1;
  return tokens - step * ((tokens - capacity + step - 1) / step);
}

void StageRows(const StagedRows& staged, const CacheRows& rows, const std::byte* past,
               const float* fresh, std::byte* stage, std::byte* present, float* wide) {
  const int64_t bytes = rows.bytes();
  const auto length = [&](int64_t count) { return static_cast<size_t>(count * bytes); };
  for (size_t b = 0; b < staged.entries.size(); ++b) {
    const StagedEntry& entry = staged.entries[b];
    const int64_t end = std::max(entry.copied, entry.first_new + staged.S);
    for (int64_t h = 0; h < staged.Nk; ++h) {
      const int64_t head = static_cast<int64_t>(b) * staged.Nk + h;
      std::byte* to = stage + head * staged.rows * bytes;
      if (entry.copied > 0) {
        std::memcpy(to, past + head * staged.past_capacity * bytes, length(entry.copied));
      }
      for (int64_t s = 0; s < staged.S; ++s) {
        rows.Store(h, fresh + (head * staged.S + s) * staged.D, to + (entry.first_new + s) * bytes);
      }
      std::memset(to + end * bytes, 0, length(staged.rows - end));
      for (int64_t t = 0; t < staged.rows; ++t) {
        float* x = wide + (head * staged.rows + t) * staged.D;
        t < end ? rows.Load(h, to + t * bytes, x) : void(std::fill_n(x, staged.D, 0.0f));
      }
      if (present == nullptr) continue;
      std::byte* out = present + head * staged.capacity * bytes;
      if (entry.kept > 0) std::memcpy(out, to + entry.first_kept * bytes, length(entry.kept));
      std::memset(out + entry.kept * bytes, 0, length(staged.capacity - entry.kept));
    }
  }
}

}  // namespace kvlift::exec
