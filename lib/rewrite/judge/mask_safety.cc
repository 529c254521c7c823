#include "rewrite/judge/mask_safety.h"

#include <algorithm>
#include <deque>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "ir/operators/operator_traits.h"
#include "ir/tensor_data.h"
#include "rewrite/plan/cross_token_ops.h"
#include "rewrite/recognise/attention/attention_search.h"
#include "rewrite/recognise/attention/score.h"
#include "rewrite/recognise/attention/visibility.h"

namespace kvlift::internal {
namespace {

using sym::Expr;
using sym::Kind;

constexpr int kMaxMasksSearched = 48;

// Returns true if `part`, which says that an expression is <= 0 or == 0, implies value <= bound.
bool Says(sym::Pool& pool, Expr part, Expr value, Expr bound, const sym::Facts& facts) {
  if (part->kind() != Kind::kLe && part->kind() != Kind::kEq) return false;
  const Expr wanted = pool.Sub(value, bound);
  const Expr low = part->args()[0];
  if (pool.ProveNonNegative(pool.Sub(low, wanted), facts)) return true;
  return part->kind() == Kind::kEq && pool.ProveNonNegative(pool.Sub(pool.Neg(low), wanted), facts);
}

// Returns the bound of the key's index that the part sets, if an input gives it for the query, as a
// position; null otherwise. key, query: the axes of keys and queries.
Expr HostPosition(const PlanBasis& s, Expr part, int key, int query) {
  if (part->kind() != Kind::kLe) return nullptr;
  const auto linear = sym::LinearIn(s.pool, part->args()[0], s.pool.Index(key));
  if (!linear || linear->coefficient != 1) return nullptr;
  const std::vector<ValueId> sources = sym::SourcesOf(linear->rest);
  const bool from_host = std::any_of(sources.begin(), sources.end(),
                                     [&](ValueId v) { return s.graph.is_graph_input(v); });
  const bool one_token = s.extents.new_length != nullptr && s.extents.new_length->is_integer(1);
  const bool of_query = one_token || sym::ContainsIndex(linear->rest, query);
  return from_host && of_query ? s.pool.Neg(linear->rest) : nullptr;
}

sym::Facts FactsOf(const PlanBasis& s, const MaskOfSite& mask) {
  return {{nullptr, s.pool.Integer(mask.site.q_heads), mask.key.new_length, nullptr}};
}

// Returns the mask once for each case of a start such as max(start, 0), with the predicates that
// hold in it. Returns the mask itself if its start has no cases.
std::vector<MaskOfSite> CasesOf(const PlanBasis& s, const MaskOfSite& mask) {
  if (mask.start->kind() != Kind::kSelect) return {mask};
  std::vector<MaskOfSite> cases;
  for (const bool holds : {true, false}) {
    Expr keep = s.pool.True();
    for (Expr part : sym::ConjunctsOf(mask.keep)) {
      const auto split = SplitBy(s.pool, part, mask.start->args()[0]);
      keep = s.pool.And(keep, !split ? part : holds ? split->first : split->second);
    }
    const MaskOfSite one = {mask.site, mask.key, keep, mask.start->args()[holds ? 1 : 2]};
    for (const MaskOfSite& nested : CasesOf(s, one)) cases.push_back(nested);
  }
  return cases;
}

// Returns true if the part reads a constant table at [.., x, x] and its diagonal has no zero.
bool HoldsOnDiagonal(const PlanBasis& s, Expr part) {
  if (part->kind() == Kind::kNot && part->args()[0]->kind() == Kind::kEq) {
    part = part->args()[0]->args()[0];
  }
  if (part->kind() != Kind::kLoad || part->args().size() < 2) return false;
  const onnx::TensorProto* table = s.graph.constant(part->source());
  const size_t rank = part->args().size();
  if (table == nullptr || part->args()[rank - 1] != part->args()[rank - 2]) return false;
  for (size_t k = 0; k + 2 < rank; ++k) {
    if (table->dims(static_cast<int>(k)) != 1) return false;
  }
  const auto values = ReadInts(*table);
  if (!values.ok()) return false;
  const int64_t rows = table->dims(static_cast<int>(rank) - 2);
  const int64_t columns = table->dims(static_cast<int>(rank) - 1);
  for (int64_t k = 0; k < std::min(rows, columns); ++k) {
    if ((*values)[k * columns + k] == 0) return false;
  }
  return true;
}

// Returns true if the host is trusted to leave each query a key: by its masks and positions it is,
// and by numbers of valid keys it is not, since 0 is one.
bool TrustsHost(const AttentionSite& site) {
  const auto* source = std::get_if<AttentionOperator>(&site.spelling);
  return source == nullptr || !source->states_length;
}

// Returns true if the part holds for all numbers from 0 on that the host may give, as positions and
// lengths are.
bool HoldsForPositions(const PlanBasis& s, Expr part, const sym::Facts& facts) {
  sym::Pool::Substitution given;
  for (Expr load : sym::LoadsOf(part)) {
    const bool number = s.graph.is_graph_input(load->source()) &&
                        IsIntegerType(s.graph.type(load->source()).elem_type);
    if (!number) return false;
    given.atoms[load] = s.pool.Internal("number of " + s.graph.name(load->source()), 0);
  }
  return s.pool.Prove(s.pool.Substitute(part, given, facts), facts) == sym::Truth::kYes;
}

bool SeesKey(const PlanBasis& s, const MaskOfSite& mask, Expr t) {
  sym::Pool::Substitution at;
  at.indices = {nullptr, nullptr, nullptr, t};
  const sym::Facts facts = FactsOf(s, mask);
  for (Expr part : sym::ConjunctsOf(mask.keep)) {
    if (ReadsHostMask(s.a, part)) continue;
    if (TrustsHost(mask.site) && HostPosition(s, part, 3, 2) != nullptr) continue;
    const Expr here = s.pool.Substitute(part, at, facts);
    const bool holds = s.pool.Prove(here, facts) == sym::Truth::kYes || HoldsOnDiagonal(s, here) ||
                       (TrustsHost(mask.site) && HoldsForPositions(s, here, facts));
    if (!holds) return false;
  }
  return true;
}

// SeesSomeKey for a start without cases.
bool SeesAKey(const PlanBasis& s, const MaskOfSite& mask) {
  sym::Pool& pool = s.pool;
  const Expr own = pool.Add(mask.start, pool.Index(2));
  std::vector<Expr> keys = {own, pool.Integer(0), pool.Index(2)};
  if (std::holds_alternative<SourceRing>(mask.key.buffer)) {
    keys.push_back(pool.Mod(own, s.forms.Of(mask.key.pair.past).shape[mask.key.axis], {}));
  }
  for (Expr part : sym::ConjunctsOf(mask.keep)) {
    const Expr position = HostPosition(s, part, 3, 2);
    if (position != nullptr && TrustsHost(mask.site)) keys.push_back(position);
  }
  return std::any_of(keys.begin(), keys.end(), [&](Expr t) { return SeesKey(s, mask, t); });
}

// Returns true if an input besides the caches may be as wide as the keys: an extent that is not a
// number, B or S counts as such.
bool HasHostMask(const PlanBasis& s) {
  for (ValueId v : s.graph.graph_inputs()) {
    const sym::Form& form = s.forms.Of(v);
    if (!form.known_rank || form.shape.size() < 2 || s.graph.uses(v).empty()) continue;
    const bool cache =
        std::any_of(s.a.updates.begin(), s.a.updates.end(),
                    [&](const CacheUpdate& update) { return update.pair.past == v; });
    if (cache) continue;
    // The first axis is that of sequences, of which caches may hold more than the step has.
    for (Expr dim : absl::MakeConstSpan(form.shape).subspan(1)) {
      if (dim->kind() == Kind::kInteger || dim == s.extents.batch || dim == s.extents.new_length) {
        continue;
      }
      return true;
    }
  }
  return false;
}

// Returns true if the value, whose last two axes are queries and keys, hides later keys.
bool ValueHidesLater(const PlanBasis& s, ValueId v, absl::Span<const Expr> starts) {
  const sym::Form form = s.forms.Of(v);
  if (!form.known_rank || form.opaque || form.shape.size() < 2) return false;
  const int rank = static_cast<int>(form.shape.size());
  sym::Pool& pool = s.pool;
  for (Expr part : sym::ConjunctsOf(BiasKeepsKey(pool, form.element))) {
    if (!sym::ContainsIndex(part, rank - 1)) continue;
    if (HostPosition(s, part, rank - 1, rank - 2) != nullptr) return true;
    for (Expr start : starts) {
      const Expr bound = pool.Add(start, pool.Index(rank - 2));
      if (Says(pool, part, pool.Index(rank - 1), bound, sym::Facts{form.shape})) return true;
    }
  }
  return false;
}

// Returns true if `keep` is false for every key behind `bound`, however many conditions say so.
bool HidesBehind(const PlanBasis& s, Expr keep, Expr bound, const sym::Facts& facts) {
  sym::Pool::Substitution behind;
  const Expr first = s.pool.Add(bound, s.pool.Integer(1));
  behind.indices = {nullptr, nullptr, nullptr,
                    s.pool.Add(first, s.pool.Internal("keys behind the bound", 0))};
  return s.pool.Substitute(keep, behind, facts)->is_integer(0);
}

// Returns true for graph inputs, and for values that are computed element by element from graph
// inputs other than caches, and constants, such as the comparison of a mask of floats with 0.5.
bool IsOfHost(const Analysis& a, ValueId v) {
  const Graph& graph = *a.graph;
  if (graph.is_graph_input(v)) return true;
  constexpr size_t kMostNodes = 16;
  std::vector<ValueId> open = {v};
  bool given = false;
  for (size_t k = 0; k < open.size(); ++k) {
    const auto is_past = [&](const CacheUpdate& update) { return update.pair.past == open[k]; };
    if (std::any_of(a.updates.begin(), a.updates.end(), is_past)) return false;
    if (graph.is_graph_input(open[k])) {
      given = true;
      continue;
    }
    if (ConstantBehind(graph, open[k]) != nullptr) continue;
    const NodeId n = graph.producer(open[k]);
    if (n == kNoNode || open.size() > kMostNodes || !KeepsElementsApart(graph.node(n))) {
      return false;
    }
    for (const ValueId input : graph.inputs(n)) {
      if (input != kNoValue) open.push_back(input);
    }
  }
  return given;
}

// Returns true if the node works on scores or masks element by element, or moves them.
bool CarriesScores(const Graph& graph, NodeId n) {
  return KeepsElementsApart(graph.node(n)) || graph.Is(n, "Dropout");
}

}  // namespace

bool Implies(const PlanBasis& s, const MaskOfSite& mask, Expr offset) {
  const sym::Facts facts = FactsOf(s, mask);
  const std::vector<MaskOfSite> cases = CasesOf(s, mask);
  return std::all_of(cases.begin(), cases.end(), [&](const MaskOfSite& one) {
    const Expr bound = s.pool.Add(one.start, offset);
    const auto parts = sym::ConjunctsOf(one.keep);
    const bool said = std::any_of(parts.begin(), parts.end(), [&](Expr part) {
      return Says(s.pool, part, s.pool.Index(3), bound, facts);
    });
    return said || HidesBehind(s, one.keep, bound, facts);
  });
}

ValueId ComputedHostMask(const Analysis& a, Expr e) {
  for (Expr load : sym::LoadsOf(e)) {
    const ValueId v = load->source();
    if (sym::ContainsIndex(load, 3) && !a.graph->is_graph_input(v) && IsOfHost(a, v)) return v;
  }
  return kNoValue;
}

bool ReadsHostMask(const Analysis& a, Expr e) {
  const std::vector<Expr> loads = sym::LoadsOf(e);
  return std::any_of(loads.begin(), loads.end(), [&](Expr load) {
    return sym::ContainsIndex(load, 3) && IsOfHost(a, load->source());
  });
}

bool SeesSomeKey(const PlanBasis& s, const MaskOfSite& mask) {
  const std::vector<MaskOfSite> cases = CasesOf(s, mask);
  return std::all_of(cases.begin(), cases.end(),
                     [&](const MaskOfSite& one) { return SeesAKey(s, one); });
}

bool HidesLater(const PlanBasis& s, const MaskOfSite& mask) {
  if (mask.key.new_length->is_integer(1)) return true;
  if (QueryShape(s.forms, mask.site)[2]->is_integer(1)) return true;
  if (Implies(s, mask, s.pool.Index(2))) return true;
  const auto parts = sym::ConjunctsOf(mask.keep);
  return std::any_of(parts.begin(), parts.end(), [&](Expr part) {
    // The rows of a window are not at the positions that the host counts.
    const bool counted = !mask.key.window() && HostPosition(s, part, 3, 2) != nullptr;
    return counted || ReadsHostMask(s.a, part);
  });
}

bool MayHideLater(const PlanBasis& s, NodeId attention) {
  const bool one_token =
      std::all_of(s.a.updates.begin(), s.a.updates.end(),
                  [](const CacheUpdate& update) { return update.new_length->is_integer(1); });
  if (one_token) return true;
  if (QuantizerOfScores(s.graph, attention) != kNoNode) return false;
  if (HasHostMask(s)) return true;
  std::vector<Expr> starts;
  for (const CacheUpdate& update : s.a.updates) {
    const Expr start = update.write_index(s.pool);
    if (std::find(starts.begin(), starts.end(), start) == starts.end()) starts.push_back(start);
  }
  const NodeId behind = SoftmaxBehind(s.graph, attention);
  std::deque<NodeId> queue = {behind == kNoNode ? attention : behind};
  absl::flat_hash_set<NodeId> seen = {queue.front()};
  for (int k = 0; k < kMaxMasksSearched && !queue.empty(); ++k) {
    const NodeId n = queue.front();
    queue.pop_front();
    const auto inputs = s.graph.inputs(n);
    for (size_t place = 0; place < inputs.size(); ++place) {
      const ValueId input = inputs[place];
      const bool divides = place == 1 && s.graph.Is(n, "Div");  // a divisor of -inf hides nothing
      if (input == kNoValue || divides) continue;
      if (ValueHidesLater(s, input, starts)) return true;
      const NodeId producer = s.graph.producer(input);
      if (producer != kNoNode && CarriesScores(s.graph, producer) && seen.insert(producer).second) {
        queue.push_back(producer);
      }
    }
  }
  return false;
}

bool KeepsRowsWithoutKeys(const AttentionSite& site, const ResolvedOptions& options) {
  if (site.sink != nullptr) return true;
  return GivesZeroWithoutKeys(site) && options.mask != MaskForm::kAdditive;
}

bool PadsLeak(const PlanBasis& s) {
  bool loses_rows = false, sees_all = false;
  for (const AnalysedAttention& attention : s.a.attention) {
    const bool biased = attention.site && !attention.site->mask.biases.empty();
    const bool padded = attention.site && ReadsHostMask(s.a, attention.site->mask.keep);
    loses_rows =
        loses_rows || ((padded || biased) && !KeepsRowsWithoutKeys(*attention.site, s.options));
    sees_all = sees_all || !padded;
  }
  // With states, or operators that combine all tokens, steps have no padding tokens (KV236).
  return loses_rows && sees_all && s.a.states.empty() && FindCrossTokenOp(s.a) == kNoNode;
}

}  // namespace kvlift::internal
