// What operators take for attributes that a node leaves out.
#pragma once

#include <cstdint>
#include <string>

#include "onnx/onnx_pb.h"

namespace kvlift {

struct DefaultAttribute {
  bool known = false;  // ONNX defines the operator, with an attribute of this name
  const onnx::AttributeProto* value = nullptr;  // null: none is a meaning of its own
};

// Of ONNX's own domain, by the operator's schema in this version; of younger operators, in theirs.
DefaultAttribute DefaultAttributeOf(const onnx::NodeProto& node, const std::string& name,
                                    int64_t version);

}  // namespace kvlift
