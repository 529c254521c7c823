// Decides which caches may be updated in place, and orders the nodes so that this is safe.
#include <algorithm>
#include <functional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "exec/plan.h"
#include "fmt/format.h"

namespace kvlift::exec {
namespace {

bool IsView(const OpDef* def) { return def != nullptr && def->view == ViewKind::kWhole; }

// Nodes and their order constraints: data flow, captures, and what Schedule adds.
class Precedence {
 public:
  explicit Precedence(const Graph& graph) : graph_(graph), after_(graph.num_nodes()) {
    for (NodeId n = 0; n < graph.num_nodes(); ++n) {
      for (const ValueId v : graph.outputs(n)) {
        if (v == kNoValue) continue;
        for (const Use& use : graph.uses(v)) {
          if (use.node != kNoNode) after_[n].push_back(use.node);
        }
      }
    }
  }

  void Add(NodeId before, NodeId after) { after_[before].push_back(after); }

  bool Reaches(NodeId from, NodeId to) const {
    if (from == to) return true;
    std::vector<bool> seen(after_.size(), false);
    std::vector<NodeId> stack = {from};
    seen[from] = true;
    while (!stack.empty()) {
      const NodeId n = stack.back();
      stack.pop_back();
      for (const NodeId next : after_[n]) {
        if (next == to) return true;
        if (!seen[next]) {
          seen[next] = true;
          stack.push_back(next);
        }
      }
    }
    return false;
  }

  // Topological; of the nodes that are ready the one with the smallest id goes first.
  std::vector<NodeId> Sorted() const {
    std::vector<int> waiting(after_.size(), 0);
    for (const auto& next : after_) {
      for (const NodeId n : next) ++waiting[n];
    }
    std::priority_queue<NodeId, std::vector<NodeId>, std::greater<>> ready;
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (waiting[n] == 0) ready.push(n);
    }
    std::vector<NodeId> order;
    while (!ready.empty()) {
      const NodeId n = ready.top();
      ready.pop();
      order.push_back(n);
      for (const NodeId next : after_[n]) {
        if (--waiting[next] == 0) ready.push(next);
      }
    }
    return order;
  }

 private:
  const Graph& graph_;
  std::vector<std::vector<NodeId>> after_;
};

class AliasAnalysis {
 public:
  AliasAnalysis(const Graph& graph, absl::Span<const OpDef* const> defs, Precedence& order)
      : graph_(graph), defs_(defs), order_(order) {}

  void Decide(PairPlan& pair) {
    AliasDecision& decision = pair.decision;
    decision.aliased = false;
    past_ = ClassOf(pair.past);
    const ValueId root = RootOf(pair.present);
    if (root == pair.past) {
      decision.aliased = true;
      decision.reason = "safe";  // passed through unwritten
      AddReaders(kNoNode, decision);
      return;
    }
    const NodeId writer = graph_.producer(root);
    decision.reason = WriterProblem(pair, root, writer);
    const bool is_writer = decision.reason.empty();
    if (!is_writer && Appends(writer, root)) {
      pair.grower = writer;
      decision.reason += ", but appends while there is room";
    }
    AddReaders(is_writer ? writer : kNoNode, decision);
    if (!is_writer) return;
    decision.reason = EscapeProblem();
    if (!decision.reason.empty()) return;
    decision.reason = ReaderProblem(writer);
    if (!decision.reason.empty()) return;
    for (const NodeId reader : readers_) order_.Add(reader, writer);
    decision.aliased = true;
    decision.reason = "safe";
    pair.writer = writer;
  }

 private:
  // v and all views of it.
  absl::flat_hash_set<ValueId> ClassOf(ValueId v) const {
    absl::flat_hash_set<ValueId> members = {v};
    std::vector<ValueId> stack = {v};
    while (!stack.empty()) {
      const ValueId m = stack.back();
      stack.pop_back();
      for (const Use& use : graph_.uses(m)) {
        if (use.kind != Use::Kind::kNodeInput || use.index != 0 || !IsView(defs_[use.node])) {
          continue;
        }
        const ValueId out = graph_.outputs(use.node)[0];
        if (out != kNoValue && members.insert(out).second) stack.push_back(out);
      }
    }
    return members;
  }

  ValueId RootOf(ValueId v) const {
    while (graph_.producer(v) != kNoNode && graph_.output_index(v) == 0 &&
           IsView(defs_[graph_.producer(v)])) {
      v = graph_.inputs(graph_.producer(v))[0];
    }
    return v;
  }

  std::string Describe(NodeId n) const {
    return fmt::format("{} \"{}\"", graph_.node(n).op_type(), graph_.NodeName(n));
  }

