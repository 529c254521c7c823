#include "soundness/edits.h"

#include <limits>
#include <vector>

#include "fmt/format.h"
#include "onnxio/model.h"
#include "soundness/changes.h"

namespace kvlift::soundness {
namespace {

using onnx::TensorProto;

constexpr int64_t kToEnd = std::numeric_limits<int64_t>::max();

class Editor {
 public:
  Editor(onnx::ModelProto* model, const Types& types, Random& random)
      : model_(model), graph_(model->mutable_graph()), types_(types), random_(random) {}

  std::string Run() {
    for (int attempt = 0; attempt < 20; ++attempt) {
      const int64_t kind = random_.Pick(0, 19);
      std::string done;
      if (kind < 13) done = EditOperand();
      if (kind == 13) done = SwapOperands();
      if (kind == 14) done = ChangeOperator();
      if (kind == 15) done = ChangeAttribute();
      if (kind == 16) done = ChangeConstant();
      if (kind == 17) done = Rewire();
      if (kind == 18) done = random_.OneIn(2) ? DropOperand() : RenameDimension();
      if (kind == 19) done = EditOutput();
      if (!done.empty()) return done;
    }
    return "";
  }

 private:
  TypeOf Look(const std::string& value) const {
    const auto it = types_.find(value);
    return it == types_.end() ? TypeOf() : it->second;
  }

  std::string Prefix() const { return fmt::format("edit{}_", graph_->node_size()); }

  std::string EditOperand() {
    if (graph_->node_size() == 0) return "";
    const int n = static_cast<int>(random_.Pick(0, graph_->node_size() - 1));
    if (graph_->node(n).input_size() == 0) return "";
    const int k = static_cast<int>(random_.Pick(0, graph_->node(n).input_size() - 1));
    const std::string value = graph_->node(n).input(k), op = graph_->node(n).op_type();
    const TypeOf type = Look(value);
    const std::vector<NamedChange> changes = changes_.Of(type);
    if (changes.empty()) return "";
    const NamedChange& change = random_.Of(changes);
    Sketch sketch(model_, Prefix(), n);
    const std::string result = change.change(sketch, value);
    graph_->mutable_node(sketch.at())->set_input(k, result);
    return fmt::format("{} at {}/{}", change.name, op, k);
  }

  std::string EditOutput() {
    const int k = static_cast<int>(random_.Pick(0, graph_->output_size() - 1));
    const std::string name = graph_->output(k).name();
    const std::vector<NamedChange> changes = changes_.Of(Look(name));
    if (changes.empty()) return "";
    const std::string inner = Prefix() + "inner";
    bool made = false;
    for (auto& node : *graph_->mutable_node()) {
      for (std::string& output : *node.mutable_output()) {
        if (output == name) {
          output = inner;
          made = true;
        }
      }
      for (std::string& input : *node.mutable_input()) {
        if (input == name) input = inner;
      }
    }
    if (!made) return "";
    const NamedChange& change = random_.Of(changes);
    Sketch sketch(model_, Prefix());
    const std::string result = change.change(sketch, inner);
    sketch.Op("Identity", {result}, {}, name);
    return fmt::format("{} at output {}", change.name, name.substr(0, 7));
  }

  std::string SwapOperands() {
    const int n = static_cast<int>(random_.Pick(0, graph_->node_size() - 1));
    auto* node = graph_->mutable_node(n);
    if (node->input_size() < 2) return "";
    node->mutable_input()->SwapElements(0, 1);
    return fmt::format("operands swapped of {}", node->op_type());
  }

  std::string ChangeOperator() {
    static const std::vector<std::vector<std::string>>* const kinds =
        new std::vector<std::vector<std::string>>{
            {"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"},
            {"Add", "Sub", "Mul", "Div"},
            {"And", "Or", "Xor"},
            {"Min", "Max"},
            {"ReduceMax", "ReduceMin", "ReduceMean"},
            {"Sin", "Cos"}};
    const int n = static_cast<int>(random_.Pick(0, graph_->node_size() - 1));
    auto* node = graph_->mutable_node(n);
    for (const auto& kind : *kinds) {
      for (const std::string& op : kind) {
        if (node->op_type() != op) continue;
        const std::string& other = random_.Of(kind);
        if (other == op) return "";
        node->set_op_type(other);
        return fmt::format("{} for {}", other, op);
      }
    }
    return "";
  }

  std::string ChangeAttribute() {
    const int n = static_cast<int>(random_.Pick(0, graph_->node_size() - 1));
    auto* node = graph_->mutable_node(n);
    if (node->op_type() == "Attention" && random_.OneIn(3)) {
      for (auto& attribute : *node->mutable_attribute()) {
        if (attribute.name() != "is_causal") continue;
        attribute.set_i(1 - attribute.i());
        return "is_causal turned";
      }
      auto* attribute = node->add_attribute();
      attribute->set_name("is_causal");
      attribute->set_type(onnx::AttributeProto::INT);
      attribute->set_i(1);
      return "is_causal added";
    }
    if (node->attribute_size() == 0) return "";
    auto* attribute =
        node->mutable_attribute(static_cast<int>(random_.Pick(0, node->attribute_size() - 1)));
    const std::string what = fmt::format("{} of {}", attribute->name(), node->op_type());
    if (random_.OneIn(6)) {
      attribute->set_name("");
      std::vector<onnx::AttributeProto> kept;
      for (const auto& a : node->attribute()) {
        if (!a.name().empty()) kept.push_back(a);
      }
      node->clear_attribute();
      for (const auto& a : kept) *node->add_attribute() = a;
      return fmt::format("{} left out", what);
    }
    if (attribute->type() == onnx::AttributeProto::INT) {
      attribute->set_i(attribute->i() + (random_.OneIn(2) ? 1 : -1));
    } else if (attribute->type() == onnx::AttributeProto::FLOAT) {
      attribute->set_f(attribute->f() * 1.25F);
    } else if (attribute->ints_size() > 1) {
      const int a = static_cast<int>(random_.Pick(0, attribute->ints_size() - 2));
      attribute->mutable_ints()->SwapElements(a, a + 1);
    } else {
      return "";
    }
    return fmt::format("{} changed", what);
  }

