// Mutants of attentions that are not fused into an operator, and of RoPE on keys in front of the
// cache.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "verify/mutants/mutant_kinds.h"

namespace kvlift {
namespace {

using onnx::NodeProto;
using onnx::TensorProto;

// The number of nodes through which RoPE is searched for.
constexpr int kMostSteps = 12;

class UnfusedMutants {
 public:
  UnfusedMutants(MutantMaker& maker, const MutantSites& sites)
      : m_(maker), s_(sites), graph_(sites.graph()) {}

  void Run() {
    m_.Group("position");
    // Values have no RoPE; the last write of rotated rows is changed, or all of them.
    const auto& written = s_.scatters();
    for (auto it = written.rbegin(); it != written.rend(); ++it) {
      if (RotatedLate(*it) && !s_.limits().everywhere) break;
    }
    std::vector<NodeId> places = Softmaxes();
    if (!places.empty() && !s_.limits().everywhere) places = {places.back()};
    for (NodeId n : places) {
      m_.Group("arithmetic");
      Arithmetic(n);
      m_.Group("heads");
      Heads(n);
    }
  }

 private:
  bool Is(NodeId n, std::initializer_list<const char*> ops) const {
    return n != kNoNode &&
           std::any_of(ops.begin(), ops.end(), [&](const char* op) { return graph_.Is(n, op); });
  }

  NodeId Maker(NodeId n, int k) const {
    const ValueId v = s_.Input(n, k);
    return v == kNoValue ? kNoNode : graph_.producer(v);
  }

