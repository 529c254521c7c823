#include "verify/mutants.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "fmt/format.h"

namespace kvlift {
namespace {

using onnx::NodeProto;

constexpr int kCache = 0, kUpdate = 1, kIndices = 2;         // of TensorScatter
constexpr int kKey = 1, kValue = 2, kMask = 3, kNonpad = 6;  // of Attention

class Maker {
 public:
  Maker(const Graph& graph, const MutantLimits& limits) : graph_(graph), limits_(limits) {
    for (NodeId n = 0; n < graph.num_nodes(); ++n) {
      if (graph.Is(n, "TensorScatter")) scatters_.push_back(n);
      if (graph.Is(n, "Attention") && Input(n, kNonpad) != kNoValue) attentions_.push_back(n);
    }
  }

  std::vector<Mutant> Run() {
    if (scatters_.empty()) return {};
    WriteMutants();
    if (!attentions_.empty()) {
      LengthMutants();
      WiringMutants();
      ArithmeticMutants();
    }
    PositionMutant();
    return std::move(mutants_);
  }

 private:
  ValueId Input(NodeId n, int k) const {
    return k < static_cast<int>(graph_.inputs(n).size()) ? graph_.inputs(n)[k] : kNoValue;
  }
  std::string Name(NodeId n, int k) const {
    const ValueId v = Input(n, k);
    return v == kNoValue ? std::string() : graph_.name(v);
  }

  // A copy of the model's nodes in topological order, edited by `edit`, which appends to `before`
  // what has to stand in front of the edited node.
  using Edit = std::function<void(NodeId n, NodeProto* node, std::vector<NodeProto>* before)>;
  void Add(const std::string& name, const std::vector<onnx::TensorProto>& constants,
           const Edit& edit) {
    auto model = std::make_shared<onnx::ModelProto>(graph_.model());
    auto* nodes = model->mutable_graph()->mutable_node();
    nodes->Clear();
    model->mutable_graph()->clear_value_info();
    for (const auto& tensor : constants) *model->mutable_graph()->add_initializer() = tensor;
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      NodeProto node = graph_.node(n);
      std::vector<NodeProto> before;
      edit(n, &node, &before);
      for (NodeProto& extra : before) *nodes->Add() = std::move(extra);
      *nodes->Add() = std::move(node);
    }
    mutants_.push_back({name, std::move(model)});
  }

  static NodeProto Make(const std::string& op, const std::vector<std::string>& inputs,
                        const std::string& output) {
    NodeProto node;
    node.set_op_type(op);
    node.set_name(output);
    for (const std::string& input : inputs) node.add_input(input);
    node.add_output(output);
    return node;
  }

  static onnx::TensorProto Ints(const std::string& name, std::vector<int64_t> values,
                                bool scalar = false) {
    onnx::TensorProto tensor;
    tensor.set_name(name);
    tensor.set_data_type(onnx::TensorProto::INT64);
    if (!scalar) tensor.add_dims(static_cast<int64_t>(values.size()));
    for (int64_t v : values) tensor.add_int64_data(v);
    return tensor;
  }

  static onnx::AttributeProto IntAttr(const std::string& name, int64_t value) {
    onnx::AttributeProto attribute;
    attribute.set_name(name);
    attribute.set_type(onnx::AttributeProto::INT);
    attribute.set_i(value);
    return attribute;
  }

  static void Drop(NodeProto* node, const std::string& name) {
    for (int i = 0; i < node->attribute_size(); ++i) {
      if (node->attribute(i).name() == name) {
        node->mutable_attribute()->DeleteSubrange(i, 1);
        return;
      }
    }
  }

  // Reads operand k of the given nodes shifted by a constant.
  void Shifted(const std::string& name, const std::vector<NodeId>& where, int k, int64_t by) {
    int count = 0;
    Add(name, {Ints("mutant.by", {by})}, [&](NodeId n, NodeProto* node, auto* before) {
      if (std::find(where.begin(), where.end(), n) == where.end()) return;
      const std::string moved = fmt::format("mutant.moved{}", count++);
      before->push_back(Make("Add", {node->input(k), "mutant.by"}, moved));
      node->set_input(k, moved);
    });
  }

  // Sequence 0's number for all sequences.
  void OfFirst(const std::string& name, const std::vector<NodeId>& where, int k) {
    int count = 0;
    Add(name, {Ints("mutant.0", {0}), Ints("mutant.1", {1})},
        [&](NodeId n, NodeProto* node, auto* before) {
          if (std::find(where.begin(), where.end(), n) == where.end()) return;
          const std::string id = fmt::format("mutant.{}.", count++);
          before->push_back(Make("Slice", {node->input(k), "mutant.0", "mutant.1"}, id + "first"));
          before->push_back(Make("Shape", {node->input(k)}, id + "shape"));
          before->push_back(Make("Expand", {id + "first", id + "shape"}, id + "all"));
          node->set_input(k, id + "all");
        });
  }

