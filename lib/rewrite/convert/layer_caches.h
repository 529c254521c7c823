// Takes apart tensors that hold the caches of several layers, such as [L, 2, B, N, P, D]: each
// layer gets a past and a present of its own. As one tensor they can be written only when the rows
// of all layers are computed, and the attention of an earlier layer, which later rows are computed
// from, would have to stay.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rewrite/recognise/analysis.h"

namespace kvlift::internal {

// A tensor that holds the caches of several layers.
struct LayeredTensor {
  std::string past, present;
  SourceCache source;            // the whole tensor; its layout has a letter per axis
  std::vector<int> axes;         // the axes that count its caches, ascending
  std::vector<int64_t> extents;  // by axis of `axes`: how many there are
};

// Returns the tensors of which some attention is in front of the rows of a later layer, or is not
// read, and those in which each sequence has a write index of its own. A tensor with a default
// value is left out, and so is one of more than 4096 caches. The list is empty if the model has no
// such tensor.
std::vector<LayeredTensor> LayeredTensors(const Analysis& analysis);

// Returns the lowered graph with caches PAST.i.j and PRESENT.i.j in the place of each tensor, i and
// j being places on its axes. Nothing is recognised in it yet. Normalised::unpacked says where the
// caches are in the tensors. Errors: those of Graph::Build.
absl::StatusOr<Analysis> TakeLayersApart(const Analysis& analysis,
                                         const std::vector<LayeredTensor>& tensors);

}  // namespace kvlift::internal