  // Returns the Softmax nodes that depend on a written cache.
  std::vector<NodeId> Softmaxes() const {
    std::set<NodeId> reached;
    std::vector<NodeId> stack = s_.scatters();
    while (!stack.empty()) {
      const NodeId n = stack.back();
      stack.pop_back();
      if (!reached.insert(n).second) continue;
      for (ValueId v : graph_.outputs(n)) {
        if (v == kNoValue) continue;
        for (const Use& use : graph_.uses(v)) {
          if (use.kind == Use::Kind::kNodeInput) stack.push_back(use.node);
        }
      }
    }
    std::vector<NodeId> found;
    for (NodeId n : reached) {
      if (graph_.Is(n, "Softmax")) found.push_back(n);
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  std::string LabelOf(NodeId n) const {
    return s_.limits().everywhere ? " (" + graph_.name(graph_.outputs(n)[0]) + ")" : "";
  }

  void Times(const std::string& name, NodeId n, double factor) {
    const int32_t type = s_.TypeOf(s_.Name(n, 0));
    if (type != TensorProto::FLOAT && type != TensorProto::FLOAT16) return;
    m_.Replaced(name + LabelOf(n), {MutantMaker::Scalar("mutant.factor", type, factor)}, {n}, 0,
                [&](NodeId, const NodeProto& node, const std::string& id, auto* before) {
                  before->push_back(
                      MutantMaker::Make("Mul", {node.input(0), "mutant.factor"}, id + "scaled"));
                  return id + "scaled";
                });
  }

  void Rounded(const std::string& name, NodeId n, bool result) {
    if (s_.TypeOf(s_.Name(n, 0)) != TensorProto::FLOAT) return;
    const auto to = [](int64_t type) { return MutantMaker::IntAttr("to", type); };
    m_.Add(name + LabelOf(n), {}, [&](NodeId at, NodeProto* node, auto* before) {
      if (at != n) return;
      if (result) {
        const std::string own = node->output(0);
        node->set_output(0, "mutant.exact");
        m_.After(
            MutantMaker::Make("Cast", {"mutant.exact"}, "mutant.half", {to(TensorProto::FLOAT16)}));
        m_.After(MutantMaker::Make("Cast", {"mutant.half"}, own, {to(TensorProto::FLOAT)}));
        return;
      }
      before->push_back(
          MutantMaker::Make("Cast", {node->input(0)}, "mutant.half", {to(TensorProto::FLOAT16)}));
      before->push_back(
          MutantMaker::Make("Cast", {"mutant.half"}, "mutant.float", {to(TensorProto::FLOAT)}));
      node->set_input(0, "mutant.float");
    });
  }

  void Arithmetic(NodeId n) {
    Times("scores twice as large", n, 2);
    Times("scores half as large", n, 0.5);
    Rounded("weights rounded to half", n, true);
    if (!s_.limits().many_tokens) return;
    const auto axis = MutantMaker::IntAttr("axis", -2);
    m_.Add("softmax over the queries" + LabelOf(n), {}, [&](NodeId at, NodeProto* node, auto*) {
      if (at != n) return;
      MutantMaker::Drop(node, "axis");
      *node->add_attribute() = axis;
    });
  }

  // Each head takes the scores of another head.
  void Heads(NodeId n) {
    const SeenValue* scores = s_.Seen(s_.Name(n, 0));
    if (scores == nullptr || scores->shape.size() != 4 || scores->shape[1] < 2) return;
    m_.Replaced(
        "scores of heads reversed" + LabelOf(n),
        {MutantMaker::Ints("mutant.from", {-1}),
         MutantMaker::Ints("mutant.to", {-scores->shape[1] - 1}),
         MutantMaker::Ints("mutant.axis", {1}), MutantMaker::Ints("mutant.step", {-1})},
        {n}, 0, [&](NodeId, const NodeProto& node, const std::string& id, auto* before) {
          before->push_back(MutantMaker::Make(
              "Slice", {node.input(0), "mutant.from", "mutant.to", "mutant.axis", "mutant.step"},
              id + "turned"));
          return id + "turned";
        });
  }

  // Whether node b computes its result from v by moves, slices, negation and products only.
  bool Moves(NodeId b, ValueId v, int depth) const {
    if (b == kNoNode || depth > kMostSteps) return false;
    if (!Is(b, {"Concat", "Neg", "Slice", "Split", "Gather", "Reshape", "Transpose", "Unsqueeze",
                "Squeeze", "Identity", "Cast", "Mul"})) {
      return false;
    }
    for (ValueId input : graph_.inputs(b)) {
      if (input == v) return true;
      if (input != kNoValue && Moves(graph_.producer(input), v, depth + 1)) return true;
    }
    return false;
  }

  // Returns the value x that a node applies RoPE to, as RotaryEmbedding or as x * cos +
  // half-rotated x * sin; kNoValue if the node does not.
  ValueId RotatedBy(NodeId n) const {
    if (Is(n, {"RotaryEmbedding"})) return s_.Input(n, 0);
    const NodeId a = Is(n, {"Add"}) ? Maker(n, 0) : kNoNode, b = a == kNoNode ? a : Maker(n, 1);
    if (!Is(a, {"Mul"}) || !Is(b, {"Mul"})) return kNoValue;
    for (const auto& [one, other] : {std::pair(a, b), std::pair(b, a)}) {
      for (ValueId x : graph_.inputs(one)) {
        if (graph_.constant(x) == nullptr && graph_.producer(x) != kNoNode &&
            std::any_of(graph_.inputs(other).begin(), graph_.inputs(other).end(), [&](ValueId y) {
              return y != x && y != kNoValue && Moves(graph_.producer(y), x, 0);
            })) {
          return x;
        }
      }
    }
    return kNoValue;
  }

  // The cache receives keys without RoPE, while the attention of the same step reads the new keys
  // with RoPE. False if the update has no RoPE.
  bool RotatedLate(NodeId scatter) {
    std::vector<NodeId> chain;  // nodes between RoPE and the update, the last one first
    NodeId at = Maker(scatter, kUpdateOperand);
    while (Is(at, {"Transpose", "Reshape", "Identity", "Unsqueeze", "Squeeze"}) &&
           chain.size() < kMostSteps) {
      chain.push_back(at);
      at = Maker(at, 0);
    }
    const ValueId plain = at == kNoNode ? kNoValue : RotatedBy(at);
    // If nodes stand between the write and the output, the output would be what attention reads.
    if (plain == kNoValue || !graph_.is_graph_output(graph_.outputs(scatter)[0])) return false;
    const std::string present = graph_.name(graph_.outputs(scatter)[0]);
    m_.Add("rotated behind the cache" + s_.Label(scatter), {},
           [&](NodeId n, NodeProto* node, auto* before) {
             if (n != scatter) {
               for (std::string& input : *node->mutable_input()) {
                 if (input == present) input = "mutant.read";
               }
               return;
             }
             NodeProto read = *node;
             read.set_name("mutant.read");
             read.set_output(0, "mutant.read");
             std::string value = graph_.name(plain);
             for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
               NodeProto copy = graph_.node(*it);
               copy.set_name("mutant.plain." + copy.name());
               copy.set_input(0, value);
               value = "mutant.plain." + copy.output(0);
               copy.set_output(0, value);
               before->push_back(copy);
             }
             node->set_input(kUpdateOperand, value);
             m_.After(read);
           });
    return true;
  }

  MutantMaker& m_;
  const MutantSites& s_;
  const Graph& graph_;
};

}  // namespace

void AddUnfusedMutants(MutantMaker& maker, const MutantSites& sites) {
  UnfusedMutants(maker, sites).Run();
}

}  // namespace kvlift
