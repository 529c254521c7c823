// The attributes of a node in a form that kernels can search fast. It is built once, when a program
// is compiled; most names are compared by one 64-bit word.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "onnx/onnx_pb.h"

namespace kvlift::exec {

struct NamedAttribute {
  uint64_t head = 0;  // the first 8 characters of the name
  std::string_view name;
  const onnx::AttributeProto* proto = nullptr;
};

// Returns the first 8 characters of the name, the first one in the lowest byte, padded with zeros.
// It is a constant for a literal.
constexpr uint64_t HeadOf(std::string_view name) {
  uint64_t head = 0;
  for (size_t i = 0; i < 8 && i < name.size(); ++i) {
    head |= static_cast<uint64_t>(static_cast<unsigned char>(name[i])) << (8 * i);
  }
  return head;
}

// The attributes of one node. Points into `node`, which must outlive this and stay unchanged.
class Attributes {
 public:
  Attributes() = default;
  explicit Attributes(const onnx::NodeProto& node) {
    list_.reserve(static_cast<size_t>(node.attribute_size()));
    for (const onnx::AttributeProto& a : node.attribute()) {
      list_.push_back({HeadOf(a.name()), a.name(), &a});
    }
  }

  // Returns null if the node has no attribute of this name. `head` is HeadOf(name).
  const onnx::AttributeProto* Find(uint64_t head, std::string_view name) const {
    for (const NamedAttribute& a : list_) {
      if (a.head == head && a.name.size() == name.size() && (name.size() <= 8 || a.name == name)) {
        return a.proto;
      }
    }
    return nullptr;
  }

 private:
  std::vector<NamedAttribute> list_;
};

}  // namespace kvlift::exec
