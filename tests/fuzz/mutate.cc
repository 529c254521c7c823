#include "fuzz/mutate.h"

#include <cstdint>
#include <iterator>
#include <limits>

namespace kvlift::fuzz {
namespace {

using onnx::AttributeProto;
using onnx::TensorProto;

constexpr const char* kOps[] = {"Add",
                                "Mul",
                                "Sub",
                                "Div",
                                "MatMul",
                                "Concat",
                                "Slice",
                                "Gather",
                                "Reshape",
                                "Transpose",
                                "Unsqueeze",
                                "Squeeze",
                                "Expand",
                                "Shape",
                                "Where",
                                "Softmax",
                                "Cast",
                                "Identity",
                                "ScatterND",
                                "Pad",
                                "Split",
                                "Range",
                                "Less",
                                "Equal",
                                "And",
                                "ReduceMax",
                                "ReduceSum",
                                "CumSum",
                                "Trilu",
                                "Tile",
                                "Attention",
                                "Einsum",
                                "Gemm",
                                "Tanh",
                                "GatherND",
                                "TensorScatter",
                                "If",
                                "Loop",
                                "Scan",
                                "Min",
                                "Max",
                                "ConstantOfShape",
                                "OneHot",
                                "TopK",
                                "NonZero",
                                "Dropout",
                                "RotaryEmbedding",
                                "RMSNormalization",
                                "ScatterElements",
                                "GatherElements",
                                "DynamicQuantizeLinear",
                                "SequenceConstruct"};

constexpr int64_t kNumbers[] = {0,
                                1,
                                2,
                                3,
                                -1,
                                -2,
                                4,
                                8,
                                64,
                                127,
                                -128,
                                65536,
                                100,
                                999,
                                INT32_MAX,
                                INT32_MIN,
                                int64_t{1} << 32,
                                INT64_MAX,
                                INT64_MIN};

class Mutator {
 public:
  Mutator(onnx::ModelProto* model, std::mt19937& rng) : model_(*model), rng_(rng) {
    Collect(model_.mutable_graph());
  }

  void Once() {
    onnx::GraphProto& graph = *graphs_[Below(graphs_.size())];
    switch (Below(16)) {
      case 0:
      case 1:
        return Rewire(graph);
      case 2:
      case 3:
      case 4:
        return ChangeAttribute(graph);
      case 5:
      case 6:
        return ChangeTensor(graph);
      case 7:
      case 8:
        return ChangeType(graph);
      case 9:
        return ChangeOperator(graph);
      case 10:
        return MoveNodes(graph);
      case 11:
        return ChangeEnds(graph);
      case 12:
        return RenameValue(graph);
      case 13:
        return ChangeImports();
      case 14:
        return ChangeInputs(graph);
      default:
        return Nest(graph);
    }
  }

 private:
  // Iterative, since bodies may be nested deep.
  void Collect(onnx::GraphProto* top) {
    graphs_.push_back(top);
    for (size_t k = 0; k < graphs_.size(); ++k) {
      for (auto& node : *graphs_[k]->mutable_node()) {
        for (auto& attribute : *node.mutable_attribute()) {
          if (attribute.has_g()) graphs_.push_back(attribute.mutable_g());
          for (auto& body : *attribute.mutable_graphs()) graphs_.push_back(&body);
        }
      }
    }
  }

  size_t Below(size_t n) { return n == 0 ? 0 : rng_() % n; }
  bool Chance(size_t percent) { return Below(100) < percent; }
  int64_t Number() { return kNumbers[Below(std::size(kNumbers))]; }
  void Change(int64_t* value) {
    *value =
        Chance(60) ? static_cast<int64_t>(static_cast<uint64_t>(*value) + Below(5) - 2) : Number();
  }

  onnx::NodeProto* SomeNode(onnx::GraphProto& graph) {
    if (graph.node().empty()) return nullptr;
    return graph.mutable_node(static_cast<int>(Below(static_cast<size_t>(graph.node_size()))));
  }

  std::string SomeValue(const onnx::GraphProto& graph) {
    std::vector<std::string> names = {"", "nowhere"};
    for (const auto& v : graph.input()) names.push_back(v.name());
    for (const auto& t : graph.initializer()) names.push_back(t.name());
    for (const auto& n : graph.node())
      names.insert(names.end(), n.output().begin(), n.output().end());
    return names[Chance(97) && names.size() > 2 ? 2 + Below(names.size() - 2) : Below(2)];
  }

