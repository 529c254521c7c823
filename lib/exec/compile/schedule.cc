// Decides which caches are updated in place, and orders the nodes so that this is safe.
#include <algorithm>
#include <functional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "exec/compile/plan.h"
#include "fmt/format.h"

namespace kvlift::exec {
namespace {

bool IsView(const OpDef* def) { return def != nullptr && def->view == ViewKind::kWhole; }

// The nodes and their order constraints: data flow, captures, and those that Schedule adds.
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

  // Returns a topological order; of the nodes that are ready, the one with the smallest id goes
  // first.
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
    // The writes from first to last. Each one's buffer is the past or the result of the writer
    // before it.
    std::vector<Write> writes;
    decision.reason = FindWrites(pair, root, &writes);
    const NodeId writer = graph_.producer(root);
    const bool is_writer = decision.reason.empty();
    if (!is_writer && Appends(writer, root)) {
      pair.grower = writer;
      decision.reason += ", but appends while there is room";
    }
    AddReaders(is_writer ? writes.front().writer : kNoNode, decision);
    if (!is_writer) return;
    for (const Write& write : writes) {
      decision.reason = WhyNot(write);
      if (!decision.reason.empty()) return;
    }
    decision.aliased = true;
    decision.reason = "safe";
    pair.writer = writes.back().writer;
    for (size_t k = 1; k < writes.size(); ++k) pair.written.push_back(writes[k].buffer);
  }

 private:
  // A node and the buffer that it writes: the past, or the result of the writer before it.
  struct Write {
    NodeId writer = kNoNode;
    ValueId buffer = kNoValue;
  };
  using Values = absl::flat_hash_set<ValueId>;

  // Returns v and all views of it. With `parts` it includes results of Slice and similar operators,
  // which may be views of some rows.
  Values ClassOf(ValueId v, bool parts = false) const {
    Values members = {v};
    std::vector<ValueId> stack = {v};
    while (!stack.empty()) {
      const ValueId m = stack.back();
      stack.pop_back();
      for (const Use& use : graph_.uses(m)) {
        if (use.kind != Use::Kind::kNodeInput || use.index != 0) continue;
        const OpDef* def = defs_[use.node];
        const bool part = parts && def != nullptr && def->part != nullptr;
        if (!IsView(def) && !part) continue;
        for (const ValueId out : graph_.outputs(use.node)) {
          if (out != kNoValue && members.insert(out).second) stack.push_back(out);
        }
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

  bool WritesInPlace(ValueId result) const {
    const NodeId n = graph_.producer(result);
    if (n == kNoNode || defs_[n] == nullptr || graph_.inputs(n).empty()) return false;
    const std::string& op = graph_.node(n).op_type();
    const bool scatter = op == "TensorScatter" || op == "ScatterND" || op == "ScatterElements";
    return scatter && defs_[n]->inplace_input == 0 && graph_.output_index(result) == 0 &&
           graph_.inputs(n)[0] != kNoValue;
  }

  // Lists the writes that lead from the past to the present. Returns an empty string, or why the
  // present is not written into the past.
  std::string FindWrites(const PairPlan& pair, ValueId root, std::vector<Write>* writes) const {
    const std::string& output = graph_.name(pair.present);
    const NodeId last = graph_.producer(root);
    if (last == kNoNode) return fmt::format("\"{}\" is no result of a node", output);
    for (ValueId v = root; v != pair.past; v = RootOf(graph_.inputs(graph_.producer(v))[0])) {
      if (!WritesInPlace(v)) {
        if (v != root) return fmt::format("{} does not update the past", Describe(last));
        return fmt::format("\"{}\" is made by {}, which does not update in place", output,
                           Describe(last));
      }
      const NodeId writer = graph_.producer(v);
      writes->insert(writes->begin(), {writer, RootOf(graph_.inputs(writer)[0])});
    }
    return "";
  }

  // Returns an empty string, or why the buffer cannot be written there. Adds constraints that its
  // readers run before the write.
  std::string WhyNot(const Write& write) {
    const bool is_past = graph_.is_graph_input(write.buffer);
    const Values members = ClassOf(write.buffer, /*parts=*/!is_past);
    const absl::Span<const ValueId> inputs = graph_.inputs(write.writer);
    for (size_t i = 1; i < inputs.size(); ++i) {
      if (members.contains(inputs[i])) {
        return fmt::format("{} reads {} as input {} too", Describe(write.writer),
                           is_past ? "the past" : graph_.name(write.buffer), i);
      }
    }
    if (std::string escape = EscapeProblem(members); !escape.empty()) return escape;
    const std::vector<NodeId> readers = ReadersOf(members, write.writer);
    for (const NodeId reader : readers) {
      if (order_.Reaches(write.writer, reader)) {
        return fmt::format("{} reads {} after the write by {}", Describe(reader),
                           is_past ? "the past" : graph_.name(write.buffer),
                           Describe(write.writer));
      }
    }
    for (const NodeId reader : readers) order_.Add(reader, write.writer);
    return "";
  }

  // Returns true if the node is a Concat whose first input is the past. It leaves the past's rows
  // unchanged, so readers of the past may run later.
  bool Appends(NodeId writer, ValueId result) const {
    return writer != kNoNode && defs_[writer] != nullptr && graph_.Is(writer, "Concat") &&
           graph_.output_index(result) == 0 && past_.contains(graph_.inputs(writer)[0]);
  }

  std::string EscapeProblem(const Values& buffer) const {
    std::vector<ValueId> members(buffer.begin(), buffer.end());
    std::sort(members.begin(), members.end());
    for (const ValueId v : members) {
      if (graph_.is_graph_output(v)) {
        return fmt::format("the past is graph output \"{}\"", graph_.name(v));
      }
    }
    return "";
  }

  // Returns the nodes besides the writer that read a member and are not views of it.
  std::vector<NodeId> ReadersOf(const Values& members, NodeId writer) const {
    absl::flat_hash_set<NodeId> nodes;
    for (const ValueId v : members) {
      for (const Use& use : graph_.uses(v)) {
        if (use.node == kNoNode || use.node == writer) continue;
        const bool view =
            use.kind == Use::Kind::kNodeInput && use.index == 0 && IsView(defs_[use.node]);
        if (!view) nodes.insert(use.node);
      }
    }
    std::vector<NodeId> readers(nodes.begin(), nodes.end());
    std::sort(readers.begin(), readers.end());
    return readers;
  }

  void AddReaders(NodeId writer, AliasDecision& decision) const {
    decision.readers.clear();
    for (const NodeId n : ReadersOf(past_, writer)) {
      decision.readers.push_back(graph_.NodeName(n));
    }
  }

  const Graph& graph_;
  absl::Span<const OpDef* const> defs_;
  Precedence& order_;
  Values past_;  // the past and its views
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
