#include "verify/record/quantized_rows.h"

#include <algorithm>
#include <cmath>

#include "exec/memory/small_types.h"
#include "ir/types.h"
#include "onnx/onnx_pb.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

constexpr float kSmallestScale = 0x1p-126f;

float Reach(const RowStorage& storage) {
  return storage.type == TensorProto::FLOAT8E4M3FN ? 448.0f : 127.0f;
}

// Returns the scale of the group that begins at an element.
float ScaleAt(const exec::View& rows, int64_t first, const RowStorage& storage) {
  float largest = 0;
  for (int64_t i = first; i < first + storage.group; ++i) {
    largest = std::max(largest, std::fabs(static_cast<float>(exec::ElementAsDouble(rows, i))));
  }
  return std::max(largest / Reach(storage), kSmallestScale);
}

}  // namespace

std::map<std::string, RowStorage> StorageOf(const Manifest& relation) {
  std::map<std::string, RowStorage> all;
  for (const ManifestCache& cache : relation.caches) {
    if (!cache.quantization) continue;
    const bool float8 = cache.quantization->dtype == ElementTypeName(TensorProto::FLOAT8E4M3FN);
    all[cache.input] = {cache.quantization->group,
                        float8 ? TensorProto::FLOAT8E4M3FN : TensorProto::INT8};
  }
  return all;
}

QuantizedRows QuantizeRows(const exec::View& rows, const RowStorage& storage) {
  exec::Shape groups = rows.shape;
  groups.back() /= storage.group;
  QuantizedRows stored{exec::Tensor(storage.type, rows.shape),
                       exec::Tensor(TensorProto::FLOAT, groups)};
  for (int64_t first = 0; first < rows.size(); first += storage.group) {
    const float scale = ScaleAt(rows, first, storage);
    stored.scales.span<float>()[first / storage.group] = scale;
    for (int64_t i = first; i < first + storage.group; ++i) {
      const float quotient = static_cast<float>(exec::ElementAsDouble(rows, i)) / scale;
      if (storage.type == TensorProto::FLOAT8E4M3FN) {
        exec::SetSmallFloat(stored.values.view(), i, quotient, /*saturate=*/true);
      } else {
        stored.values.span<int8_t>()[i] =
            static_cast<int8_t>(std::clamp(std::nearbyintf(quotient), -127.0f, 127.0f));
      }
    }
  }
  return stored;
}

exec::Tensor StorageErrors(const exec::View& rows, const RowStorage& storage) {
  const QuantizedRows stored = QuantizeRows(rows, storage);
  exec::Tensor errors(TensorProto::DOUBLE, rows.shape);
  for (int64_t i = 0; i < rows.size(); ++i) {
    const double read = exec::ElementAsDouble(stored.values.view(), i) *
                        stored.scales.span<float>()[i / storage.group];
    // The product is rounded when it is read.
    errors.span<double>()[i] =
        std::fabs(read - exec::ElementAsDouble(rows, i)) + 0x1p-24 * std::fabs(read);
  }
  return errors;
}

}  // namespace kvlift
