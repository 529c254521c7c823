// The types of the result's inputs and outputs that differ from those of the source.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "onnx/onnx_pb.h"
#include "rewrite/plan/conversion_plan.h"

namespace kvlift {

// Returns the declared types of pasts, presents and masks by name.
absl::flat_hash_map<std::string, onnx::TypeProto> RetypedValues(const Analysis& analysis,
                                                                const ConversionPlan& plan);

// Returns the inputs that only the result has.
std::vector<onnx::ValueInfoProto> NewInputs(const Analysis& analysis, const ConversionPlan& plan);

// Returns the name of the dim symbol for the slots of growing caches: "max_sequence_length", with a
// number behind it if an input or output of the source declares that name.
std::string CapacityDimension(const Graph& graph);

// Returns the name of the dim symbol for the extent of a ring.
std::string RingDimension(const ConversionPlan& plan, const WindowRing& ring);

}  // namespace kvlift
