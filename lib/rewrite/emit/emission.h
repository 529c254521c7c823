// The model that emission makes, with a record of the nodes that were made for each cache. The
// passes of emission read this record and do not search the model for these nodes.
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
  bool counted = false;  // they begin at slot 0, and their number is a count of valid rows
};

// The values that emission made for one cache, by their names.
struct EmittedCache {
  // The output of the node through which the past is written: the present or, if the sequence axis
  // is axis 0, the output of the Unsqueeze in front of TensorScatter.
  std::string writer;
  // The operands of the TensorScatter from past to present: the new rows, and the slot of the
  // first. Both are empty if other nodes stand between the past, the TensorScatter and the present.
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
