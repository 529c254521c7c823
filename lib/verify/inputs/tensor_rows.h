// Copies and comparisons of parts of tensors, mostly caches: rows of the sequence axis, single
// sequences, permuted axes. Element types must be whole bytes; indices are not checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "contract/manifest.h"
#include "exec/memory/tensor.h"

namespace kvlift {

// Returns a copy of the elements [begin, end) of an axis.
exec::Tensor Part(const exec::View& whole, int axis, int64_t begin, int64_t end);
// The elements [begin, end) of an axis.
struct Range {
  int axis = 0;
  int64_t begin = 0, end = 0;
};
// Returns true if two tensors of one type and shape have equal bytes in the intersection of two
// ranges of different axes. True if a range is empty.
bool SameInBox(const exec::View& a, const exec::View& b, const Range& one, const Range& other);
// Returns a copy in which sequence b of the batch axis is sequence order[b] of `whole`. A sequence
// may have several rows of the axis.
exec::Tensor Reordered(const exec::View& whole, int axis, const std::vector<int>& order);
// Copies `part` into `whole` from `begin` of an axis on; the other axes must be equally long.
void Place(const exec::View& whole, int axis, int64_t begin, const exec::View& part);
// Returns a source's cache in the converted model's layout: what Select picks, axes permuted.
exec::Tensor InTargetOrder(const exec::View& source, const ManifestCache& cache);

// A tensor with a bound of the rounding error of each element.
struct Bounded {
  exec::Tensor value;
  exec::Tensor bound;  // doubles of the same shape; empty: not known
};
// Returns a tensor that refers to `value`, which must outlive it. bound: null, or of another shape:
// not known.
Bounded WithBound(const exec::View& value, const exec::Tensor* bound);
// Returns the sum of both bounds, element by element; empty unless both are known.
exec::Tensor SumOfBounds(const Bounded& a, const Bounded& b);
Bounded Part(const Bounded& whole, int axis, int64_t begin, int64_t end);
Bounded InTargetOrder(const Bounded& source, const ManifestCache& cache);

// Returns the axis of a letter in a layout without groups; -1 if it is not there.
int AxisOf(const std::string& layout, char letter);
// Returns the axis of a letter in the source's tensor, axes that Select removes included; -1 if the
// letter is not there.
int SourceAxisOf(const SourceCache& cache, char letter);

}  // namespace kvlift
