#include "verify/variants/plain_experts.h"

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"
#include "ir/node_builder.h"
#include "onnx/onnx_pb.h"
#include "verify/variants/other_weights.h"

namespace kvlift {
namespace {

using onnx::NodeProto;
using onnx::TensorProto;

constexpr int64_t kExpertsOpset = 15;  // the first with all operators that are used here

// The positions of the operands of a layer of experts; kNone: the operator has no such operand.
struct LayerPlaces {
  static constexpr int kNone = -1;
  int weights, scales, bias, zeros;
};
constexpr std::array<LayerPlaces, 2> kMoePlaces = {
    {{2, LayerPlaces::kNone, 3, LayerPlaces::kNone},
     {4, LayerPlaces::kNone, 5, LayerPlaces::kNone}}};
constexpr std::array<LayerPlaces, 2> kQMoePlaces = {{{2, 3, 4, 11}, {5, 6, 7, 12}}};

bool IsExperts(const NodeProto& node) {
  return node.domain() == "com.microsoft" && (node.op_type() == "MoE" || node.op_type() == "QMoE");
}

// Writes one operator.
class ExpertsWriter {
 public:
  ExpertsWriter(const Graph& graph, NodeId n, NodeBuilder* b)
      : graph_(graph),
        node_(graph.node(n)),
        n_(n),
        b_(*b),
        quantized_(node_.op_type() == "QMoE"),
        activation_(StringAttribute(node_, "activation_type", "relu")),
        fusion_(IntAttribute(node_, "swiglu_fusion", 0)) {}

  // Returns true if it is known what the operator computes.
  bool IsKnown() const {
    for (int k = 0; k < node_.input_size(); ++k) {
      const bool known = quantized_ ? k < 8 || k == 11 || k == 12 : k < 6;
      if (!known && !node_.input(k).empty()) return false;
    }
    const bool swiglu = activation_ == "swiglu";
    return TypeOfInput() != 0 && IntAttribute(node_, "use_sparse_mixer", 0) == 0 &&
           (swiglu ? fusion_ == 1 || fusion_ == 2
                   : activation_ == "relu" || activation_ == "gelu" || activation_ == "silu" ||
                         activation_ == "identity") &&
           (!quantized_ ||
            (StringAttribute(node_, "quant_type", "int") == "int" &&
             IntAttribute(node_, "weights_prepacked", -1) != 1 && IsBits(BitsOf(0)) &&
             IsBits(BitsOf(1)) && !Input(3).empty() && !Input(6).empty()));
  }

  std::vector<NodeProto> Write() {
    b_.set_scope("experts/" + node_.output(0));
    const int32_t type = TypeOfInput();
    const std::string first = Weights(0), second = Weights(1);
    const std::string tokens =
        Op("Reshape",
           {Input(0), Op("Concat", {b_.Int64s({-1}), b_.Extent(first, 2, "hidden_size")},
                         "token_rows_shape", {MakeAttribute("axis", int64_t{0})})},
           "token_rows");
    const std::string weights = Routing();
    const std::string made = Layer(Activated(Layer(tokens, first, 0), type), second, 1);
    const std::string summed =
        Op("ReduceSum", {Op("Mul", {made, weights}, "weighted"), b_.Int64s({0})}, "sum",
           {MakeAttribute("keepdims", int64_t{0})});
    Take();
    b_.AddNamed("Reshape", {summed, Op("Shape", {Input(0)}, "shape")}, "output", node_.output(0));
    Take();
    return std::move(nodes_);
  }

 private:
  std::string Input(int k) const { return k < node_.input_size() ? node_.input(k) : ""; }
  std::string Op(std::string_view op, const NodeBuilder::Inputs& inputs, std::string_view role,
                 NodeBuilder::Attributes attributes = {}) {
    return b_.Add(op, inputs, role, std::move(attributes));
  }
  void Take() {
    for (NodeProto& node : b_.TakeNodes()) nodes_.push_back(std::move(node));
  }
  const LayerPlaces& At(int layer) const { return (quantized_ ? kQMoePlaces : kMoePlaces)[layer]; }
  static bool IsBits(int64_t bits) { return bits == 2 || bits == 4 || bits == 8; }
  int64_t BitsOf(int layer) const {
    return IntAttribute(node_, layer == 0 ? "fc1_expert_weight_bits" : "fc2_expert_weight_bits",
                        IntAttribute(node_, "expert_weight_bits", 4));
  }
  // Returns the element type of the tokens; 0 if nothing declares it.
  int32_t TypeOfInput() const {
    std::vector<int> places = {0, 1, At(0).bias, At(1).bias};
    if (!quantized_) places.push_back(At(0).weights);
    for (const int k : places) {
      const ValueId v = k < node_.input_size() ? graph_.inputs(n_)[k] : kNoValue;
      if (v != kNoValue && graph_.type(v).elem_type != 0) return graph_.type(v).elem_type;
    }
    return graph_.type(graph_.outputs(n_)[0]).elem_type;
  }

