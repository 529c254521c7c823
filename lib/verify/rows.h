// Copies of parts of caches: rows along the sequence axis, single sequences, permuted axes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "contract/manifest.h"
#include "exec/tensor.h"

namespace kvlift {

// Elements [begin, end) along an axis.
exec::Tensor Part(const exec::View& whole, int axis, int64_t begin, int64_t end);
// Whether two tensors of one shape hold equal bytes in a box: elements [begin, end) of two axes,
// all of the others.
struct Range {
  int axis = 0;
  int64_t begin = 0, end = 0;
};
bool SameInBox(const exec::View& a, const exec::View& b, const Range& one, const Range& other);
// The batch as it is where each sequence goes on from the one at `order`.
exec::Tensor Reordered(const exec::View& whole, int axis, const std::vector<int>& order);
// Writes `part` at `begin` along an axis; all other extents are equal.
void Place(const exec::View& whole, int axis, int64_t begin, const exec::View& part);
// The source's cache (layout, select) in the axis order of the converted one.
exec::Tensor InTargetOrder(const exec::View& source, const ManifestCache& cache);

// A tensor with the bound of each element's rounding error, if one is known.
struct Bounded {
  exec::Tensor value;
  exec::Tensor bound;  // of doubles, or empty
};
// A view of what outlives the result.
Bounded WithBound(const exec::View& value, const exec::Tensor* bound);
Bounded Part(const Bounded& whole, int axis, int64_t begin, int64_t end);
Bounded InTargetOrder(const Bounded& source, const ManifestCache& cache);

int AxisOf(const std::string& layout, char letter);
// The axis of a letter in the source's whole tensor, before anything is selected from it.
int SourceAxisOf(const SourceCache& cache, char letter);

}  // namespace kvlift
