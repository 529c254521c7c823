#include "rewrite/candidates.h"

#include <algorithm>
#include <deque>

#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Kind;

constexpr int kMinCacheRank = 3;
constexpr size_t kMaxNearMisses = 20;
constexpr size_t kMaxSearched = 4000;

class Finder {
 public:
  explicit Finder(sym::Forms& forms) : forms_(forms), graph_(forms.graph()) {}

  Candidates Run() {
    for (ValueId output : graph_.graph_outputs()) {
      const int rank = RankOf(output);
      if (rank >= kMinCacheRank || rank < 0) Consider(output, rank);
    }
    ReportPresentsWithoutPast();
    ReportScatters();
    return std::move(found_);
  }

 private:
  int RankOf(ValueId v) {
    if (forms_.Of(v).known_rank) return static_cast<int>(forms_.Of(v).shape.size());
    const auto& shape = graph_.type(v).shape;
    return shape ? static_cast<int>(shape->size()) : -1;
  }

  bool MayBePast(ValueId input, ValueId present, int rank) {
    if (!graph_.is_graph_input(input) || taken_.contains(input)) return false;
    const int own = RankOf(input);
    if (own < kMinCacheRank || (rank >= 0 && own != rank)) return false;
    const int32_t type = graph_.type(present).elem_type;
    return type == 0 || graph_.type(input).elem_type == type;
  }

  void Consider(ValueId output, int rank) {
    if (ConsiderForm(output, rank) || ConsiderOperator(output, rank)) return;
    ConsiderFlow(output, rank);
  }

  // The element of the output loads from a graph input of the same rank.
  bool ConsiderForm(ValueId output, int rank) {
    const sym::Form& form = forms_.Of(output);
    if (!form.known_rank || form.opaque) return false;
    for (ValueId source : sym::SourcesOf(form.element)) {
      if (!MayBePast(source, output, rank) || source == output) continue;
      Add({source, output}, Describe(source, output));
      return true;
    }
    return false;
  }

  // An operator or a control-flow node that takes the past and gives the present.
  bool ConsiderOperator(ValueId output, int rank) {
    const NodeId n = graph_.producer(output);
    if (n == kNoNode) return false;
    const bool branches = !graph_.captures(n).empty() || graph_.Is(n, "If");
    const auto inputs = branches ? graph_.captures(n) : graph_.inputs(n);
    for (ValueId input : inputs) {
      if (input == kNoValue || !MayBePast(input, output, rank)) continue;
      Candidate c;
      c.kind = branches ? "concat" : "fused";
      const std::string op = graph_.node(n).op_type();
      c.if_unmatched =
          branches ? MakeFinding("KV207",
                                 fmt::format("{} is computed inside the branches of {}",
                                             graph_.name(output), op),
                                 graph_, {n}, {input, output})
                   : MakeFinding("KV206",
                                 fmt::format("{} keeps the cache {} by itself", op,
                                             graph_.name(input)),
                                 graph_, {n}, {input, output});
      Add({input, output}, std::move(c));
      return true;
    }
    return false;
  }

  // The nearest graph input of the same rank that the output is computed from.
  void ConsiderFlow(ValueId output, int rank) {
    std::deque<ValueId> queue = {output};
    absl::flat_hash_set<ValueId> seen = {output};
    for (size_t k = 0; !queue.empty() && k < kMaxSearched; ++k) {
      const ValueId v = queue.front();
      queue.pop_front();
      if (v != output && MayBePast(v, output, rank)) {
        Candidate c;
        c.kind = "blend";
        c.if_unmatched = MakeFinding(
            "KV202",
            fmt::format("needs {} to be {} with new rows written into it, found arithmetic",
                        graph_.name(output), graph_.name(v)),
            graph_, {graph_.producer(output)}, {v, output});
        Add({v, output}, std::move(c));
        return;
      }
      const NodeId n = graph_.producer(v);
      if (n == kNoNode) continue;
      // A cache does not pass through attention or a projection.
      if (v != output && (graph_.Is(n, "MatMul") || graph_.Is(n, "Gemm"))) continue;
      for (ValueId input : graph_.inputs(n)) {
        if (input != kNoValue && seen.insert(input).second) queue.push_back(input);
      }
    }
  }