  // Returns codes [..., C] of uint8 [..., C * bits / 8], whose first code is in the lowest bits.
  std::string Unpacked(const std::string& packed, int64_t bits, int64_t rank) {
    if (bits == 8) return packed;
    NodeBuilder::Inputs parts;
    const std::string right = b_.Scalar(static_cast<double>(8 - bits), TensorProto::UINT8);
    for (int64_t from = 0; from < 8; from += bits) {
      const std::string left = b_.Scalar(static_cast<double>(8 - bits - from), TensorProto::UINT8);
      const std::string moved = Op("BitShift", {packed, left}, "moved",
                                   {MakeAttribute("direction", std::string_view("LEFT"))});
      const std::string code = Op("BitShift", {moved, right}, "code",
                                  {MakeAttribute("direction", std::string_view("RIGHT"))});
      parts.push_back(Op("Unsqueeze", {code, b_.Int64s({rank})}, "codes"));
    }
    const std::string all = Op("Concat", parts, "codes", {MakeAttribute("axis", rank)});
    std::vector<int64_t> shape(static_cast<size_t>(rank), 0);
    shape.back() = -1;
    return Op("Reshape", {all, b_.Int64s(shape)}, "codes");
  }

  // Returns the weights of a layer, [E, N, K], of the type of the tokens.
  std::string Weights(int layer) {
    const LayerPlaces& at = At(layer);
    if (!quantized_) return Input(at.weights);
    const int64_t bits = BitsOf(layer), block = IntAttribute(node_, "block_size", 0);
    const std::string scales = Input(at.scales);
    const std::string scale = Op("Unsqueeze", {scales, b_.Int64s({-1})}, "scale");
    std::string codes = Unpacked(Input(at.weights), bits, 3);
    if (block > 0) codes = Op("Reshape", {codes, b_.Int64s({0, 0, -1, block})}, "blocks");
    const std::string number = Op("CastLike", {codes, scales}, "codes");
    std::string zero = Input(at.zeros);
    if (zero.empty()) {
      zero =
          Op("CastLike",
             {b_.Scalar(std::ldexp(1.0, static_cast<int>(bits) - 1), TensorProto::UINT8), scales},
             "zero_point");
    } else {
      const int64_t last = block > 0 ? 2 : 1;
      const std::string all = Unpacked(zero, bits, last + 1);
      const std::string own = Op(
          "Slice", {all, b_.Int64s({0}), b_.Extent(scales, last, "zero_points"), b_.Int64s({last})},
          "zero_points");
      zero = Op("CastLike", {Op("Unsqueeze", {own, b_.Int64s({-1})}, "zero_point"), scales},
                "zero_point");
    }
    std::string weights = Op("Mul", {Op("Sub", {number, zero}, "centred"), scale}, "weights");
    if (block > 0) weights = Op("Reshape", {weights, b_.Int64s({0, 0, -1})}, "weights");
    return Op("CastLike", {weights, Input(0)}, "weights");
  }

  // Returns x W^T + bias of each expert. x: [T, K] or [E, T, K]. Returns [E, T, N].
  std::string Layer(const std::string& x, const std::string& weights, int layer) {
    const std::string transposed = Op("Transpose", {weights}, "transposed",
                                      {MakeAttribute("perm", std::vector<int64_t>{0, 2, 1})});
    const std::string product = Op("MatMul", {x, transposed}, "product");
    const std::string bias = Input(At(layer).bias);
    if (bias.empty()) return product;
    return Op("Add", {product, Op("Unsqueeze", {bias, b_.Int64s({1})}, "bias")}, "biased");
  }

  std::string Activated(const std::string& x, int32_t type) {
    if (activation_ == "relu") return Op("Relu", {x}, "activated");
    if (activation_ == "silu") return Op("Mul", {x, Op("Sigmoid", {x}, "open")}, "activated");
    if (activation_ == "gelu") return GeluByTanh(x, type);
    return activation_ == "identity" ? x : SwiGlu(x, type);
  }

  // x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
  std::string GeluByTanh(const std::string& x, int32_t type) {
    const std::string square = Op("Mul", {x, x}, "square");
    const std::string cube = Op("Mul", {square, x}, "cube");
    const std::string term = Op("Mul", {cube, b_.Scalar(0.044715, type)}, "cubic");
    const std::string inner =
        Op("Mul", {Op("Add", {x, term}, "inner"), b_.Scalar(std::sqrt(2 / std::acos(-1.0)), type)},
           "inner");
    const std::string open = Op("Add", {Op("Tanh", {inner}, "tanh"), b_.Scalar(1, type)}, "open");
    return Op("Mul", {Op("Mul", {x, b_.Scalar(0.5, type)}, "half"), open}, "activated");
  }

