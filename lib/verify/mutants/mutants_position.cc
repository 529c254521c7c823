// Mutants of positions: of values that are computed from lengths and do not say where a cache is
// written, which keys are valid, or what a mask hides.
#include <set>
#include <utility>
#include <vector>

#include "verify/mutants/mutant_kinds.h"

namespace kvlift {
namespace {

using onnx::NodeProto;

class PositionMutants {
 public:
  PositionMutants(MutantMaker& maker, const MutantSites& sites) : m_(maker), s_(sites) {}

  void Run() {
    m_.Group("position");
    FromIndex();
    FromInputs();
    OfRotation();
  }

 private:
  using Places = std::set<std::pair<NodeId, int>>;

  // Changes the readers of the write index that compute positions from it.
  void FromIndex() {
    if (s_.scatters().empty()) return;
    const Graph& graph = s_.graph();
    const ValueId index = s_.Input(s_.scatters().front(), kIndicesOperand);
    if (index == kNoValue || !graph.is_graph_input(index)) return;
    Places where;
    for (const Use& use : graph.uses(index)) {
      if (use.kind != Use::Kind::kNodeInput || graph.Is(use.node, "TensorScatter")) continue;
      if (!FeedsValidLength(use.node) && !FeedsMaskOnly(use.node)) {
        where.emplace(use.node, use.index);
      }
    }
    if (where.empty()) return;
    Moved("positions + 1", where, index);
    Changed("positions without the past", where, index, "Sub");
    if (s_.limits().ragged) OfFirst("positions of sequence 0", where, index);
  }

  // Changes each input of the host that holds lengths or positions.
  void FromInputs() {
    const Graph& graph = s_.graph();
    for (const std::string& name : s_.limits().positions) {
      const ValueId v = graph.Find(name);
      if (v == kNoValue) continue;
      Places where;
      for (const Use& use : graph.uses(v)) {
        if (use.kind == Use::Kind::kNodeInput && !graph.Is(use.node, "Shape")) {
          where.emplace(use.node, use.index);
        }
      }
      if (where.empty()) continue;
      const bool total = s_.limits().totals.count(name) > 0;
      Moved(name + " + 1", where, v);
      if (total) m_.MarkAsGuard();
    }
  }

  void OfRotation() {
    const Graph& graph = s_.graph();
    for (NodeId rotation = 0; rotation < graph.num_nodes(); ++rotation) {
      if (!graph.Is(rotation, "RotaryEmbedding")) continue;
      m_.Add("cosines and sines exchanged", {}, [&](NodeId n, NodeProto* node, auto*) {
        if (n == rotation) std::swap(*node->mutable_input(1), *node->mutable_input(2));
      });
      return;
    }
  }

  void Read(const Places& where, const std::string& value, NodeId n, NodeProto* node) {
    for (int k = 0; k < node->input_size(); ++k) {
      if (where.count({n, k}) > 0) node->set_input(k, value);
    }
  }

  static bool Any(const Places& where, NodeId n) {
    const auto it = where.lower_bound({n, 0});
    return it != where.end() && it->first == n;
  }

  void Moved(const std::string& name, const Places& where, ValueId v) {
    const TensorType& type = s_.graph().type(v);
    onnx::TensorProto by = MutantMaker::Scalar("mutant.by", type.elem_type, 1);
    bool made = false;
    m_.Add(name, {by}, [&](NodeId n, NodeProto* node, auto* before) {
      if (!Any(where, n)) return;
      if (!made) {
        before->push_back(
            MutantMaker::Make("Add", {s_.graph().name(v), "mutant.by"}, "mutant.moved"));
      }
      made = true;
      Read(where, "mutant.moved", n, node);
    });
  }

  // Replaces the value by the result of `op` on the value twice: Sub gives zeros.
  void Changed(const std::string& name, const Places& where, ValueId v, const std::string& op) {
    bool made = false;
    m_.Add(name, {}, [&](NodeId n, NodeProto* node, auto* before) {
      if (!Any(where, n)) return;
      const std::string& read = s_.graph().name(v);
      if (!made) before->push_back(MutantMaker::Make(op, {read, read}, "mutant.moved"));
      made = true;
      Read(where, "mutant.moved", n, node);
    });
  }

  void OfFirst(const std::string& name, const Places& where, ValueId v) {
    bool made = false;
    m_.Add(name, {MutantMaker::Ints("mutant.0", {0}), MutantMaker::Ints("mutant.1", {1})},
           [&](NodeId n, NodeProto* node, auto* before) {
             if (!Any(where, n)) return;
             const std::string& read = s_.graph().name(v);
             if (!made) {
               before->push_back(
                   MutantMaker::Make("Slice", {read, "mutant.0", "mutant.1"}, "mutant.first"));
               before->push_back(MutantMaker::Make("Shape", {read}, "mutant.shape"));
               before->push_back(
                   MutantMaker::Make("Expand", {"mutant.first", "mutant.shape"}, "mutant.moved"));
             }
             made = true;
             Read(where, "mutant.moved", n, node);
           });
  }

  bool FeedsValidLength(NodeId n) const {
    const Graph& graph = s_.graph();
    for (const Use& use : graph.uses(graph.outputs(n)[0])) {
      if (use.kind == Use::Kind::kNodeInput && graph.Is(use.node, "Attention") &&
          use.index == kNonpadOperand) {
        return true;
      }
    }
    return false;
  }

  // Whether all that is computed from the results of n is a mask, a number of valid keys, or the
  // end of a Slice.
  bool FeedsMaskOnly(NodeId n) const {
    const Graph& graph = s_.graph();
    std::vector<NodeId> stack = {n};
    std::vector<bool> seen(graph.num_nodes(), false);
    while (!stack.empty()) {
      const NodeId at = stack.back();
      stack.pop_back();
      if (seen[at]) continue;
      seen[at] = true;
      for (ValueId v : graph.outputs(at)) {
        if (v == kNoValue) continue;
        for (const Use& use : graph.uses(v)) {
          if (use.kind != Use::Kind::kNodeInput) return false;
          if (graph.Is(use.node, "Attention")) {
            if (use.index != kMaskOperand && use.index != kNonpadOperand) return false;
          } else if (!graph.Is(use.node, "Slice") || use.index != 2) {
            stack.push_back(use.node);
          }
        }
      }
    }
    return true;
  }

  MutantMaker& m_;
  const MutantSites& s_;
};

}  // namespace

void AddPositionMutants(MutantMaker& maker, const MutantSites& sites) {
  PositionMutants(maker, sites).Run();
}

}  // namespace kvlift