  void Rewire(onnx::GraphProto& graph) {
    onnx::NodeProto* node = SomeNode(graph);
    if (node == nullptr || node->input().empty()) return;
    const int at = static_cast<int>(Below(static_cast<size_t>(node->input_size())));
    if (Chance(30)) {
      node->mutable_input()->SwapElements(at, node->input_size() - 1);
    } else {
      node->set_input(at, SomeValue(graph));
    }
  }

  void ChangeInputs(onnx::GraphProto& graph) {
    onnx::NodeProto* node = SomeNode(graph);
    if (node == nullptr) return;
    if (Chance(40)) {
      node->add_input(SomeValue(graph));
    } else if (Chance(40) && !node->input().empty()) {
      node->mutable_input()->RemoveLast();
    } else if (Chance(50)) {
      node->add_output("extra" + std::to_string(Below(4)));
    } else if (!node->output().empty()) {
      node->mutable_output()->RemoveLast();
    }
  }

  void ChangeAttribute(onnx::GraphProto& graph) {
    onnx::NodeProto* node = nullptr;
    for (int tries = 0; tries < 8 && (node == nullptr || node->attribute().empty()); ++tries) {
      node = SomeNode(graph);
    }
    if (node == nullptr) return;
    if (node->attribute().empty()) {
      AttributeProto& added = *node->add_attribute();
      added.set_name(Chance(70) ? "axis" : "to");
      added.set_type(AttributeProto::INT);
      added.set_i(Number());
      return;
    }
    const int at = static_cast<int>(Below(static_cast<size_t>(node->attribute_size())));
    AttributeProto& attribute = *node->mutable_attribute(at);
    if (Chance(8)) {
      node->mutable_attribute()->DeleteSubrange(at, 1);
    } else if (Chance(4)) {
      *node->add_attribute() = AttributeProto(attribute);
    } else if (Chance(4)) {
      attribute.set_type(static_cast<AttributeProto::AttributeType>(Below(15)));
    } else {
      ChangeValue(&attribute);
    }
  }

  void ChangeValue(AttributeProto* attribute) {
    switch (attribute->type()) {
      case AttributeProto::INT: {
        int64_t value = attribute->i();
        Change(&value);
        return attribute->set_i(value);
      }
      case AttributeProto::INTS: {
        if (attribute->ints().empty() || Chance(20)) return attribute->add_ints(Number());
        const int at = static_cast<int>(Below(static_cast<size_t>(attribute->ints_size())));
        if (Chance(20)) return attribute->mutable_ints()->RemoveLast();
        if (Chance(30)) return attribute->mutable_ints()->SwapElements(at, 0);
        int64_t value = attribute->ints(at);
        Change(&value);
        return attribute->set_ints(at, value);
      }
      case AttributeProto::FLOAT: {
        constexpr float kFloats[] = {0, -1, 1e30f, std::numeric_limits<float>::quiet_NaN(), 0.5f};
        return attribute->set_f(kFloats[Below(std::size(kFloats))]);
      }
      case AttributeProto::STRING:
        return attribute->set_s(Canaries()[Below(Canaries().size())]);
      case AttributeProto::TENSOR:
        return ChangeTensor(attribute->mutable_t());
      default:
        return;
    }
  }

  void ChangeTensor(onnx::GraphProto& graph) {
    std::vector<TensorProto*> tensors;
    for (auto& t : *graph.mutable_initializer()) tensors.push_back(&t);
    for (auto& n : *graph.mutable_node()) {
      for (auto& a : *n.mutable_attribute()) {
        if (a.has_t()) tensors.push_back(a.mutable_t());
      }
    }
    if (!tensors.empty()) ChangeTensor(tensors[Below(tensors.size())]);
  }

