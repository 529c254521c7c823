#include "exec/compile/fusing.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "exec/compile/fusing_attention.h"
#include "exec/compile/plan.h"
#include "exec/compile/timing.h"
#include "exec/kernels/elementwise/rows.h"
#include "exec/memory/tensor.h"
#include "ir/operators/operator_traits.h"
#include "ir/types.h"
#include "onnx/onnx_pb.h"
#include "onnxio/model/functions.h"

namespace kvlift::exec {
namespace {

using onnx::TensorProto;

constexpr size_t kMostNodes = 24, kMostInputs = 12;
// Bytes; larger constants keep type and shape, their data stays in the given graph.
constexpr int64_t kCopiedBytes = 1024;

const absl::flat_hash_map<std::string_view, RowOp>& Operators() {
  static const auto& ops = *new absl::flat_hash_map<std::string_view, RowOp>{
      {"Add", RowOp::kAdd},      {"Sub", RowOp::kSub},         {"Mul", RowOp::kMul},
      {"Div", RowOp::kDiv},      {"Pow", RowOp::kPow},         {"Neg", RowOp::kNeg},
      {"Abs", RowOp::kAbs},      {"Sqrt", RowOp::kSqrt},       {"Reciprocal", RowOp::kReciprocal},
      {"Exp", RowOp::kExp},      {"Sigmoid", RowOp::kSigmoid}, {"Tanh", RowOp::kTanh},
      {"Erf", RowOp::kErf},      {"Sin", RowOp::kSin},         {"Cos", RowOp::kCos},
      {"Cast", RowOp::kCast},    {"ReduceMean", RowOp::kMean}, {"Slice", RowOp::kSlice},
      {"Concat", RowOp::kConcat}};
  return ops;
}

bool IsRowType(int32_t type) {
  return type == TensorProto::FLOAT || type == TensorProto::FLOAT16 ||
         type == TensorProto::BFLOAT16;
}

// The element type (0: unknown) and the rank (-1: unknown) of a value.
struct Known {
  int32_t type = 0;
  int64_t rank = -1;
};

class Fuser {
 public:
  Fuser(std::shared_ptr<const Graph> graph, bool attention)
      : given_(std::move(graph)), graph_(*given_), attention_(attention) {}

  absl::StatusOr<std::shared_ptr<const Graph>> Run() {
    FindConstants();
    FindTypes();
    FindTiming();
    FindCandidates();
    group_of_.assign(graph_.num_nodes(), -1);
    for (NodeId n = graph_.num_nodes() - 1; n >= 0; --n) {
      if (candidate_[n].has_value() && group_of_[n] < 0) Gather(n);
    }
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (group_of_[n] < 0) GatherProduct(n);
      if (attention_ && group_of_[n] < 0) GatherAttention(n);
    }
    if (groups_.empty()) return given_;
    return Rebuild();
  }

 private:
  struct Group {
    NodeId sink;
    std::vector<NodeId> nodes;                 // in order
    std::vector<ValueId> inputs;               // of the fused node
    bool product = false;                      // a MatMul and the Add behind it
    std::optional<onnx::NodeProto> node = {};  // the fused node, where it is known already
  };

  void FindConstants() {
    constants_.assign(graph_.num_values(), nullptr);
    for (ValueId v = 0; v < graph_.num_values(); ++v) constants_[v] = graph_.constant(v);
  }

  Known Of(NodeId n, size_t input) const {
    const auto inputs = graph_.inputs(n);
    return input < inputs.size() && inputs[input] != kNoValue ? known_[inputs[input]] : Known();
  }

  // Types follow from those of inputs and constants by the rules of the kernels. Types that the
  // model declares for inner values are not trusted.
  void FindTypes() {
    known_.resize(graph_.num_values());
    for (ValueId v = 0; v < graph_.num_values(); ++v) {
      if (constants_[v] != nullptr) {
        known_[v] = {constants_[v]->data_type(), constants_[v]->dims_size()};
      } else if (graph_.is_graph_input(v)) {
        const TensorType& type = graph_.type(v);
        known_[v] = {type.elem_type,
                     type.shape.has_value() ? static_cast<int64_t>(type.shape->size()) : -1};
      }
    }
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (graph_.outputs(n).empty() || graph_.outputs(n)[0] == kNoValue) continue;
      const ValueId out = graph_.outputs(n)[0];
      if (constants_[out] == nullptr) known_[out] = Infer(n);
    }
  }