  Candidate Describe(ValueId past, ValueId present) {
    const sym::Form before = forms_.Of(past), after = forms_.Of(present);
    Candidate c;
    const int rank = static_cast<int>(before.shape.size());
    for (int k = 0; k < rank; ++k) {
      if (before.shape[k] != after.shape[k]) {
        c.growing = true;
        c.axis = k;
      }
    }
    const NodeId node = graph_.producer(present);
    if (c.growing) {
      c.kind = "concat";
      c.if_unmatched = MakeFinding(
          "KV202",
          fmt::format("needs t < P ? past : new, found {}", Shortened(after.element)), graph_,
          {node}, {past, present});
      return c;
    }
    if (MovesPast(past, after.element)) {
      c.kind = "shift";
      c.if_unmatched = MakeFinding(
          "KV205",
          fmt::format("needs rows that stay where they are, found {}", Shortened(after.element)),
          graph_, {node}, {past, present});
      return c;
    }
    c.kind = HasEquality(after.element) ? "select" : "scatter";
    c.if_unmatched = MakeFinding(
        "KV204",
        fmt::format("needs a growing cache, found a write into a fixed buffer: {}",
                    Shortened(after.element)),
        graph_, {node}, {past, present});
    return c;
  }

  std::string Shortened(Expr e) const {
    std::string text = sym::ToString(e, &graph_);
    constexpr size_t kMaxText = 200;
    if (text.size() > kMaxText) {
      text.resize(kMaxText);
      text.append("...");
    }
    return text;
  }

  // Is some element of the past read at another place than its own?
  static bool MovesPast(ValueId past, Expr e) {
    std::vector<Expr> stack = {e};
    while (!stack.empty()) {
      const Expr x = stack.back();
      stack.pop_back();
      if (x->kind() == Kind::kLoad && x->source() == past) {
        for (size_t k = 0; k < x->args().size(); ++k) {
          const Expr arg = x->args()[k];
          if (arg->kind() != Kind::kIndex || arg->index() != static_cast<int>(k)) return true;
        }
        continue;
      }
      if (x->kind() == Kind::kSelect) {
        stack.push_back(x->args()[1]);
        stack.push_back(x->args()[2]);
      }
    }
    return false;
  }

  static bool HasEquality(Expr e) {
    if (e->kind() != Kind::kSelect) return false;
    for (Expr part : sym::ConjunctsOf(e->args()[0])) {
      if (part->kind() == Kind::kEq) return true;
      if (part->kind() == Kind::kNot && part->args()[0]->kind() == Kind::kEq) return true;
    }
    return false;
  }

  void Add(CachePair pair, Candidate c) {
    taken_.insert(pair.past);
    paired_.insert(pair.present);
    c.pair = pair;
    found_.pairs.push_back(std::move(c));
  }

  void NearMiss(Finding finding) {
    if (found_.near_misses.size() < kMaxNearMisses) {
      found_.near_misses.push_back(std::move(finding));
    }
  }

  void ReportPresentsWithoutPast() {
    for (ValueId output : graph_.graph_outputs()) {
      const NodeId node = graph_.producer(output);
      if (paired_.contains(output) || RankOf(output) < 4 || node == kNoNode) continue;
      NearMiss(MakeFinding(
          "KV220",
          fmt::format("{} looks like a present, but no graph input of its shape feeds it",
                      graph_.name(output)),
          graph_, {node}, {output}));
    }
  }

  void ReportScatters() {
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (!graph_.Is(n, "ScatterND") && !graph_.Is(n, "ScatterElements")) continue;
      const ValueId output = graph_.outputs(n)[0];
      const ValueId data = graph_.inputs(n)[0];
      if (RankOf(output) < kMinCacheRank || graph_.is_graph_input(data)) continue;
      const sym::Form& form = forms_.Of(output);
      const auto sources =
          form.known_rank ? sym::SourcesOf(form.element) : std::vector<ValueId>();
      if (std::any_of(sources.begin(), sources.end(),
                      [&](ValueId v) { return taken_.contains(v); })) {
        continue;
      }
      NearMiss(MakeFinding("KV221",
                           fmt::format("{} writes into a computed tensor, not into a graph input",
                                       graph_.node(n).op_type()),
                           graph_, {n}, {data}));
    }
  }

  sym::Forms& forms_;
  const Graph& graph_;
  Candidates found_;
  absl::flat_hash_set<ValueId> taken_, paired_;
};

}  // namespace

Candidates FindCandidates(sym::Forms& forms) { return Finder(forms).Run(); }

}  // namespace kvlift
