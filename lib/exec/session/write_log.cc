#include "exec/session/write_log.h"

#include <cstring>

#include "ir/graph.h"
#include "ir/types.h"

namespace kvlift::exec {
namespace {

int64_t IndexAt(const View& view, int64_t i) {
  return view.type == onnx::TensorProto::INT32 ? view.as<int32_t>()[i] : view.as<int64_t>()[i];
}

}  // namespace

void UndoLog::Clear() {
  regions_.clear();
  bytes_.clear();
}

void UndoLog::SaveBytes(std::byte* target, size_t bytes) {
  regions_.push_back({target, bytes_.size(), bytes});
  bytes_.insert(bytes_.end(), target, target + bytes);
}

void UndoLog::Save(const onnx::NodeProto& node, absl::Span<const View> inputs) {
  if (inputs.empty() || inputs[0].size() == 0) return;
  if (ElementBits(inputs[0].type) % 8 != 0) {
    SaveBytes(inputs[0].data, static_cast<size_t>(inputs[0].bytes()));
  } else if (node.op_type() == "TensorScatter") {
    SaveTensorScatter(node, inputs);
  } else if (node.op_type() == "ScatterND") {
    SaveScatterNd(inputs);
  } else {
    SaveScatterElements(node, inputs);
  }
}

// The cache is [B, .., M, ..] and the update [B, .., S, ..], with M and S on `axis`.
void UndoLog::SaveTensorScatter(const onnx::NodeProto& node, absl::Span<const View> inputs) {
  const View& cache = inputs[0];
  const auto rank = static_cast<int64_t>(cache.shape.size());
  int64_t axis = IntAttribute(node, "axis", -2);
  if (axis < 0) axis += rank;
  if (inputs.size() < 2 || axis <= 0 || axis >= rank ||
      static_cast<int64_t>(inputs[1].shape.size()) != rank) {
    return;
  }
  const bool circular = StringAttribute(node, "mode", "linear") == "circular";
  const int64_t capacity = cache.shape[axis], count = inputs[1].shape[axis];
  int64_t blocks = 1, row = 1;  // blocks per batch entry, elements per row
  for (int64_t d = 1; d < axis; ++d) blocks *= cache.shape[d];
  for (int64_t d = axis + 1; d < rank; ++d) row *= cache.shape[d];
  const auto row_bytes = static_cast<size_t>(row * ElementBits(cache.type) / 8);
  const bool indexed = inputs.size() > 2 && !inputs[2].absent();
  if (indexed && inputs[2].size() != cache.shape[0]) return;
  for (int64_t b = 0; b < cache.shape[0]; ++b) {
    int64_t start = indexed ? IndexAt(inputs[2], b) : 0;
    if (start < 0 || count > capacity || (!circular && start > capacity - count)) continue;
    if (circular && capacity > 0) start %= capacity;
    for (int64_t k = 0; k < blocks; ++k) {
      std::byte* block = cache.data + ((b * blocks + k) * capacity) * row_bytes;
      if (start + count <= capacity) {
        SaveBytes(block + start * row_bytes, static_cast<size_t>(count) * row_bytes);
        continue;
      }
      for (int64_t s = 0; s < count; ++s) {
        SaveBytes(block + (start + s) % capacity * row_bytes, row_bytes);
      }
    }
  }
}

void UndoLog::SaveScatterNd(absl::Span<const View> inputs) {
  const View& data = inputs[0];
  if (inputs.size() < 2 || inputs[1].shape.empty()) return;
  const View& indices = inputs[1];
  const auto depth = static_cast<size_t>(indices.shape.back());
  if (depth == 0 || depth > data.shape.size()) return;
  int64_t slice = 1;
  for (size_t d = depth; d < data.shape.size(); ++d) slice *= data.shape[d];
  const auto bytes = static_cast<size_t>(slice * ElementBits(data.type) / 8);
  const int64_t tuples = indices.size() / static_cast<int64_t>(depth);
  for (int64_t t = 0; t < tuples; ++t) {
    int64_t at = 0;
    bool valid = true;
    for (size_t d = 0; d < depth; ++d) {
      int64_t i = IndexAt(indices, t * static_cast<int64_t>(depth) + static_cast<int64_t>(d));
      if (i < 0) i += data.shape[d];
      valid = valid && i >= 0 && i < data.shape[d];
      at = at * data.shape[d] + i;
    }
    if (valid) SaveBytes(data.data + static_cast<size_t>(at) * bytes, bytes);
  }
}

void UndoLog::SaveScatterElements(const onnx::NodeProto& node, absl::Span<const View> inputs) {
  const View& data = inputs[0];
  const auto rank = static_cast<int64_t>(data.shape.size());
  int64_t axis = IntAttribute(node, "axis", 0);
  if (axis < 0) axis += rank;
  if (inputs.size() < 2 || axis < 0 || axis >= rank ||
      inputs[1].shape.size() != data.shape.size()) {
    return;
  }
  const View& indices = inputs[1];
  const auto bytes = static_cast<size_t>(ElementBits(data.type) / 8);
  for (int64_t i = 0; i < indices.size(); ++i) {
    int64_t rest = i, at = 0, stride = 1;
    bool valid = true;
    for (int64_t d = rank - 1; d >= 0; --d) {
      int64_t position = rest % indices.shape[d];
      rest /= indices.shape[d];
      if (d == axis) position = IndexAt(indices, i);
      if (d == axis && position < 0) position += data.shape[d];
      valid = valid && position >= 0 && position < data.shape[d];
      at += position * stride;
      stride *= data.shape[d];
    }
    if (valid) SaveBytes(data.data + static_cast<size_t>(at) * bytes, bytes);
  }
}

// Restores the newest region first: where two regions overlap, the older one has the original
// bytes.
void UndoLog::Restore() {
  for (auto region = regions_.rbegin(); region != regions_.rend(); ++region) {
    if (region->bytes == 0) continue;
    std::memcpy(region->target, bytes_.data() + region->offset, region->bytes);
  }
  Clear();
}

}  // namespace kvlift::exec