  Known Infer(NodeId n) const {
    using Names = absl::flat_hash_set<std::string_view>;
    static const auto& like_input =
        *new Names{"Concat", "RotaryEmbedding", "Slice", "Softmax", "TensorScatter", "Trilu"};
    static const auto& joint = *new Names{"Add", "Sub", "Mul", "Div", "Pow"};
    static const auto& like_scale =
        *new Names{"LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"};
    static const auto& of_type = *new Names{"Attention",
                                            "Expand",
                                            "FusedMatMul",
                                            "Gather",
                                            "Gemm",
                                            "GroupQueryAttention",
                                            "MatMul",
                                            "MatMulBnb4",
                                            "MatMulNBits",
                                            "MultiHeadAttention",
                                            "Reshape",
                                            "SkipLayerNormalization",
                                            "SkipSimplifiedLayerNormalization",
                                            "Split",
                                            "Squeeze",
                                            "Tile",
                                            "Unsqueeze"};
    const onnx::NodeProto& node = graph_.node(n);
    const std::string& domain = node.domain();
    if (!domain.empty() && domain != "ai.onnx" && domain != "com.microsoft") return {};
    if (FindFunction(graph_.model(), node) != nullptr) return {};
    const std::string& op = node.op_type();
    const Known x = Of(n, 0);
    if (op == "Cast") return {static_cast<int32_t>(IntAttribute(node, "to", 0)), x.rank};
    if (op == "Where") return {Of(n, 1).type, -1};
    if (op == "Transpose") {
      const onnx::AttributeProto* perm = FindAttribute(node, "perm");
      return {x.type, perm != nullptr ? perm->ints_size() : x.rank};
    }
    if (op == "ReduceMean" || op == "ReduceSum") {
      return {x.type, IntAttribute(node, "keepdims", 1) != 0 ? x.rank : -1};
    }
    if (like_scale.contains(op)) return {Of(n, 1).type, x.rank};
    const ElementwiseOperator* const each = FindElementwise(node);
    const bool is_map = each != nullptr && each->keeps_type &&
                        each->operands == ElementwiseOperator::Operands::kOne;
    if (is_map || like_input.contains(op)) return x;
    if (joint.contains(op)) {
      const Known y = Of(n, 1);
      return {x.type, x.rank < 0 || y.rank < 0 ? -1 : std::max(x.rank, y.rank)};
    }
    return of_type.contains(op) ? Known{x.type, -1} : Known();
  }

