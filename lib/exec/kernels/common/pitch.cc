#include "exec/kernels/common/pitch.h"

#include <algorithm>
#include <cstring>

namespace kvlift::exec {
namespace {

// The dense blocks of a view, formed by its last two dimensions; one block if the rank is below 3.
struct Blocks {
  int64_t count = 1, size = 1;
};

Blocks BlocksOf(const Shape& shape) {
  Blocks blocks;
  for (size_t d = 0; d < shape.size(); ++d) {
    (d + 2 < shape.size() ? blocks.count : blocks.size) *= shape[d];
  }
  return blocks;
}

}  // namespace

int64_t RoomyPitch(const Shape& shape, int64_t rows) {
  return std::max(rows, shape[shape.size() - 2]) * shape.back();
}

int64_t GrowingPitch(const Shape& shape) {
  const int64_t rows = shape[shape.size() - 2];
  return RoomyPitch(shape, (rows + rows / 4) / 16 * 16 + 16);
}

size_t SpannedBytes(int32_t type, const Shape& shape, int64_t pitch) {
  if (pitch == 0) return static_cast<size_t>(NumBytes(type, shape));
  return static_cast<size_t>(NumBytes(type, {BlocksOf(shape).count, pitch}));
}

void CopyView(const View& from, const View& to) {
  const int64_t bytes = from.bytes();
  if (bytes <= 0 || from.data == to.data) return;
  const Blocks blocks = BlocksOf(from.shape);
  if (from.pitch == to.pitch || blocks.count == 1) {
    if (from.pitch == 0 || blocks.count == 1) {
      std::memcpy(to.data, from.data, static_cast<size_t>(bytes));
      return;
    }
  }
  const int64_t size = bytes / blocks.count;
  const int64_t from_pitch = from.pitch == 0 ? size : NumBytes(from.type, {from.pitch});
  const int64_t to_pitch = to.pitch == 0 ? size : NumBytes(to.type, {to.pitch});
  for (int64_t b = 0; b < blocks.count; ++b) {
    std::memcpy(to.data + b * to_pitch, from.data + b * from_pitch, static_cast<size_t>(size));
  }
}

void PoisonRoom(const View& view, size_t capacity) {
  const Blocks blocks = BlocksOf(view.shape);
  const auto size = static_cast<size_t>(NumBytes(view.type, {blocks.size}));
  const auto pitch =
      view.pitch == 0 ? capacity : static_cast<size_t>(NumBytes(view.type, {view.pitch}));
  for (int64_t b = 0; b < blocks.count; ++b) {
    const size_t begin = static_cast<size_t>(b) * pitch + size;
    const size_t end = std::min(capacity, begin - size + pitch);
    if (begin < end) std::memset(view.data + begin, 0xff, end - begin);
  }
}

}  // namespace kvlift::exec
