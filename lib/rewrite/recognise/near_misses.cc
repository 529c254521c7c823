#include "rewrite/recognise/near_misses.h"

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "ir/operators/operator_changes.h"
#include "rewrite/recognise/append.h"
#include "rewrite/recognise/attention/match.h"

namespace kvlift {
namespace {

constexpr size_t kMaxNearMisses = 20;
constexpr size_t kMaxNodesBehindState = 4000;
constexpr size_t kMaxReaders = 32;

// Returns true if v is the past with the rows of this form behind it.
bool AppendsRows(sym::Forms& forms, ValueId past, ValueId v, const sym::Form& rows) {
  const auto append = ReadAppend(forms, past, v);
  if (!append || append->reversed) return false;
  sym::Pool& pool = forms.pool();
  sym::Pool::Substitution unit_axes;
  unit_axes.indices = Indices(pool, rows.shape);
  const auto at = [&](sym::Expr e) {
    return pool.Substitute(e, unit_axes, sym::Facts{rows.shape});
  };
  return at(append->update) == at(rows.element);
}

// Returns the past and what is computed from it, nearest first.
std::vector<ValueId> ReadersOf(const Graph& graph, ValueId past) {
  std::vector<ValueId> reached = {past};
  for (size_t k = 0; k < reached.size(); ++k) {
    for (const Use& use : graph.uses(reached[k])) {
      if (reached.size() >= kMaxReaders) return reached;
      if (use.kind != Use::Kind::kNodeInput) continue;
      const ValueId result = graph.outputs(use.node)[0];
      const bool known = std::find(reached.begin(), reached.end(), result) != reached.end();
      if (result != kNoValue && !known) reached.push_back(result);
    }
  }
  return reached;
}

class NearMisses {
 public:
  NearMisses(sym::Forms& forms, const absl::flat_hash_set<ValueId>& pasts,
             const absl::flat_hash_set<ValueId>& paired, Candidates* found)
      : forms_(forms), graph_(forms.graph()), pasts_(pasts), paired_(paired), found_(found) {}

  // Reports outputs of rank 2 that are computed from an input of the same shape: they are states,
  // since caches have rank 3 or more.
  void ReportStates() {
    for (ValueId output : graph_.graph_outputs()) {
      if (RankOf(forms_, output) != 2 || !IsFloatType(graph_.type(output).elem_type)) continue;
      const ValueId input = FloatInputBehind(output);
      if (input == kNoValue) continue;
      found_->states.push_back({input, output});
      Add(MakeFinding("KV226",
                      fmt::format("{} is a state of rank 2: it stays as it is", graph_.name(input)),
                      graph_, {graph_.producer(output)}, {input, output}));
    }
  }

  void ReportPresentsWithoutPast() {
    for (ValueId output : graph_.graph_outputs()) {
      const NodeId node = graph_.producer(output);
      if (paired_.contains(output) || RankOf(forms_, output) < 4 || node == kNoNode) continue;
      const ValueId past = PastOfNewRows(forms_, output);
      if (past != kNoValue && !pasts_.contains(past)) {
        Add(NewRowsOnly(graph_, output, past));
        continue;
      }
      Add(MakeFinding(
          "KV220",
          fmt::format("{} looks like a present, but {}", graph_.name(output), WhyNoPast(output)),
          graph_, {node}, {output}));
    }
  }

  // Reports operators of other domains that read an input of a cache's rank for which there is no
  // present: they may change it in place.
  void ReportForeignOperators() {
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (IsDefaultDomain(graph_.node(n).domain())) continue;
      for (ValueId input : graph_.inputs(n)) {
        if (input == kNoValue || !graph_.is_graph_input(input) || pasts_.contains(input)) continue;
        if (RankOf(forms_, input) <= kMinCacheRank) continue;
        Add(MakeFinding(
            "KV206",
            fmt::format("{}.{} takes {} and may change it in place", graph_.node(n).domain(),
                        graph_.node(n).op_type(), graph_.name(input)),
            graph_, {n}, {input}));
      }
    }
  }

