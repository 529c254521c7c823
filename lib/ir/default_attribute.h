// Default values of attributes that a node leaves out.
#pragma once

#include <cstdint>
#include <string>

#include "onnx/onnx_pb.h"

namespace kvlift {

struct DefaultAttribute {
  bool known = false;  // ONNX defines the operator with an attribute of this name
  // Null if the attribute has no default value: a node without it has a meaning of its own. Owned
  // by the schema registry of ONNX.
  const onnx::AttributeProto* value = nullptr;
};

// Looks up the attribute in the operator's schema of opset `version`, or in the newest schema if
// the operator did not exist then. Only operators of ONNX's default domain are known.
DefaultAttribute DefaultAttributeOf(const onnx::NodeProto& node, const std::string& name,
                                    int64_t version);

}  // namespace kvlift
