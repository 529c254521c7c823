// Mutants of quantised caches: of the rounding of rows, and of the scales that rows are written and
// read with.
#include <optional>
#include <string>
#include <vector>

#include "verify/mutants/mutant_kinds.h"

namespace kvlift {
namespace {

using onnx::NodeProto;
using onnx::TensorProto;

constexpr int kScaleOperand = 1;

class QuantizedMutants {
 public:
  QuantizedMutants(MutantMaker& maker, const MutantSites& sites) : m_(maker), s_(sites) {
    for (const NodeId scatter : s_.scatters()) {
      const ValueId update = s_.Input(scatter, kUpdateOperand);
      const NodeId made = update == kNoValue ? kNoNode : graph().producer(update);
      if (made == kNoNode || !IsBlocked(made, "QuantizeLinear")) continue;
      writes_.push_back(made);
    }
    for (NodeId n = 0; n < graph().num_nodes(); ++n) {
      if (IsBlocked(n, "DequantizeLinear") && s_.ScatterBehind(s_.Input(n, 0))) {
        reads_.push_back(n);
      }
    }
  }

  void Run() {
    m_.Group("quantisation");
    for (const NodeId n : Places(writes_)) Write(n);
    for (const NodeId n : Places(reads_)) Read(n);
  }

 private:
  const Graph& graph() const { return s_.graph(); }

  bool IsBlocked(NodeId n, std::string_view op) const {
    return graph().Is(n, op) && IntAttribute(graph().node(n), "block_size", 0) > 0;
  }

  std::vector<NodeId> Places(const std::vector<NodeId>& all) const {
    if (s_.limits().everywhere || all.empty()) return all;
    return {all.back()};
  }

  void Write(NodeId n) {
    const ValueId scale = s_.Input(n, kScaleOperand);
    const NodeId maker = graph().producer(scale);
    if (maker != kNoNode) {
      m_.Add("scales twice as large", {MutantMaker::Scalar("mutant.two", TensorProto::FLOAT, 2)},
             [&](NodeId k, NodeProto* node, auto*) {
               if (k != maker) return;
               const std::string name = node->output(0);
               node->set_output(0, "mutant.scale");
               m_.After(MutantMaker::Make("Mul", {"mutant.scale", "mutant.two"}, name));
             });
    }
    if (IntAttribute(graph().node(n), "output_dtype", 0) != TensorProto::INT8) return;
    // Cast rounds towards zero. The scale of each element is what dequantising a 1 gives.
    m_.Add(
        "rounded towards zero",
        {MutantMaker::Scalar("mutant.zero", TensorProto::FLOAT, 0),
         MutantMaker::Scalar("mutant.one", TensorProto::FLOAT, 1)},
        [&](NodeId k, NodeProto* node, std::vector<NodeProto>* before) {
          if (k != n) return;
          const std::string rows = node->input(0), scales = node->input(1);
          NodeProto spread = *node;
          MutantMaker::Drop(&spread, "output_dtype");
          before->push_back(MutantMaker::Make("Mul", {rows, "mutant.zero"}, "mutant.zeros"));
          before->push_back(
              MutantMaker::Make("Add", {"mutant.zeros", "mutant.one"}, "mutant.ones"));
          before->push_back(MutantMaker::Make("Cast", {"mutant.ones"}, "mutant.whole",
                                              {MutantMaker::IntAttr("to", TensorProto::INT8)}));
          spread.set_op_type("DequantizeLinear");
          spread.set_name("");
          spread.set_input(0, "mutant.whole");
          spread.set_output(0, "mutant.scales");
          before->push_back(spread);
          before->push_back(MutantMaker::Make("Div", {rows, "mutant.scales"}, "mutant.quotient"));
          *node = MutantMaker::Make("Cast", {"mutant.quotient"}, node->output(0),
                                    {MutantMaker::IntAttr("to", TensorProto::INT8)});
        });
  }

  void Read(NodeId n) {
    const auto axis = IntAttribute(graph().node(n), "axis", -1);
    m_.Replaced(
        "scales of the next group",
        {MutantMaker::Ints("mutant.first", {0}), MutantMaker::Ints("mutant.second", {1}),
         MutantMaker::Ints("mutant.end", {1 << 30}), MutantMaker::Ints("mutant.axis", {axis})},
        {n}, kScaleOperand,
        [&](NodeId, const NodeProto& node, const std::string& id, auto* before) {
          const std::string& scale = node.input(kScaleOperand);
          before->push_back(MutantMaker::Make(
              "Slice", {scale, "mutant.second", "mutant.end", "mutant.axis"}, id + "next"));
          before->push_back(MutantMaker::Make(
              "Slice", {scale, "mutant.first", "mutant.second", "mutant.axis"}, id + "first"));
          before->push_back(MutantMaker::Make("Concat", {id + "next", id + "first"}, id + "rolled",
                                              {MutantMaker::IntAttr("axis", axis)}));
          return id + "rolled";
        });
    if (OneGroup(n)) m_.Equivalent("a row has one scale");
    m_.Replaced("scales without what was written", {}, {n}, kScaleOperand,
                [&](NodeId, const NodeProto& node, const std::string& id, auto* before) {
                  const std::string& scale = node.input(kScaleOperand);
                  before->push_back(MutantMaker::Make("Sub", {scale, scale}, id + "zeros"));
                  return id + "zeros";
                });
  }

  bool OneGroup(NodeId n) const {
    const auto scatter = s_.ScatterBehind(s_.Input(n, 0));
    const auto shape = s_.CacheType(*scatter).shape;
    return shape && shape->back().value &&
           *shape->back().value == IntAttribute(graph().node(n), "block_size", 0);
  }

  MutantMaker& m_;
  const MutantSites& s_;
  std::vector<NodeId> writes_, reads_;
};

}  // namespace

void AddQuantizedMutants(MutantMaker& maker, const MutantSites& sites) {
  QuantizedMutants(maker, sites).Run();
}

}  // namespace kvlift
