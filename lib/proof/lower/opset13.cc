#include "proof/lower/opset13.h"

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/graph.h"
#include "ir/subgraphs.h"

namespace kvlift {
namespace {

using onnx::AttributeProto;
using onnx::ModelProto;
using onnx::NodeProto;
using onnx::TensorProto;

constexpr int64_t kTarget = 13;
constexpr int64_t kOldest = 7;  // the first opset in which Add and others broadcast as today

// An attribute that became an input, its position, and the opset that changed it; input -1 means
// that the attribute is dropped.
struct Moved {
  std::string_view op, attribute;
  int input;
  int64_t since;
};

constexpr Moved kMoved[] = {
    {"Squeeze", "axes", 1, 13},   {"Unsqueeze", "axes", 1, 13}, {"ReduceSum", "axes", 1, 13},
    {"Split", "split", 1, 13},    {"Clip", "min", 1, 11},       {"Clip", "max", 2, 11},
    {"Pad", "pads", 1, 11},       {"Pad", "value", 2, 11},      {"Slice", "starts", 1, 10},
    {"Slice", "ends", 2, 10},     {"Slice", "axes", 3, 10},     {"TopK", "k", 1, 10},
    {"Dropout", "ratio", -1, 12},
};

// Returns true for operators that have another meaning, or other defaults, below opset 13.
bool IsReadDifferently(const std::string& op) {
  static const auto& kNames = *new absl::flat_hash_set<std::string_view>{
      "BatchNormalization", "Resize", "Upsample", "Scan", "OneHot", "MaxUnpool", "Scatter"};
  return kNames.contains(op);
}

// Returns true for operators that took operands of one shape only before opset 8.
bool TakesEqualShapes(const std::string& op) {
  return op == "Max" || op == "Min" || op == "Sum" || op == "Mean";
}

class Writer {
 public:
  Writer(ModelProto model, int64_t version)
      : model_(std::move(model)), version_(version), names_(NamesIn(model_.graph())) {}

  absl::StatusOr<ModelProto> Run() {
    KV_RETURN_IF_ERROR(Raise(model_.mutable_graph()));
    for (auto& import : *model_.mutable_opset_import()) {
      if (import.domain().empty() || import.domain() == "ai.onnx") import.set_version(kTarget);
    }
    return std::move(model_);
  }

 private:
  // Raises the nodes of a graph and of the bodies in it. Constants become initializers of the main
  // graph, which bodies read as well.
  absl::Status Raise(onnx::GraphProto* graph) {
    for (NodeProto& node : *graph->mutable_node()) {
      for (AttributeProto& attribute : *node.mutable_attribute()) {
        if (attribute.has_g()) KV_RETURN_IF_ERROR(Raise(attribute.mutable_g()));
        for (onnx::GraphProto& body : *attribute.mutable_graphs()) KV_RETURN_IF_ERROR(Raise(&body));
      }
      if (!node.domain().empty() && node.domain() != "ai.onnx") continue;
      if (IsReadDifferently(node.op_type())) {
        return absl::UnimplementedError(
            fmt::format("a model has opset {}, with {}", version_, node.op_type()));
      }
      // Below opset 12 the text does not say what the mask holds, and in opset 7 these operators do
      // not broadcast.
      const bool reads_mask =
          node.op_type() == "Dropout" && version_ < 12 && node.output_size() > 1;
      const bool is_strict =
          version_ == kOldest && node.input_size() > 1 && TakesEqualShapes(node.op_type());
      if (reads_mask || is_strict) {
        return absl::UnimplementedError(
            fmt::format("a model has opset {}, with {}", version_, node.op_type()));
      }
      for (const Moved& moved : kMoved) {
        if (moved.op == node.op_type() && version_ < moved.since) Move(moved, &node);
      }
      const std::string& op = node.op_type();
      if (op == "Softmax" || op == "LogSoftmax" || op == "Hardmax") MarkFlattening(&node);
    }
    return absl::OkStatus();
  }

  void Move(const Moved& moved, NodeProto* node) {
    auto* attributes = node->mutable_attribute();
    for (int k = 0; k < attributes->size(); ++k) {
      if ((*attributes)[k].name() != moved.attribute) continue;
      const AttributeProto attribute = (*attributes)[k];
      attributes->DeleteSubrange(k, 1);
      if (moved.input < 0) return;
      while (node->input_size() <= moved.input) node->add_input("");
      node->set_input(moved.input, Constant(attribute));
      return;
    }
  }

  std::string Constant(const AttributeProto& attribute) {
    TensorProto* tensor = model_.mutable_graph()->add_initializer();
    std::string name;
    do {
      name = fmt::format("opset13/{}", ++made_);
    } while (!names_.insert(name).second);
    tensor->set_name(name);
    if (attribute.type() == AttributeProto::FLOAT) {
      tensor->set_data_type(TensorProto::FLOAT);
      tensor->add_float_data(attribute.f());
      return name;
    }
    tensor->set_data_type(TensorProto::INT64);
    if (attribute.type() == AttributeProto::INT) {
      tensor->add_dims(1);
      tensor->add_int64_data(attribute.i());
      return name;
    }
    tensor->add_dims(attribute.ints_size());
    *tensor->mutable_int64_data() = {attribute.ints().begin(), attribute.ints().end()};
    return name;
  }

  static void MarkFlattening(NodeProto* node) {
    const int64_t axis = IntAttribute(*node, "axis", 1);
    if (axis == -1) return;
    AttributeProto* own = nullptr;
    for (AttributeProto& attribute : *node->mutable_attribute()) {
      if (attribute.name() == "axis") own = &attribute;
    }
    if (own == nullptr) own = node->add_attribute();
    own->set_name("axis");
    own->set_type(AttributeProto::INT);
    own->set_i(axis);
    AttributeProto* mark = node->add_attribute();
    mark->set_name(kFlattensFromAxis);
    mark->set_type(AttributeProto::INT);
    mark->set_i(1);
  }

  ModelProto model_;
  int64_t version_;
  int made_ = 0;
  absl::flat_hash_set<std::string> names_;
};

}  // namespace

bool FlattensFromAxis(const NodeProto& node) {
  return IntAttribute(node, kFlattensFromAxis, 0) != 0;
}

absl::StatusOr<ModelProto> AsOpset13(ModelProto model) {
  int64_t version = 0;
  for (const auto& import : model.opset_import()) {
    if (import.domain().empty() || import.domain() == "ai.onnx") version = import.version();
  }
  if (version >= kTarget) return model;
  if (version < kOldest) {
    return absl::UnimplementedError(
        fmt::format("a model has opset {}, below {}", version, kOldest));
  }
  return Writer(std::move(model), version).Run();
}

}  // namespace kvlift