  void WriteMutants() {
    const NodeId last = scatters_.back();
    if (Input(last, kIndices) != kNoValue) {
      Shifted("write index + 1", {last}, kIndices, 1);
      Add("write index dropped", {}, [&](NodeId n, NodeProto* node, auto*) {
        if (n == last) node->mutable_input()->DeleteSubrange(kIndices, 1);
      });
      if (limits_.ragged) OfFirst("write index of sequence 0", scatters_, kIndices);
    }
    Add("cache not written", {}, [&](NodeId n, NodeProto* node, auto*) {
      if (n != last) return;
      *node = Make("Identity", {node->input(kCache)}, node->output(0));
    });
  }

  void LengthMutants() {
    const NodeId last = attentions_.back();
    Shifted("valid length - 1", {last}, kNonpad, -1);
    Shifted("valid length + 1", {last}, kNonpad, 1);
    if (limits_.ragged) OfFirst("valid length of sequence 0", attentions_, kNonpad);
    if (limits_.many_tokens) {
      const bool causal = IntAttribute(graph_.node(last), "is_causal", 0) != 0;
      Add(causal ? "is_causal dropped" : "is_causal added", {},
          [&](NodeId n, NodeProto* node, auto*) {
            if (n != last) return;
            Drop(node, "is_causal");
            *node->add_attribute() = IntAttr("is_causal", causal ? 0 : 1);
          });
      // An explicit mask that is causal by itself makes the flag redundant.
      if (!causal && Input(last, kMask) != kNoValue) mutants_.pop_back();
    }
    if (Input(last, kMask) != kNoValue) MaskMutants(last);
  }

  void MaskMutants(NodeId last) {
    Add("mask dropped", {}, [&](NodeId n, NodeProto* node, auto*) {
      if (n == last) node->set_input(kMask, "");
    });
    Add("mask shifted by one key",
        {Ints("mutant.0", {0}), Ints("mutant.1", {1}), Ints("mutant.end", {INT64_MAX}),
         Ints("mutant.axis", {-1})},
        [&](NodeId n, NodeProto* node, auto* before) {
          if (n != last) return;
          const std::string mask = node->input(kMask);
          before->push_back(
              Make("Slice", {mask, "mutant.1", "mutant.end", "mutant.axis"}, "mutant.tail"));
          before->push_back(
              Make("Slice", {mask, "mutant.0", "mutant.1", "mutant.axis"}, "mutant.head"));
          NodeProto joined = Make("Concat", {"mutant.tail", "mutant.head"}, "mutant.mask");
          *joined.add_attribute() = IntAttr("axis", -1);
          before->push_back(std::move(joined));
          node->set_input(kMask, "mutant.mask");
        });
  }

  const TensorType& TypeOfCache(NodeId scatter) const {
    return graph_.type(graph_.inputs(scatter)[kCache]);
  }

  // The TensorScatter whose result reaches an operand through slices and transposes.
  std::optional<NodeId> ScatterBehind(ValueId v) const {
    while (v != kNoValue) {
      const NodeId n = graph_.producer(v);
      if (n == kNoNode) return std::nullopt;
      if (graph_.Is(n, "TensorScatter")) return n;
      if (!graph_.Is(n, "Slice") && !graph_.Is(n, "Transpose") && !graph_.Is(n, "Identity")) {
        return std::nullopt;
      }
      v = graph_.inputs(n)[0];
    }
    return std::nullopt;
  }

  void WiringMutants() {
    const NodeId last = attentions_.back();
    const auto key = ScatterBehind(Input(last, kKey)), value = ScatterBehind(Input(last, kValue));
    if (key && value && TypeOfCache(*key) == TypeOfCache(*value)) {
      Add("keys and values swapped", {}, [&](NodeId n, NodeProto* node, auto*) {
        if (n == last) node->mutable_input()->SwapElements(kKey, kValue);
      });
      Add("updates swapped", {}, [&](NodeId n, NodeProto* node, auto*) {
        if (n == *key) node->set_input(kUpdate, Name(*value, kUpdate));
        if (n == *value) node->set_input(kUpdate, Name(*key, kUpdate));
      });
      // Both updates must stand before both writes.
      if (!UpdatesFirst(*key, *value)) mutants_.pop_back();
    }
    if (attentions_.size() > 1) {
      const NodeId first = attentions_.front();
      const auto other = ScatterBehind(Input(first, kKey));
      if (key && other && TypeOfCache(*key) == TypeOfCache(*other)) {
        Add("keys of another layer", {}, [&](NodeId n, NodeProto* node, auto*) {
          if (n == last) node->set_input(kKey, Name(first, kKey));
        });
      }
    }
    if (value) {
      const std::string present = graph_.name(graph_.outputs(*value)[0]);
      const std::string past = Name(*value, kCache);
      Add("stale values", {}, [&](NodeId n, NodeProto* node, auto*) {
        if (n == *value) return;
        for (std::string& input : *node->mutable_input()) {
          if (input == present) input = past;
        }
      });
    }
    if (const auto heads = KeyHeads(last); heads && *heads > 1) {
      std::vector<int64_t> reversed(*heads);
      for (int64_t h = 0; h < *heads; ++h) reversed[h] = *heads - 1 - h;
      Add("key heads reversed", {Ints("mutant.heads", reversed)},
          [&](NodeId n, NodeProto* node, auto* before) {
            if (n != last) return;
            NodeProto gather = Make("Gather", {node->input(kKey), "mutant.heads"}, "mutant.key");
            *gather.add_attribute() = IntAttr("axis", 1);
            before->push_back(std::move(gather));
            node->set_input(kKey, "mutant.key");
          });
    }
  }