  void ChangeTensor(TensorProto* tensor) {
    const size_t what = Below(10);
    if (what == 0) {
      tensor->add_dims(Number());
    } else if (what == 1 && !tensor->dims().empty()) {
      const int at = static_cast<int>(Below(static_cast<size_t>(tensor->dims_size())));
      int64_t value = tensor->dims(at);
      Change(&value);
      tensor->set_dims(at, value);
    } else if (what == 2) {
      tensor->set_data_type(static_cast<int32_t>(Below(27)));
    } else if (what == 3 && Chance(50)) {
      ReferToFile(tensor);
    } else if (what == 3) {
      tensor->set_data_location(TensorProto::EXTERNAL);
      auto& entry = *tensor->add_external_data();
      entry.set_key(Chance(50) ? "location" : Chance(50) ? "offset" : "length");
      entry.set_value(Chance(50) ? "../x" : std::to_string(Number()));
    } else if (!tensor->int64_data().empty()) {
      const int at = static_cast<int>(Below(static_cast<size_t>(tensor->int64_data_size())));
      int64_t value = tensor->int64_data(at);
      Change(&value);
      tensor->set_int64_data(at, value);
    } else if (!tensor->float_data().empty()) {
      tensor->set_float_data(
          static_cast<int>(Below(static_cast<size_t>(tensor->float_data_size()))),
          static_cast<float>(Number()));
    } else if (!tensor->int32_data().empty()) {
      tensor->set_int32_data(
          static_cast<int>(Below(static_cast<size_t>(tensor->int32_data_size()))),
          static_cast<int32_t>(Number()));
    } else if (!tensor->raw_data().empty()) {
      std::string& raw = *tensor->mutable_raw_data();
      if (Chance(80)) {
        raw[Below(raw.size())] = static_cast<char>(rng_());
      } else {
        raw.pop_back();
      }
    }
  }

  // Lets a tensor refer to testdata/fuzz/data.bin, mostly within its 256 bytes.
  void ReferToFile(TensorProto* tensor) {
    tensor->clear_raw_data();
    tensor->set_data_location(TensorProto::EXTERNAL);
    const auto set = [&](const char* key, const std::string& value) {
      auto& entry = *tensor->add_external_data();
      entry.set_key(key);
      entry.set_value(value);
    };
    set("location", "data.bin");
    if (Chance(50)) set("offset", std::to_string(Chance(80) ? 4 * Below(60) : Number()));
    if (Chance(50)) set("length", std::to_string(Chance(80) ? 4 * Below(60) : Number()));
  }

  void ChangeType(onnx::GraphProto& graph) {
    std::vector<onnx::ValueInfoProto*> values;
    for (auto* list : {graph.mutable_input(), graph.mutable_output(), graph.mutable_value_info()}) {
      for (auto& v : *list) values.push_back(&v);
    }
    if (values.empty()) return;
    onnx::TypeProto& type = *values[Below(values.size())]->mutable_type();
    if (Chance(3)) return type.mutable_sequence_type()->Clear();
    auto& tensor = *type.mutable_tensor_type();
    if (Chance(15)) return tensor.set_elem_type(static_cast<int32_t>(Below(24)));
    if (Chance(4)) return tensor.clear_shape();
    auto& shape = *tensor.mutable_shape();
    if (shape.dim().empty() || Chance(10)) {
      shape.add_dim()->set_dim_value(Number());
      return;
    }
    if (Chance(10)) return shape.mutable_dim()->RemoveLast();
    auto& dim = *shape.mutable_dim(static_cast<int>(Below(static_cast<size_t>(shape.dim_size()))));
    constexpr const char* kSymbols[] = {"B", "S", "P", "T", "M", "batch", "past", "P + S"};
    if (Chance(50)) return dim.set_dim_param(kSymbols[Below(std::size(kSymbols))]);
    int64_t value = dim.dim_value();
    Change(&value);
    dim.set_dim_value(value);
  }

  void ChangeOperator(onnx::GraphProto& graph) {
    onnx::NodeProto* node = SomeNode(graph);
    if (node == nullptr) return;
    if (Chance(90)) {
      node->set_op_type(kOps[Below(std::size(kOps))]);
    } else {
      node->set_domain(Chance(50) ? "com.microsoft" : Canaries()[Below(Canaries().size())]);
    }
  }

  void MoveNodes(onnx::GraphProto& graph) {
    if (graph.node().empty()) return;
    const auto n = static_cast<size_t>(graph.node_size());
    const int at = static_cast<int>(Below(n));
    if (Chance(40)) {
      graph.mutable_node()->SwapElements(at, static_cast<int>(Below(n)));
    } else if (Chance(50)) {
      graph.mutable_node()->DeleteSubrange(at, 1);
    } else {
      onnx::NodeProto copy = graph.node(at);
      for (auto& output : *copy.mutable_output()) {
        if (Chance(95)) output += "_again";
      }
      *graph.add_node() = copy;
    }
  }