  std::string ChangeConstant() {
    if (graph_->initializer_size() == 0) return "";
    auto* tensor = graph_->mutable_initializer(
        static_cast<int>(random_.Pick(0, graph_->initializer_size() - 1)));
    std::string reader = "?";
    for (const auto& node : graph_->node()) {
      for (int k = 0; k < node.input_size(); ++k) {
        if (node.input(k) == tensor->name()) reader = fmt::format("{}/{}", node.op_type(), k);
      }
    }
    if (tensor->float_data_size() > 0) {
      const int i = static_cast<int>(random_.Pick(0, tensor->float_data_size() - 1));
      tensor->set_float_data(
          i, random_.OneIn(2) ? tensor->float_data(i) * 1.5F : tensor->float_data(i) + 0.5F);
    } else if (tensor->int64_data_size() > 0) {
      const int i = static_cast<int>(random_.Pick(0, tensor->int64_data_size() - 1));
      const int64_t x = tensor->int64_data(i);
      const int64_t to = random_.Of(Ints{0, 1, 2, 3, 5, 8, -1, x == kToEnd ? 7 : x + 1});
      tensor->set_int64_data(i, to);
    } else {
      return "";
    }
    return fmt::format("constant at {}", reader);
  }

  std::string Rewire() {
    const int n = static_cast<int>(random_.Pick(0, graph_->node_size() - 1));
    auto* node = graph_->mutable_node(n);
    if (node->input_size() == 0) return "";
    const int k = static_cast<int>(random_.Pick(0, node->input_size() - 1));
    const TypeOf type = Look(node->input(k));
    if (type.type == 0) return "";
    std::vector<std::string> others;
    const auto offer = [&](const std::string& name) {
      const TypeOf other = Look(name);
      if (name != node->input(k) && other.type == type.type && other.rank == type.rank) {
        others.push_back(name);
      }
    };
    for (const auto& input : graph_->input()) offer(input.name());
    for (const auto& tensor : graph_->initializer()) offer(tensor.name());
    for (int m = 0; m < n; ++m) {
      for (const std::string& output : graph_->node(m).output()) offer(output);
    }
    if (others.empty()) return "";
    node->set_input(k, random_.Of(others));
    return fmt::format("another value at {}/{}", node->op_type(), k);
  }

  std::string DropOperand() {
    const int n = static_cast<int>(random_.Pick(0, graph_->node_size() - 1));
    auto* node = graph_->mutable_node(n);
    if (node->input_size() < 2) return "";
    const int k = static_cast<int>(random_.Pick(1, node->input_size() - 1));
    if (node->input(k).empty()) return "";
    node->set_input(k, "");
    while (node->input_size() > 0 && node->input(node->input_size() - 1).empty()) {
      node->mutable_input()->RemoveLast();
    }
    return fmt::format("left out {}/{}", node->op_type(), k);
  }

  // Renames a dimension of an input; outputs keep theirs.
  std::string RenameDimension() {
    static const std::vector<std::string>* const names = new std::vector<std::string>{
        "kvlift.P", "kvlift.S", "P of the sequence", "S", "P", "B", "T", "max_sequence_length"};
    auto* input =
        graph_->mutable_input(static_cast<int>(random_.Pick(0, graph_->input_size() - 1)));
    auto* shape = input->mutable_type()->mutable_tensor_type()->mutable_shape();
    if (shape->dim_size() == 0) return "";
    auto* dim = shape->mutable_dim(static_cast<int>(random_.Pick(0, shape->dim_size() - 1)));
    if (!dim->has_dim_param()) return "";
    const std::string old = dim->dim_param();
    dim->set_dim_param(random_.Of(*names));
    // P + S new tokens would not fit into the slots of a step.
    if (old == "S" && dim->dim_param() == "T") dim->set_dim_param(old);
    return fmt::format("dimension {} called {}", old, dim->dim_param());
  }

  onnx::ModelProto* model_;
  onnx::GraphProto* graph_;
  const Types& types_;
  Random& random_;
  Changes changes_{*graph_, random_};
};

void Add(const onnx::ValueInfoProto& info, Types* types) {
  if (!info.type().has_tensor_type() || !info.type().tensor_type().has_shape()) return;
  (*types)[info.name()] = {info.type().tensor_type().elem_type(),
                           info.type().tensor_type().shape().dim_size()};
}

}  // namespace

Types InferredTypes(const onnx::ModelProto& model) {
  Types types;
  const auto inferred = InferShapes(model);
  const onnx::GraphProto& graph = inferred.ok() ? inferred->graph() : model.graph();
  for (const auto& info : graph.input()) Add(info, &types);
  for (const auto& info : graph.output()) Add(info, &types);
  for (const auto& info : graph.value_info()) Add(info, &types);
  for (const auto& tensor : graph.initializer()) {
    types[tensor.name()] = {tensor.data_type(), tensor.dims_size()};
  }
  return types;
}

std::string Edit(onnx::ModelProto* model, const Types& types, Random& random) {
  return Editor(model, types, random).Run();
}

}  // namespace kvlift::soundness