  bool UpdatesFirst(NodeId a, NodeId b) const {
    const NodeId first = std::min(a, b);
    for (NodeId n : {a, b}) {
      const NodeId made = graph_.producer(Input(n, kUpdate));
      if (made != kNoNode && made > first) return false;
    }
    return true;
  }

  std::optional<int64_t> KeyHeads(NodeId attention) const {
    const auto scatter = ScatterBehind(Input(attention, kKey));
    if (!scatter || !TypeOfCache(*scatter).shape) return std::nullopt;
    const auto& shape = *TypeOfCache(*scatter).shape;
    const int64_t axis = IntAttribute(graph_.node(*scatter), "axis", -2);
    if (shape.size() != 4 || (axis != 2 && axis != -2)) return std::nullopt;
    return shape[1].value;
  }

  void ArithmeticMutants() {
    const NodeId last = attentions_.back();
    const float scale = FloatAttribute(graph_.node(last), "scale", 0.0f);
    Add("scale doubled", {}, [&](NodeId n, NodeProto* node, auto*) {
      if (n != last) return;
      const auto size = HeadSize(last);
      const float usual =
          scale != 0.0f ? scale : 1.0f / std::sqrt(static_cast<float>(size.value_or(64)));
      Drop(node, "scale");
      onnx::AttributeProto attribute;
      attribute.set_name("scale");
      attribute.set_type(onnx::AttributeProto::FLOAT);
      attribute.set_f(2.0f * usual);
      *node->add_attribute() = attribute;
    });
    if (FloatAttribute(graph_.node(last), "softcap", 0.0f) != 0.0f) {
      Add("softcap dropped", {}, [&](NodeId n, NodeProto* node, auto*) {
        if (n == last) Drop(node, "softcap");
      });
    }
  }

  std::optional<int64_t> HeadSize(NodeId attention) const {
    const auto scatter = ScatterBehind(Input(attention, kKey));
    if (!scatter || !TypeOfCache(*scatter).shape) return std::nullopt;
    const auto& shape = *TypeOfCache(*scatter).shape;
    const int64_t axis = IntAttribute(graph_.node(*scatter), "axis", -2);
    // The head size is the last axis, or the one before where the sequence is last.
    return shape[shape.size() - (axis == 3 || axis == -1 ? 2 : 1)].value;
  }

  // Whatever else is computed from the write index: positions.
  void PositionMutant() {
    const ValueId index = Input(scatters_.front(), kIndices);
    if (index == kNoValue || !graph_.is_graph_input(index)) return;
    std::vector<std::pair<NodeId, int>> where;
    for (const Use& use : graph_.uses(index)) {
      if (use.kind != Use::Kind::kNodeInput || graph_.Is(use.node, "TensorScatter")) continue;
      if (!FeedsValidLength(use.node) && !FeedsMaskOnly(use.node)) {
        where.emplace_back(use.node, use.index);
      }
    }
    if (where.empty()) return;
    int count = 0;
    Add("positions + 1", {Ints("mutant.by", {1})}, [&](NodeId n, NodeProto* node, auto* before) {
      for (const auto& [node_id, k] : where) {
        if (node_id != n) continue;
        const std::string moved = fmt::format("mutant.moved{}", count++);
        before->push_back(Make("Add", {node->input(k), "mutant.by"}, moved));
        node->set_input(k, moved);
      }
    });
  }

  bool FeedsValidLength(NodeId n) const {
    for (const Use& use : graph_.uses(graph_.outputs(n)[0])) {
      if (use.kind == Use::Kind::kNodeInput && graph_.Is(use.node, "Attention") &&
          use.index == kNonpad) {
        return true;
      }
    }
    return false;
  }

  // Everything computed from n ends in masks.
  bool FeedsMaskOnly(NodeId n) const {
    std::vector<NodeId> stack = {n};
    std::vector<bool> seen(graph_.num_nodes(), false);
    while (!stack.empty()) {
      const NodeId at = stack.back();
      stack.pop_back();
      if (seen[at]) continue;
      seen[at] = true;
      for (ValueId v : graph_.outputs(at)) {
        if (v == kNoValue) continue;
        for (const Use& use : graph_.uses(v)) {
          if (use.kind != Use::Kind::kNodeInput) return false;
          if (graph_.Is(use.node, "Attention")) {
            if (use.index != kMask) return false;
          } else {
            stack.push_back(use.node);
          }
        }
      }
    }
    return true;
  }

  const Graph& graph_;
  const MutantLimits& limits_;
  std::vector<NodeId> scatters_, attentions_;
  std::vector<Mutant> mutants_;
};

}  // namespace

std::vector<Mutant> MakeMutants(const Graph& graph, const MutantLimits& limits) {
  return Maker(graph, limits).Run();
}

}  // namespace kvlift
