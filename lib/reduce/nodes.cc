// The reductions of nodes and outputs.
#include <algorithm>

#include "reduce/part.h"
#include "reduce/reductions.h"

namespace kvlift {
namespace {

using Names = absl::flat_hash_set<std::string>;

// Returns whether a graph output has this name in the (converted) model.
bool IsOutput(const SubjectGraphs& graphs, const SharedValue& value) {
  return graphs.subject().is_pair() ? graphs.after().is_graph_output(value.after)
                                    : graphs.before().is_graph_output(value.before);
}

// Adds the shared values that nodes of one graph read in order to compute `from`, where they are
// not in `gone`: those that are reached from `from` through nodes without another such value.
void AddFrontier(const SubjectGraphs& graphs, const Graph& graph, const Names& gone,
                 std::vector<ValueId> from, Names* frontier) {
  absl::flat_hash_set<ValueId> seen(from.begin(), from.end());
  while (!from.empty()) {
    const NodeId n = graph.producer(from.back());
    from.pop_back();
    if (n == kNoNode) continue;
    std::vector<ValueId> read(graph.inputs(n).begin(), graph.inputs(n).end());
    read.insert(read.end(), graph.captures(n).begin(), graph.captures(n).end());
    for (const ValueId v : read) {
      if (v == kNoValue || !seen.insert(v).second) continue;
      const SharedValue* value = graphs.Find(graph.name(v));
      if (value != nullptr && !gone.contains(value->name)) {
        if (value->may_be_output) frontier->insert(value->name);
      } else {
        from.push_back(v);
      }
    }
  }
}

class Nodes : public Reduction {
 public:
  std::string_view name() const override { return "nodes"; }

  std::vector<std::string> Elements(const SubjectGraphs& graphs) const override {
    std::vector<std::string> names;
    for (const SharedValue& value : graphs.values()) names.push_back(value.name);
    return names;
  }

  absl::StatusOr<Subject> Without(const SubjectGraphs& graphs,
                                  absl::Span<const std::string> elements) const override {
    const Names gone(elements.begin(), elements.end());
    PartEnds ends;
    std::vector<ValueId> theirs, mine;
    for (const std::string& name : elements) {
      const SharedValue* value = graphs.Find(name);
      if (value == nullptr) return absl::FailedPreconditionError("there is no such value");
      if (value->may_be_input) ends.entering.insert(name);
      if (IsOutput(graphs, *value)) ends.dropped_outputs.insert(name);
      theirs.push_back(value->before);
      mine.push_back(value->after);
    }
    Names frontier;
    AddFrontier(graphs, graphs.before(), gone, theirs, &frontier);
    if (graphs.subject().is_pair()) AddFrontier(graphs, graphs.after(), gone, mine, &frontier);
    for (const SharedValue& value : graphs.values()) {
      if (frontier.contains(value.name) && !IsOutput(graphs, value)) {
        ends.added_outputs.push_back(value.name);
      }
    }
    return PartOf(graphs, ends);
  }
};

class Outputs : public Reduction {
 public:
  std::string_view name() const override { return "outputs"; }

  std::vector<std::string> Elements(const SubjectGraphs& graphs) const override {
    const Graph& graph = graphs.subject().is_pair() ? graphs.after() : graphs.before();
    std::vector<std::string> names;
    for (const ValueId v : graph.graph_outputs()) names.push_back(graph.name(v));
    return names;
  }

  absl::StatusOr<Subject> Without(const SubjectGraphs& graphs,
                                  absl::Span<const std::string> elements) const override {
    PartEnds ends;
    ends.dropped_outputs.insert(elements.begin(), elements.end());
    return PartOf(graphs, ends);
  }
};

class Inputs : public Reduction {
 public:
  std::string_view name() const override { return "inputs"; }

  std::vector<std::string> Elements(const SubjectGraphs& graphs) const override {
    std::vector<std::string> names;
    const auto add = [&](const Graph& graph, const Graph* other) {
      for (const ValueId v : graph.graph_inputs()) {
        if (!graph.uses(v).empty()) continue;
        const std::string& name = graph.name(v);
        const ValueId w = other == nullptr ? kNoValue : other->Find(name);
        if (w != kNoValue && !other->uses(w).empty()) continue;
        if (IsPast(graphs.subject(), name)) continue;
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      }
    };
    const bool pair = graphs.subject().is_pair();
    add(graphs.before(), pair ? &graphs.after() : nullptr);
    if (pair) add(graphs.after(), &graphs.before());
    return names;
  }

  absl::StatusOr<Subject> Without(const SubjectGraphs& graphs,
                                  absl::Span<const std::string> elements) const override {
    PartEnds ends;
    ends.dropped_inputs.insert(elements.begin(), elements.end());
    return PartOf(graphs, ends);
  }

 private:
  static bool IsPast(const Subject& subject, const std::string& name) {
    if (!subject.is_pair()) return false;
    const auto& caches = subject.conversion->relation.caches;
    return std::any_of(caches.begin(), caches.end(), [&](const ManifestCache& c) {
      return c.input == name || c.source.input == name;
    });
  }
};

}  // namespace

const Reduction& NodesReduction() {
  static const Nodes kReduction;
  return kReduction;
}

const Reduction& OutputsReduction() {
  static const Outputs kReduction;
  return kReduction;
}

const Reduction& InputsReduction() {
  static const Inputs kReduction;
  return kReduction;
}

}  // namespace kvlift