  std::string WriterProblem(const PairPlan& pair, ValueId root, NodeId writer) const {
    const std::string& output = graph_.name(pair.present);
    if (writer == kNoNode) {
      return fmt::format("\"{}\" is no result of a node", output);
    }
    const OpDef* def = defs_[writer];
    const std::string& op = graph_.node(writer).op_type();
    const bool scatter = op == "TensorScatter" || op == "ScatterND" || op == "ScatterElements";
    if (def == nullptr || !scatter || def->inplace_input != 0 || graph_.output_index(root) != 0) {
      return fmt::format("\"{}\" is made by {}, which does not update in place", output,
                         Describe(writer));
    }
    const absl::Span<const ValueId> inputs = graph_.inputs(writer);
    if (inputs.empty() || !past_.contains(inputs[0])) {
      return fmt::format("{} does not update the past", Describe(writer));
    }
    for (size_t i = 1; i < inputs.size(); ++i) {
      if (past_.contains(inputs[i])) {
        return fmt::format("{} reads the past as input {} too", Describe(writer), i);
      }
    }
    return "";
  }

  // Whether what the node makes starts with the past. Rows that the past has stay as they are, so
  // that nobody who reads them has to go first.
  bool Appends(NodeId writer, ValueId result) const {
    return writer != kNoNode && defs_[writer] != nullptr && graph_.Is(writer, "Concat") &&
           graph_.output_index(result) == 0 && past_.contains(graph_.inputs(writer)[0]);
  }

  std::string EscapeProblem() const {
    std::vector<ValueId> members(past_.begin(), past_.end());
    std::sort(members.begin(), members.end());
    for (const ValueId v : members) {
      if (graph_.is_graph_output(v)) {
        return fmt::format("the past is graph output \"{}\"", graph_.name(v));
      }
    }
    return "";
  }

  std::string ReaderProblem(NodeId writer) const {
    for (const NodeId reader : readers_) {
      if (order_.Reaches(writer, reader)) {
        return fmt::format("{} reads the past after the write by {}", Describe(reader),
                           Describe(writer));
      }
    }
    return "";
  }

  void AddReaders(NodeId writer, AliasDecision& decision) {
    absl::flat_hash_set<NodeId> nodes;
    for (const ValueId v : past_) {
      for (const Use& use : graph_.uses(v)) {
        if (use.node == kNoNode || use.node == writer) continue;
        const bool view =
            use.kind == Use::Kind::kNodeInput && use.index == 0 && IsView(defs_[use.node]);
        if (!view) nodes.insert(use.node);
      }
    }
    readers_.assign(nodes.begin(), nodes.end());
    std::sort(readers_.begin(), readers_.end());
    decision.readers.clear();
    for (const NodeId n : readers_) decision.readers.push_back(graph_.NodeName(n));
  }

  const Graph& graph_;
  absl::Span<const OpDef* const> defs_;
  Precedence& order_;
  absl::flat_hash_set<ValueId> past_;  // the past and its views
  std::vector<NodeId> readers_;
};

}  // namespace

absl::StatusOr<std::vector<PairPlan>> ResolvePairs(const Graph& graph,
                                                   absl::Span<const CachePair> caches) {
  std::vector<PairPlan> pairs;
  absl::flat_hash_set<ValueId> taken_inputs, taken_outputs;
  const auto position = [](absl::Span<const ValueId> list, ValueId v) {
    const auto it = std::find(list.begin(), list.end(), v);
    return v == kNoValue || it == list.end() ? -1 : static_cast<int>(it - list.begin());
  };
  for (const CachePair& cache : caches) {
    PairPlan pair;
    pair.past = graph.Find(cache.input);
    pair.present = graph.Find(cache.output);
    pair.input_index = position(graph.graph_inputs(), pair.past);
    pair.output_index = position(graph.graph_outputs(), pair.present);
    if (pair.input_index < 0 || pair.output_index < 0) {
      const bool in = pair.input_index < 0;
      return absl::InvalidArgumentError(fmt::format("cache pair: \"{}\" is no graph {}",
                                                    in ? cache.input : cache.output,
                                                    in ? "input" : "output"));
    }
    if (!taken_inputs.insert(pair.past).second || !taken_outputs.insert(pair.present).second) {
      return absl::InvalidArgumentError(
          fmt::format("cache pair \"{}\" -> \"{}\": used twice", cache.input, cache.output));
    }
    pair.decision.pair = cache;
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

std::vector<NodeId> Schedule(const Graph& graph, absl::Span<const OpDef* const> defs,
                             AliasMode mode, std::vector<PairPlan>& pairs) {
  Precedence order(graph);
  AliasAnalysis analysis(graph, defs, order);
  for (PairPlan& pair : pairs) {
    if (mode == AliasMode::kOff) {
      pair.decision.reason = "aliasing is off";
    } else {
      analysis.Decide(pair);
    }
  }
  return order.Sorted();
}

}  // namespace kvlift::exec