  void ReportScatters() {
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (!IsScatter(graph_, n)) continue;
      const ValueId output = graph_.outputs(n)[0];
      const ValueId data = graph_.inputs(n)[0];
      if (RankOf(forms_, output) < kMinCacheRank || graph_.is_graph_input(data)) continue;
      const sym::Form& form = forms_.Of(output);
      const auto sources = form.known_rank ? sym::SourcesOf(form.element) : std::vector<ValueId>();
      if (std::any_of(sources.begin(), sources.end(),
                      [&](ValueId v) { return pasts_.contains(v); })) {
        continue;
      }
      Add(MakeFinding("KV221",
                      fmt::format("{} writes into a computed tensor, not into a graph input",
                                  graph_.node(n).op_type()),
                      graph_, {n}, {data}));
    }
  }

 private:
  void Add(Finding finding) {
    if (found_->near_misses.size() < kMaxNearMisses) {
      found_->near_misses.push_back(std::move(finding));
    }
  }

  ValueId FloatInputBehind(ValueId output) {
    std::deque<ValueId> queue = {output};
    absl::flat_hash_set<ValueId> seen = {output};
    for (size_t k = 0; !queue.empty() && k < kMaxNodesBehindState; ++k) {
      const ValueId v = queue.front();
      queue.pop_front();
      if (v != output && graph_.is_graph_input(v) && RankOf(forms_, v) == 2 &&
          graph_.type(v).elem_type == graph_.type(output).elem_type) {
        const auto axes = DifferingAxes(forms_, v, output);
        if (axes && axes->empty()) return v;
      }
      const NodeId n = graph_.producer(v);
      if (n == kNoNode) continue;
      for (ValueId input : graph_.inputs(n)) {
        if (input != kNoValue && seen.insert(input).second) queue.push_back(input);
      }
    }
    return kNoValue;
  }

  // Returns why there is no past of an output, as the end of a sentence.
  std::string WhyNoPast(ValueId output) {
    const NodeId node = graph_.producer(output), unread = FirstOfUnknownRank(forms_, output);
    const std::string& op = graph_.node(unread == kNoNode ? node : unread).op_type();
    if (unread != kNoNode) {
      return fmt::format("is computed from the result of {}, which is not read", op);
    }
    if (!graph_.captures(node).empty()) return fmt::format("comes out of the bodies of {}", op);
    return "no graph input of its shape feeds it";
  }

  sym::Forms& forms_;
  const Graph& graph_;
  const absl::flat_hash_set<ValueId>& pasts_;
  const absl::flat_hash_set<ValueId>& paired_;
  Candidates* found_;
};

}  // namespace

ValueId PastOfNewRows(sym::Forms& forms, ValueId output) {
  const Graph& graph = forms.graph();
  const sym::Form rows = forms.Of(output);
  if (!rows.known_rank) return kNoValue;
  for (ValueId past : graph.graph_inputs()) {
    const sym::Form& form = forms.Of(past);
    if (past == output || !form.known_rank || form.shape.size() != rows.shape.size()) continue;
    if (forms.ElementType(past) != forms.ElementType(output)) continue;
    for (ValueId v : ReadersOf(graph, past)) {
      if (v != past && AppendsRows(forms, past, v, rows)) return past;
    }
  }
  return kNoValue;
}

Finding NewRowsOnly(const Graph& graph, ValueId output, ValueId past) {
  return MakeFinding("KV220",
                     fmt::format("{} holds only the new rows that are read behind {}: the host "
                                 "appends them, and the graph updates no cache",
                                 graph.name(output), graph.name(past)),
                     graph, {graph.producer(output)}, {past, output});
}

void ReportNearMisses(sym::Forms& forms, const absl::flat_hash_set<ValueId>& pasts,
                      const absl::flat_hash_set<ValueId>& paired, Candidates* found) {
  NearMisses misses(forms, pasts, paired, found);
  misses.ReportStates();
  misses.ReportPresentsWithoutPast();
  misses.ReportScatters();
  misses.ReportForeignOperators();
}

}  // namespace kvlift
