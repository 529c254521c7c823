// Reads the declarations of inputs and outputs, and joins caches that share a tensor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/types.h"
#include "onnx/onnx_pb.h"
#include "rewrite/types/conversion.h"

namespace kvlift::cli {

// Returns the value of this name in a list of inputs or outputs; null if the list has no such
// value.
const onnx::ValueInfoProto* Find(
    const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& values,
    const std::string& name);
// Returns the declared sizes; empty if no shape is declared.
std::vector<Dim> DimsOf(const onnx::ValueInfoProto& value);
int32_t TypeOf(const onnx::ValueInfoProto& value);
// Returns true if past and present have different dimension symbols.
bool Differs(const onnx::ValueInfoProto& past, const onnx::ValueInfoProto& present, size_t axis);

// Returns the caches of `before` with one entry for each tensor that holds several and that `after`
// has under the same names and in the same shape: a host feeds back such a tensor as it is. A
// tensor whose rows or sequences are not found by their names stays in parts. The entry of a tensor
// has its name as id.
std::vector<CacheReport> WithTensorsWhole(const std::vector<CacheReport>& parts,
                                          const onnx::GraphProto& before,
                                          const onnx::GraphProto& after);

}  // namespace kvlift::cli
