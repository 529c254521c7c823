// The model that emission makes, with what its passes tell one another about the caches in it. They
// say what they made; none of them looks for it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "contract/manifest.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Some rows of a cache, which a Slice along its sequence axis reads from the present.
struct RowsView {
  std::string rows;      // the result of the Slice; it is not in the model if nothing reads it
  bool counted = false;  // the rows from slot 0 on, as many as a count of valid rows says
};

// What was made of a cache, as names of values.
struct EmittedCache {
  // The result of the node through which the past is written: the present, or the past with one
  // more axis.
  std::string writer;
  // The operands of the TensorScatter from past to present: the new rows, and the slot of the
  // first. Empty if other nodes stand before or behind it.
  std::string update, write_indices;
  std::vector<RowsView> views;

  const RowsView* View(const std::string& rows) const;
};

struct Emission {
  onnx::ModelProto model;
  Manifest manifest;
  std::vector<EmittedCache> caches;  // by index of manifest.caches
};

// Lists, for each cache, the nodes that read rows of its past besides those that write it. Past and
// present of such a cache cannot share a buffer (alias kCopy).
absl::Status ListReaders(Emission* emission);

}  // namespace kvlift
