// The sizes that a model names (dim_param), and numbers for them.
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

// Returns the dim_params of graph inputs that name a size, as ONNX has it: any text does. The rest
// are expressions, which exporters write for sizes that depend on others: texts with an operator
// between a number, or a part that an input declares on its own, and another part ("P + S",
// "past_sequence_length + 1"). "past-length" is a name if no input declares "past" or "length".
NamesOfSizes NamesOfSizesIn(const onnx::GraphProto& graph);

// Returns the texts between plus signs, without the blanks around them: one for a name.
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

}  // namespace kvlift
