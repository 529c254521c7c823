#include "proof/facts/guards.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Facts;
using sym::Kind;

class GuardReader {
 public:
  GuardReader(const GraphPair& pair, const Correspondence& twins)
      : graph_(pair.graph()), forms_(pair.forms()), pool_(forms_.pool()), twins_(twins) {}

  // Returns the condition that a node requires, or true.
  Expr Read(NodeId n) {
    const auto inputs = graph_.inputs(n);
    if (!graph_.Is(n, "TensorScatter") || inputs.size() < 3 || inputs[2] == kNoValue ||
        StringAttribute(graph_.node(n), "mode", "linear") != "linear") {
      return pool_.True();
    }
    const sym::Form buffer = forms_.Of(inputs[0]), rows = forms_.Of(inputs[1]);
    const auto rank = static_cast<int64_t>(buffer.shape.size());
    int64_t axis = IntAttribute(graph_.node(n), "axis", -2);
    if (axis < 0) axis += rank;
    if (!buffer.known_rank || rows.shape.size() != buffer.shape.size() || axis <= 0 ||
        axis >= rank) {
      return pool_.True();
    }
    const Expr sequence = pool_.Index(0);
    const Expr index =
        twins_.Translate(forms_.At(inputs[2], {sequence}, Facts{}), sequence, Facts{});
    const Expr capacity = twins_.Extent(buffer.shape[axis], sequence);
    const Expr length = twins_.Extent(rows.shape[axis], sequence);
    if (index == nullptr || capacity == nullptr || length == nullptr ||
        index->kind() != Kind::kSelect || sym::ContainsIndex(index->args()[0], 0)) {
      return pool_.True();
    }
    const auto outside = [&](Expr x) {
      const Expr end = pool_.Add(x, length);
      return pool_.Prove(pool_.Lt(capacity, end, Facts{}), Facts{}) == sym::Truth::kYes;
    };
    const Expr condition = index->args()[0];
    if (outside(index->args()[1])) return pool_.Not(condition);
    return outside(index->args()[2]) ? condition : pool_.True();
  }

 private:
  const Graph& graph_;
  sym::Forms& forms_;
  sym::Pool& pool_;
  const Correspondence& twins_;
};

}  // namespace

Expr GuardsOf(const GraphPair& pair, const Correspondence& twins) {
  sym::Pool& pool = pair.forms().pool();
  GuardReader reader(pair, twins);
  Expr all = pool.True();
  for (NodeId n = 0; n < pair.graph().num_nodes(); ++n) {
    if (pair.IsInAfter(n) && pair.IsNeeded(n)) all = pool.And(all, reader.Read(n));
  }
  return all;
}

}  // namespace kvlift
