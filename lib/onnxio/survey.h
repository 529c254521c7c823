// One walk over the bytes of a ModelProto, before anything is allocated for what they say: limits
// are checked, and tensors may be changed as bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "onnxio/limits.h"

namespace kvlift {

// Where in a file the fields of one TensorProto stand.
struct TensorSite {
  struct Field {
    size_t begin = 0;  // of the tag
    size_t data = 0;   // of the value behind tag and length
    size_t end = 0;
  };
  size_t begin = 0;  // of the message behind its length
  size_t end = 0;
  std::vector<Field> raw;       // raw_data, each time it occurs
  std::vector<Field> external;  // external_data and data_location
  size_t behind_raw = 0;        // where a writer puts raw_data: fields stand by number
  bool other_values = false;    // float_data and its like
  bool in_sparse = false;       // values or indices of a sparse tensor
  uint64_t data_type = 0;
};

// [begin, end) becomes `text`, then `data`, which is not owned.
struct Replacement {
  size_t begin = 0;
  size_t end = 0;
  std::string text;
  std::string_view data;
};

struct Survey {
  std::vector<Replacement> replacements;  // in order; lengths of enclosing messages included
  uint64_t size = 0;                      // of the bytes after all replacements
  int64_t unknown_fields = 0;             // not in this version of ONNX
};

// Appends what shall change in a tensor: ranges inside the site, in any order.
using EditTensor = std::function<void(const TensorSite&, std::vector<Replacement>*)>;

// InvalidArgument if the bytes are no ModelProto, OutOfRange with the code of the limit.
absl::StatusOr<Survey> SurveyModel(std::string_view model, const Limits& limits,
                                   const EditTensor& edit);

}  // namespace kvlift
