// One pass over the bytes of a ModelProto, before anything is allocated for its content. It checks
// limits, and can replace parts of tensors as bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "onnxio/files/limits.h"

namespace kvlift {

// The byte positions of the fields of one TensorProto in a file.
struct TensorSite {
  struct Field {
    size_t begin = 0;  // start of the tag
    size_t data = 0;   // start of the value, behind tag and length
    size_t end = 0;
  };
  size_t begin = 0;  // start of the message, behind its length
  size_t end = 0;
  std::vector<Field> raw;       // raw_data, each time it occurs
  std::vector<Field> external;  // external_data and data_location
  // The position at which raw_data would be inserted, so that fields stay in the order of their
  // numbers.
  size_t behind_raw = 0;
  bool other_values = false;  // has float_data or another typed field
  bool in_sparse = false;     // values or indices of a sparse tensor
  uint64_t data_type = 0;
};

// Replaces [begin, end) by `text`, then `data`, which is not owned.
struct Replacement {
  size_t begin = 0;
  size_t end = 0;
  std::string text;
  std::string_view data;
};

struct Survey {
  std::vector<Replacement> replacements;  // in order; lengths of enclosing messages included
  uint64_t size = 0;                      // bytes after all replacements
  int64_t unknown_fields = 0;             // fields that this version of ONNX does not define
};

// Appends the replacements for one tensor: ranges inside the site, in any order.
using EditTensor = std::function<void(const TensorSite&, std::vector<Replacement>*)>;

// Returns InvalidArgument (KV002) if the bytes are not a ModelProto, OutOfRange with the code of
// the limit that is exceeded.
absl::StatusOr<Survey> SurveyModel(std::string_view model, const Limits& limits,
                                   const EditTensor& edit);

}  // namespace kvlift
