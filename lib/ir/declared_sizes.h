// Reads the symbolic sizes (dim_param) that a model declares, and replaces them by numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// A dimension that graph inputs name, and the number that it is in every run in question.
struct NamedSize {
  std::string name;  // the dim_param
  int64_t size = 0;

  friend bool operator==(const NamedSize&, const NamedSize&) = default;
};

using NamesOfSizes = absl::flat_hash_set<std::string>;

// Returns the dim_params of graph inputs that are names and not expressions. A dim_param is an
// expression if it contains an operator, and one of the parts between operators is a number or is
// declared by an input on its own: "P + S", "past_sequence_length + 1". Exporters write such texts
// for sizes that depend on others. "past-length" is a name if no input declares "past" or "length".
NamesOfSizes NamesOfSizesIn(const onnx::GraphProto& graph);

// Returns the summands of a dim_param, without the blanks around them: {"P", "S"} for "P + S", and
// {"P"} for "P".
std::vector<std::string> SummandsOf(const std::string& text);

// Returns the largest number that an input or output of the graph declares for an axis; 0 if none
// does.
int64_t LargestDeclaredSize(const onnx::GraphProto& graph);

// Replaces the names by the numbers where inputs of the graph declare them, also as summands: with
// S = 4 "P + S" becomes "P + 4".
void DeclareSizes(absl::Span<const NamedSize> sizes, onnx::GraphProto* graph);
// Returns a copy of the model with the sizes declared.
std::shared_ptr<onnx::ModelProto> WithSizes(const onnx::ModelProto& model,
                                            absl::Span<const NamedSize> sizes);

// Returns a copy of the model in which every axis of an input that declares one of the names has a
// name of its own, apart from the axes of the inputs `keep`. Expressions stay as they are. Models
// compute the same under all names, which are comments to runtimes. The copy holds the model, which
// owns what its spans point to.
std::shared_ptr<const onnx::ModelProto> WithNamesApart(
    std::shared_ptr<const onnx::ModelProto> model, const NamesOfSizes& names,
    const absl::flat_hash_set<std::string>& keep);

}  // namespace kvlift