  void FindTiming() {
    std::vector<const OpDef*> defs(graph_.num_nodes(), nullptr);
    std::vector<NodeId> order;
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      const OpDef* def = DefOf(graph_, n);
      defs[n] = def != nullptr && def->shape != nullptr ? def : nullptr;
      order.push_back(n);
    }
    timing_ = TimeNodes(graph_, defs, constants_, order);
  }

  std::optional<int64_t> OneInt(ValueId v) const {
    if (v == kNoValue || constants_[v] == nullptr) return std::nullopt;
    const int32_t type = constants_[v]->data_type();
    if (type != TensorProto::INT64 && type != TensorProto::INT32) return std::nullopt;
    if (constants_[v]->data_location() == TensorProto::EXTERNAL) return std::nullopt;
    const auto tensor = Tensor::FromProto(*constants_[v], "");
    if (!tensor.ok() || tensor->size() != 1) return std::nullopt;
    return type == TensorProto::INT64 ? tensor->span<int64_t>()[0] : tensor->span<int32_t>()[0];
  }

  bool IsLast(int64_t axis, const Known& x) const {
    return axis == -1 || (x.rank > 0 && axis == x.rank - 1);
  }

  // Returns the instruction for a node, without its operands; nullopt if the node cannot be part of
  // a chain.
  std::optional<RowInstruction> AsInstruction(NodeId n) const {
    const onnx::NodeProto& node = graph_.node(n);
    if (!node.domain().empty() && node.domain() != "ai.onnx") return std::nullopt;
    const auto op = Operators().find(node.op_type());
    const auto inputs = graph_.inputs(n), outputs = graph_.outputs(n);
    if (op == Operators().end() || outputs.size() != 1 || outputs[0] == kNoValue ||
        inputs.empty() || timing_[n] != Timing::kPlanned || constants_[outputs[0]] != nullptr ||
        graph_.opset() < 13) {
      return std::nullopt;
    }
    const Known x = Of(n, 0);
    if (!IsRowType(x.type) || !IsRowType(known_[outputs[0]].type)) return std::nullopt;
    RowInstruction i{op->second};
    switch (i.op) {
      case RowOp::kCast:
        i.p = known_[outputs[0]].type;
        return i;
      case RowOp::kMean:
        return IsRowMean(n) ? std::optional(i) : std::nullopt;
      case RowOp::kSlice:
        return RowSlice(n);
      case RowOp::kConcat:
        return IsRowConcat(n) ? std::optional(i) : std::nullopt;
      default:
        if (!IsBinary(i.op)) return inputs.size() == 1 ? std::optional(i) : std::nullopt;
        return inputs.size() == 2 && Of(n, 1).type == x.type ? std::optional(i) : std::nullopt;
    }
  }

  bool IsRowMean(NodeId n) const {
    const onnx::NodeProto& node = graph_.node(n);
    if (IntAttribute(node, "keepdims", 1) == 0) return false;
    const auto inputs = graph_.inputs(n);
    if (const onnx::AttributeProto* axes = FindAttribute(node, "axes")) {
      return inputs.size() == 1 && axes->ints_size() == 1 && IsLast(axes->ints(0), Of(n, 0));
    }
    const auto axis = inputs.size() == 2 ? OneInt(inputs[1]) : std::nullopt;
    return axis.has_value() && IsLast(*axis, Of(n, 0));
  }

  std::optional<RowInstruction> RowSlice(NodeId n) const {
    const auto inputs = graph_.inputs(n);
    if (inputs.size() < 4 || Of(n, 0).rank == 0) return std::nullopt;
    const auto start = OneInt(inputs[1]), end = OneInt(inputs[2]), axis = OneInt(inputs[3]);
    const bool stepped = inputs.size() > 4 && inputs[4] != kNoValue;
    if (!start || !end || !axis || !IsLast(*axis, Of(n, 0)) ||
        (stepped && OneInt(inputs[4]) != int64_t{1})) {
      return std::nullopt;
    }
    // Slice gives the same result for these numbers as for those further out.
    constexpr int64_t kFar = int64_t{1} << 40;
    return RowInstruction{RowOp::kSlice, 0, 0, std::clamp(*start, -kFar, kFar),
                          std::clamp(*end, -kFar, kFar)};
  }

  // Both operands must be parts of one value, so that their outer dimensions are equal.
  bool IsRowConcat(NodeId n) const {
    const auto inputs = graph_.inputs(n);
    const onnx::AttributeProto* axis = FindAttribute(graph_.node(n), "axis");
    if (inputs.size() != 2 || axis == nullptr || !IsLast(axis->i(), Of(n, 0)) ||
        Of(n, 1).type != Of(n, 0).type) {
      return false;
    }
    return PartOf(inputs[0]) == PartOf(inputs[1]);
  }

  ValueId PartOf(ValueId v) const {
    for (;;) {
      const NodeId n = v == kNoValue ? kNoNode : graph_.producer(v);
      if (n == kNoNode || !candidate_[n].has_value()) return v;
      const RowOp op = candidate_[n]->op;
      if (op != RowOp::kSlice && op != RowOp::kNeg) return v;
      v = graph_.inputs(n)[0];
    }
  }

  void FindCandidates() {
    candidate_.resize(graph_.num_nodes());
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) candidate_[n] = AsInstruction(n);
  }

  // Returns the operands that are rows. The other inputs are constants of the instruction.
  absl::Span<const ValueId> Operands(NodeId n) const {
    const auto inputs = graph_.inputs(n);
    return inputs.subspan(0, IsBinary(candidate_[n]->op) ? 2 : 1);
  }

  // Returns true if all readers of v are nodes of the set.
  bool OnlyReadBy(ValueId v, const absl::flat_hash_set<NodeId>& nodes) const {
    if (graph_.is_graph_output(v)) return false;
    const auto uses = graph_.uses(v);
    return std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
      return use.kind == Use::Kind::kNodeInput && nodes.contains(use.node);
    });
  }

  void Gather(NodeId sink) {
    if (candidate_[sink]->op == RowOp::kSlice) return;  // a view is better
    absl::flat_hash_set<NodeId> nodes = {sink};
    Group group{sink, {sink}, {}};
    for (bool grown = true; grown && nodes.size() < kMostNodes;) {
      grown = false;
      for (size_t k = 0; k < group.nodes.size() && nodes.size() < kMostNodes; ++k) {
        for (const ValueId v : Operands(group.nodes[k])) {
          const NodeId maker = constants_[v] != nullptr ? kNoNode : graph_.producer(v);
          if (maker == kNoNode || nodes.contains(maker) || !candidate_[maker].has_value() ||
              group_of_[maker] >= 0 || !OnlyReadBy(v, nodes)) {
            continue;
          }
          nodes.insert(maker);
          group.nodes.push_back(maker);
          grown = true;
        }
      }
    }
    std::sort(group.nodes.begin(), group.nodes.end());
    for (const NodeId n : group.nodes) {
      for (const ValueId v : Operands(n)) {
        const bool inside = constants_[v] == nullptr && nodes.contains(graph_.producer(v));
        if (!inside &&
            std::find(group.inputs.begin(), group.inputs.end(), v) == group.inputs.end()) {
          group.inputs.push_back(v);
        }
      }
    }
    if (group.nodes.size() < 2 || group.inputs.size() > kMostInputs) return;
    for (const NodeId n : group.nodes) group_of_[n] = static_cast<int>(groups_.size());
    groups_.push_back(std::move(group));
  }

  // Groups a product with weights and the Add that is its only reader (a residual connection).
  void GatherProduct(NodeId sum) {
    if (!candidate_[sum].has_value() || candidate_[sum]->op != RowOp::kAdd) return;
    const auto operands = Operands(sum);
    for (const size_t side : {0, 1}) {
      const ValueId v = operands[side], added = operands[1 - side];
      const NodeId maker = constants_[v] != nullptr ? kNoNode : graph_.producer(v);
      if (maker == kNoNode || added == v || group_of_[maker] >= 0 || !IsWeightProduct(maker) ||
          !OnlyReadBy(v, {sum})) {
        continue;
      }
      const auto inputs = graph_.inputs(maker);
      group_of_[maker] = group_of_[sum] = static_cast<int>(groups_.size());
      groups_.push_back({sum, {maker, sum}, {inputs[0], inputs[1], added}, true});
      return;
    }
  }

  void GatherAttention(NodeId n) {
    auto fused = FuseQuantizedAttention(
        graph_, n,
        {[&](ValueId v) { return known_[v].type; }, [&](ValueId v) { return known_[v].rank; }});
    if (!fused || timing_[n] != Timing::kPlanned) return;
    std::vector<NodeId> nodes = fused->nodes;
    for (const NodeId k : nodes) {
      if (group_of_[k] >= 0) return;
    }
    nodes.push_back(n);
    for (const NodeId k : nodes) group_of_[k] = static_cast<int>(groups_.size());
    groups_.push_back({n, std::move(nodes), {}, false, std::move(fused->node)});
  }

  // Returns true for a MatMul with a constant matrix, or with the transpose of one.
  bool IsWeightProduct(NodeId n) const {
    const std::string& domain = graph_.node(n).domain();
    if (!graph_.Is(n, "MatMul") || !(domain.empty() || domain == "ai.onnx") ||
        timing_[n] != Timing::kPlanned) {
      return false;
    }
    ValueId weights = graph_.inputs(n)[1];
    if (known_[weights].rank != 2 || !IsRowType(known_[weights].type)) return false;
    if (constants_[weights] == nullptr && graph_.producer(weights) != kNoNode &&
        graph_.Is(graph_.producer(weights), "Transpose")) {
      weights = graph_.inputs(graph_.producer(weights))[0];
    }
    return weights != kNoValue && constants_[weights] != nullptr;
  }

  onnx::NodeProto FusedNode(const Group& group) const {
    if (group.node) return *group.node;
    absl::flat_hash_map<ValueId, int64_t> number;
    for (const ValueId v : group.inputs) number.emplace(v, number.size());
    onnx::NodeProto node;
    const onnx::NodeProto& sink = graph_.node(group.sink);
    node.set_name(sink.name());
    node.set_domain(std::string(kFusedDomain));
    for (const ValueId v : group.inputs) node.add_input(graph_.name(v));
    node.add_output(sink.output(0));
    if (group.product) {
      node.set_op_type(std::string(kProduct));
      return node;
    }
    onnx::AttributeProto& code = *node.add_attribute();
    code.set_name(kRowCode);
    code.set_type(onnx::AttributeProto::INTS);
    bool in_place = true;
    for (const NodeId n : group.nodes) {
      const RowInstruction& i = *candidate_[n];
      const auto operands = Operands(n);
      in_place = in_place && IsPointwise(i.op) && i.op != RowOp::kCast;
      code.add_ints(static_cast<int64_t>(i.op));
      code.add_ints(number.at(operands[0]));
      code.add_ints(number.at(operands.back()));
      code.add_ints(i.p);
      code.add_ints(i.q);
      number.emplace(graph_.outputs(n)[0], number.size());
    }
    node.set_op_type(std::string(in_place ? kPointwise : kRows));
    return node;
  }

  absl::StatusOr<std::shared_ptr<const Graph>> Rebuild() {
    const onnx::ModelProto& old = graph_.model();
    auto model = std::make_shared<onnx::ModelProto>();
    model->set_ir_version(old.ir_version());
    *model->mutable_opset_import() = old.opset_import();
    onnx::OperatorSetIdProto& set = *model->add_opset_import();
    set.set_domain(std::string(kFusedDomain));
    set.set_version(1);
    *model->mutable_functions() = old.functions();
    onnx::GraphProto& graph = *model->mutable_graph();
    graph.set_name(old.graph().name());
    *graph.mutable_input() = old.graph().input();
    *graph.mutable_output() = old.graph().output();
    *graph.mutable_value_info() = old.graph().value_info();
    for (ValueId v = 0; v < graph_.num_values(); ++v) {
      if (constants_[v] != nullptr) AddConstant(*constants_[v], graph_.name(v), graph);
    }
    for (const TensorProto& tensor : old.graph().initializer()) {  // defaults of inputs
      const ValueId v = graph_.Find(tensor.name());
      if (v == kNoValue || constants_[v] == nullptr) AddConstant(tensor, tensor.name(), graph);
    }
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (group_of_[n] < 0) {
        const auto outputs = graph_.outputs(n);
        const bool constant =
            !outputs.empty() && std::all_of(outputs.begin(), outputs.end(), [&](ValueId v) {
              return v != kNoValue && constants_[v] != nullptr;
            });
        if (!constant) *graph.add_node() = graph_.node(n);
      } else if (groups_[group_of_[n]].sink == n) {
        *graph.add_node() = FusedNode(groups_[group_of_[n]]);
      }
    }
    KV_ASSIGN_OR_RETURN(Graph built, Graph::Build(std::move(model)));
    return std::make_shared<const Graph>(std::move(built));
  }

  static void AddConstant(const TensorProto& from, const std::string& name,
                          onnx::GraphProto& graph) {
    TensorProto& tensor = *graph.add_initializer();
    if (static_cast<int64_t>(from.ByteSizeLong()) <= kCopiedBytes) {
      tensor = from;
    } else {
      tensor.set_data_type(from.data_type());
      *tensor.mutable_dims() = from.dims();
    }
    tensor.set_name(name);
  }

  std::shared_ptr<const Graph> given_;
  const Graph& graph_;
  const bool attention_;
  std::vector<const TensorProto*> constants_;             // by value
  std::vector<Known> known_;                              // by value
  std::vector<Timing> timing_;                            // by node
  std::vector<std::optional<RowInstruction>> candidate_;  // by node
  std::vector<int> group_of_;                             // by node; -1: not in a group
  std::vector<Group> groups_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Graph>> FuseRows(std::shared_ptr<const Graph> graph,
                                                      bool attention) {
  return Fuser(std::move(graph), attention).Run();
}

}  // namespace kvlift::exec
