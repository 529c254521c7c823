#include "verify/inputs/tensor_rows.h"

#include <algorithm>
#include <cstring>

#include "ir/types.h"

namespace kvlift {
namespace {

// The sizes of a tensor seen as [outer, extent, inner] around an axis; `inner` is in bytes.
struct Blocks {
  int64_t outer = 1, extent = 1, inner = 1;
};
Blocks BlocksOf(const exec::View& view, int axis) {
  Blocks b;
  for (int k = 0; k < axis; ++k) b.outer *= view.shape[k];
  b.extent = view.shape[axis];
  b.inner = ElementBits(view.type) / 8;
  for (size_t k = static_cast<size_t>(axis) + 1; k < view.shape.size(); ++k) {
    b.inner *= view.shape[k];
  }
  return b;
}

}  // namespace

int AxisOf(const std::string& layout, char letter) { return static_cast<int>(layout.find(letter)); }

int SourceAxisOf(const SourceCache& cache, char letter) {
  int axis = 0;
  for (size_t k = 0; k < cache.layout.size(); ++axis) {
    const bool fixed = std::any_of(cache.select.begin(), cache.select.end(),
                                   [axis](const Select& s) { return s.axis == axis; });
    if (fixed) continue;
    if (cache.layout[k] == letter) return axis;
    ++k;
  }
  return -1;
}

exec::Tensor Part(const exec::View& whole, int axis, int64_t begin, int64_t end) {
  exec::Shape shape = whole.shape;
  shape[axis] = end - begin;
  exec::Tensor part(whole.type, shape);
  const Blocks from = BlocksOf(whole, axis), to = BlocksOf(part.view(), axis);
  for (int64_t o = 0; o < from.outer && to.extent * to.inner > 0; ++o) {
    std::memcpy(part.data() + o * to.extent * to.inner,
                whole.data + (o * from.extent + begin) * from.inner,
                static_cast<size_t>(to.extent * to.inner));
  }
  return part;
}

exec::Tensor Reordered(const exec::View& whole, int axis, const std::vector<int>& order) {
  exec::Tensor result(whole.type, whole.shape);
  const int64_t each = whole.shape[axis] / static_cast<int64_t>(order.size());
  for (size_t b = 0; b < order.size(); ++b) {
    const int64_t from = order[b] * each;
    Place(result.view(), axis, static_cast<int64_t>(b) * each,
          Part(whole, axis, from, from + each).view());
  }
  return result;
}

bool SameInBox(const exec::View& a, const exec::View& b, const Range& one, const Range& other) {
  const size_t rank = a.shape.size();
  std::vector<int64_t> begin(rank, 0), end(a.shape.begin(), a.shape.end());
  for (const Range& range : {one, other}) {
    begin[range.axis] = range.begin;
    end[range.axis] = range.end;
    if (range.begin >= range.end) return true;
  }
  if (a.size() == 0) return true;
  // The axes behind the last restricted one are contiguous: one run of bytes.
  size_t last = rank;
  int64_t run = ElementBits(a.type) / 8;
  while (last > 0 && begin[last - 1] == 0 && end[last - 1] == a.shape[last - 1]) {
    run *= a.shape[--last];
  }
  if (last == 0) return std::memcmp(a.data, b.data, static_cast<size_t>(run)) == 0;
  const int64_t bytes = run * (end[last - 1] - begin[last - 1]);
  std::vector<int64_t> at = begin;
  for (;;) {
    int64_t offset = 0;
    for (size_t k = 0; k < last; ++k) offset = offset * a.shape[k] + at[k];
    offset *= run;
    if (std::memcmp(a.data + offset, b.data + offset, static_cast<size_t>(bytes)) != 0) {
      return false;
    }
    size_t k = last - 1;
    while (k > 0 && ++at[k - 1] == end[k - 1]) {
      at[k - 1] = begin[k - 1];
      --k;
    }
    if (k == 0) return true;
  }
}

void Place(const exec::View& whole, int axis, int64_t begin, const exec::View& part) {
  const Blocks to = BlocksOf(whole, axis), from = BlocksOf(part, axis);
  for (int64_t o = 0; o < to.outer && from.extent * from.inner > 0; ++o) {
    std::memcpy(whole.data + (o * to.extent + begin) * to.inner,
                part.data + o * from.extent * from.inner,
                static_cast<size_t>(from.extent * from.inner));
  }
}

exec::Tensor InTargetOrder(const exec::View& source, const ManifestCache& cache) {
  exec::View view = source;
  exec::Tensor selected;
  std::vector<Select> selects = cache.source.select;
  std::sort(selects.begin(), selects.end(),
            [](const Select& a, const Select& b) { return a.axis > b.axis; });
  for (const Select& s : selects) {
    selected = Part(view, static_cast<int>(s.axis), s.index, s.index + 1);
    view = selected.view();
    view.shape.erase(view.shape.begin() + s.axis);
  }
  const size_t rank = view.shape.size();
  std::vector<size_t> perm;
  exec::Shape shape;
  for (char letter : cache.layout) {
    perm.push_back(cache.source.layout.find(letter));
    shape.push_back(view.shape[perm.back()]);
  }
  if (cache.layout == cache.source.layout) return Part(view, 0, 0, view.shape[0]);
  exec::Tensor target(view.type, shape);
  const int64_t bytes = ElementBits(view.type) / 8;
  std::vector<int64_t> strides(rank, bytes);
  for (size_t k = rank - 1; k > 0; --k) strides[k - 1] = strides[k] * view.shape[k];
  std::vector<int64_t> at(rank, 0);
  for (int64_t i = 0; i < target.size(); ++i) {
    int64_t offset = 0;
    for (size_t k = 0; k < rank; ++k) offset += at[k] * strides[perm[k]];
    std::memcpy(target.data() + i * bytes, view.data + offset, static_cast<size_t>(bytes));
    for (size_t k = rank; k-- > 0;) {
      if (++at[k] < shape[k]) break;
      at[k] = 0;
    }
  }
  return target;
}

Bounded WithBound(const exec::View& value, const exec::Tensor* bound) {
  Bounded result{exec::Tensor::Wrap(value, nullptr), {}};
  if (bound != nullptr && bound->shape() == value.shape) result.bound = *bound;
  return result;
}

exec::Tensor SumOfBounds(const Bounded& a, const Bounded& b) {
  if (a.bound.empty() || b.bound.empty() || a.bound.shape() != b.bound.shape()) return {};
  exec::Tensor sum = a.bound.Clone();
  for (int64_t i = 0; i < sum.size(); ++i) sum.span<double>()[i] += b.bound.span<double>()[i];
  return sum;
}

Bounded Part(const Bounded& whole, int axis, int64_t begin, int64_t end) {
  Bounded part{Part(whole.value.view(), axis, begin, end), {}};
  if (!whole.bound.empty()) part.bound = Part(whole.bound.view(), axis, begin, end);
  return part;
}

Bounded InTargetOrder(const Bounded& source, const ManifestCache& cache) {
  Bounded result{InTargetOrder(source.value.view(), cache), {}};
  if (!source.bound.empty()) result.bound = InTargetOrder(source.bound.view(), cache);
  return result;
}

}  // namespace kvlift