  // G * sigmoid(alpha * G) * (L + beta), with G and L side by side or, fused with 1, in turn.
  std::string SwiGlu(const std::string& x, int32_t type) {
    const int64_t axis = fusion_ == 1 ? 3 : 2;
    const std::string pairs = Op("Reshape",
                                 {x, b_.Int64s(fusion_ == 1 ? std::vector<int64_t>{0, 0, -1, 2}
                                                            : std::vector<int64_t>{0, 0, 2, -1})},
                                 "gate_and_linear");
    std::array<std::string, 2> parts;
    for (int64_t k = 0; k < 2; ++k) {
      parts[static_cast<size_t>(k)] = Op("Gather", {pairs, b_.Int64(k)}, k == 0 ? "gate" : "linear",
                                         {MakeAttribute("axis", axis)});
    }
    auto& [gate, linear] = parts;
    const float limit =
        FloatAttribute(node_, "swiglu_limit", std::numeric_limits<float>::infinity());
    if (std::isfinite(limit)) {
      const std::string most = b_.Scalar(limit, type);
      gate = Op("Min", {gate, most}, "gate");
      linear = Op("Clip", {linear, b_.Scalar(-limit, type), most}, "linear");
    }
    const std::string alpha = b_.Scalar(FloatAttribute(node_, "activation_alpha", 1), type);
    const std::string beta = b_.Scalar(FloatAttribute(node_, "activation_beta", 0), type);
    const std::string open = Op("Sigmoid", {Op("Mul", {gate, alpha}, "scaled")}, "open");
    return Op("Mul", {Op("Mul", {gate, open}, "swish"), Op("Add", {linear, beta}, "linear")},
              "activated");
  }

  // Returns the weights of the experts for each token, [E, T, 1]: 0 where one is not chosen. QMoE
  // shares out the whole among the chosen ones; MoE does if normalize_routing_weights is set.
  std::string Routing() {
    const std::string scores = Input(1);
    const std::string k = b_.Int64s({IntAttribute(node_, "k", 1)});
    Take();
    const std::string values = "/kvlift/experts/" + node_.output(0) + "/chosen_scores";
    const std::string chosen = "/kvlift/experts/" + node_.output(0) + "/chosen";
    NodeProto& top = nodes_.emplace_back();
    top.set_op_type("TopK");
    top.set_name(chosen);
    for (const std::string& input : {scores, k}) top.add_input(input);
    for (const std::string& output : {values, chosen}) top.add_output(output);
    *top.add_attribute() = MakeAttribute("axis", int64_t{-1});
    const NodeBuilder::Attributes last = {MakeAttribute("axis", int64_t{-1})};
    const std::string share =
        quantized_ || IntAttribute(node_, "normalize_routing_weights", 0) != 0
            ? Op("Softmax", {values}, "shares", last)
            : Op("GatherElements", {Op("Softmax", {scores}, "shares", last), chosen}, "shares",
                 last);
    const std::string none =
        Op("CastLike", {Op("ConstantOfShape", {Op("Shape", {scores}, "shape")}, "none"), scores},
           "none");
    const std::string all = Op("ScatterElements", {none, chosen, share}, "weights",
                               {MakeAttribute("axis", int64_t{1})});
    const std::string by_expert =
        Op("Transpose", {all}, "weights", {MakeAttribute("perm", std::vector<int64_t>{1, 0})});
    return Op("Unsqueeze", {by_expert, b_.Int64s({2})}, "weights");
  }

  const Graph& graph_;
  const NodeProto& node_;
  NodeId n_;
  NodeBuilder& b_;
  bool quantized_;
  std::string activation_;
  int64_t fusion_;
  std::vector<NodeProto> nodes_;
};

}  // namespace

absl::StatusOr<Model> WithPlainExperts(const Model& model) {
  bool has_experts = false;
  for (const NodeProto& node : model.proto->graph().node()) has_experts |= IsExperts(node);
  if (!has_experts) return model;
  KV_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(model.proto));
  if (graph.opset() < kExpertsOpset) return model;
  KV_ASSIGN_OR_RETURN(const std::shared_ptr<onnx::ModelProto> copy, WithSameWeights(model.proto));
  NodeBuilder builder(graph);
  copy->mutable_graph()->clear_node();
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    ExpertsWriter writer(graph, n, &builder);
    if (!IsExperts(graph.node(n)) || !writer.IsKnown()) {
      *copy->mutable_graph()->add_node() = graph.node(n);
      continue;
    }
    for (NodeProto& node : writer.Write()) {
      *copy->mutable_graph()->add_node() = std::move(node);
    }
  }
  for (TensorProto& tensor : builder.TakeInitializers()) {
    *copy->mutable_graph()->add_initializer() = std::move(tensor);
  }
  Model plain = model;
  plain.proto = copy;
  plain.digest = nullptr;
  return plain;
}

}  // namespace kvlift