  void ChangeEnds(onnx::GraphProto& graph) {
    const size_t what = Below(6);
    if (what == 0 && !graph.output().empty()) return graph.mutable_output()->RemoveLast();
    if (what == 1 && !graph.input().empty()) return graph.mutable_input()->RemoveLast();
    if (what == 2) {
      onnx::ValueInfoProto& added = *graph.add_output();
      if (graph.output_size() > 1) added = graph.output(0);
      return added.set_name(SomeValue(graph));
    }
    if (what == 3 && graph.output_size() > 1) return graph.mutable_output()->SwapElements(0, 1);
    if (what == 4 && graph.input_size() > 1) {
      return graph.mutable_input()->SwapElements(
          0, static_cast<int>(Below(static_cast<size_t>(graph.input_size()))));
    }
    if (!graph.initializer().empty()) graph.mutable_initializer()->RemoveLast();
  }

  // Renames a value everywhere in the graph, so that the model stays consistent.
  void RenameValue(onnx::GraphProto& graph) {
    const std::string from = SomeValue(graph);
    const std::string to = Chance(80) ? Canaries()[Below(Canaries().size())] : SomeValue(graph);
    const auto rename = [&](std::string* name) {
      if (*name == from) *name = to;
    };
    for (auto* list : {graph.mutable_input(), graph.mutable_output(), graph.mutable_value_info()}) {
      for (auto& v : *list) rename(v.mutable_name());
    }
    for (auto& t : *graph.mutable_initializer()) rename(t.mutable_name());
    for (auto& n : *graph.mutable_node()) {
      for (auto& name : *n.mutable_input()) rename(&name);
      for (auto& name : *n.mutable_output()) rename(&name);
      if (Chance(2)) n.set_name(to);
    }
  }

  void ChangeImports() {
    if (Chance(20)) return model_.set_ir_version(Number());
    if (Chance(10)) {
      auto& import = *model_.add_opset_import();
      import.set_domain(Chance(50) ? "com.microsoft" : "");
      return import.set_version(static_cast<int64_t>(Below(27)));
    }
    if (model_.opset_import().empty()) return;
    model_.mutable_opset_import(0)->set_version(Chance(90) ? static_cast<int64_t>(10 + Below(16))
                                                           : Number());
  }

  // Moves a node into both branches of an If.
  void Nest(onnx::GraphProto& graph) {
    onnx::NodeProto* node = SomeNode(graph);
    if (node == nullptr || model_.ByteSizeLong() > 200000) return;
    onnx::GraphProto body;
    body.set_name("body");
    *body.add_node() = *node;
    for (const std::string& output : node->output()) body.add_output()->set_name(output);
    onnx::NodeProto branch;
    branch.set_op_type("If");
    branch.add_input(SomeValue(graph));
    *branch.mutable_output() = node->output();
    for (const char* name : {"then_branch", "else_branch"}) {
      AttributeProto& attribute = *branch.add_attribute();
      attribute.set_name(name);
      attribute.set_type(AttributeProto::GRAPH);
      *attribute.mutable_g() = body;
    }
    *node = branch;
    graphs_.clear();
    Collect(model_.mutable_graph());
  }

  onnx::ModelProto& model_;
  std::mt19937& rng_;
  std::vector<onnx::GraphProto*> graphs_;
};

}  // namespace

const std::vector<std::string>& Canaries() {
  static const std::vector<std::string> canaries = {"\x1b]0;x\a",
                                                    "::error::x",
                                                    "</script><script>alert(1)</script>",
                                                    "\"}];//",
                                                    "\xe2\x80\xae"
                                                    "gnp.exe",
                                                    std::string("a\0b", 3),
                                                    "\xff\xfe",
                                                    "a\r\nb",
                                                    "]]>",
                                                    "'); import os #",
                                                    "?"
                                                    "?/\\",
                                                    "${HOME}`id`%25%0A",
                                                    "a,b::c",
                                                    std::string(5000, 'n')};
  return canaries;
}

void MutateModel(onnx::ModelProto* model, std::mt19937& rng) {
  for (size_t changes = 1 + rng() % 4; changes > 0; --changes) Mutator(model, rng).Once();
}

}  // namespace kvlift::fuzz
