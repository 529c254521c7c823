// softmax(softcap(scale * q k^T) + mask) v written out:
//
//   MatMul(q, k^T) -> scale, softcap, mask (added or selected) -> Softmax -> MatMul(., v)
//
// with casts, Dropout and a guard against NaN where they may stand, scales on q, on k, on both or
// behind the product, and k and v repeated per group of heads in any spelling. The anchor is the
// second MatMul: everything before it is read from forms, so order and spelling do not matter.
// Correct: Attention-24 computes the same expression in the same order. Rows that are masked
// everywhere give 0 there; see AttentionSite::finite_minimum and nan_guard for what they gave here.
#include <cmath>

#include "fmt/format.h"
#include "rewrite/match.h"
#include "rewrite/rule.h"
#include "rewrite/score.h"

namespace kvlift::rewrites {
namespace {

using sym::Expr;
using sym::Kind;
using Result = Recognised<AttentionSite>;

// The softmax whose probabilities `e` is, seen through casts, Dropout and Where(IsNaN(p), 0, p).
struct Probabilities {
  NodeId softmax = kNoNode;
  std::vector<Expr> args;
  bool nan_guard = false;
  std::vector<NodeId> nodes;
};

// 1 if the condition says that something is NaN, -1 if it says that it is not, 0 otherwise.
int NanTest(const Graph& graph, Expr condition) {
  switch (condition->kind()) {
    case Kind::kNot:
      return -NanTest(graph, condition->args()[0]);
    case Kind::kEq:
      return -NanTest(graph, condition->args()[0]);
    case Kind::kApply:
      return condition->function() == "isnan" ? 1 : 0;
    case Kind::kLoad: {
      const NodeId n = graph.producer(condition->source());
      return n != kNoNode && graph.Is(n, "IsNaN") ? 1 : 0;
    }
    default:
      return 0;
  }
}

Probabilities ReadProbabilities(sym::Forms& forms, Expr e, const sym::Facts& facts) {
  const Graph& graph = forms.graph();
  Probabilities p;
  while (e != nullptr) {
    if (e->kind() == Kind::kSelect) {
      const int nan = NanTest(graph, e->args()[0]);
      if (nan == 0 || !e->args()[nan > 0 ? 1 : 2]->is_integer(0)) return {};
      e = e->args()[nan > 0 ? 2 : 1];
      p.nan_guard = true;
      continue;
    }
    if (e->kind() != Kind::kLoad) return {};
    const NodeId n = graph.producer(e->source());
    if (n == kNoNode) return {};
    p.nodes.push_back(n);
    if (graph.Is(n, "Softmax")) {
      p.softmax = n;
      p.args.assign(e->args().begin(), e->args().end());
      return p;
    }
    if (!graph.Is(n, "Cast") && !graph.Is(n, "Identity") && !graph.Is(n, "Dropout")) return {};
    e = BroadcastOperand(forms, graph.inputs(n)[0], e->args(), facts);
  }
  return {};
}

struct Context {
  sym::Forms& forms;
  absl::Span<const CacheUpdate> caches;
  NodeId node;
  sym::Facts facts;  // b, h, s, t, d = i0..i4
};

Result Refuse(const Context& c, std::string_view code, std::string text, NodeId blame) {
  return Result::Refuse(
      MakeFinding(code, std::move(text), c.forms.graph(), {blame == kNoNode ? c.node : blame}));
}

// The query as a value of shape [B, N, S, D]: with as much of its scale peeled off as leaves one.
// A scale in front of the split into heads stays in the graph.
bool ReadQuery(Context& c, const Scaled& q, ValueId operand, AttentionSite* site) {
  sym::Pool& pool = c.forms.pool();
  sym::Pool::Substitution rename;
  rename.indices = {nullptr, nullptr, nullptr, nullptr, pool.Index(3)};
  const std::vector<Expr> shape = {c.facts.extents[0], c.facts.extents[1], c.facts.extents[2],
                                   pool.Integer(site->head_dim)};
  for (auto stage = q.stages.rbegin(); stage != q.stages.rend(); ++stage) {
    const Expr target = pool.Substitute(stage->first, rename, sym::Facts{shape});
    site->query = FindValue(c.forms, operand, target, shape);
    if (site->query == kNoValue) continue;
    site->scale *= stage->second;
    return true;
  }
  return false;
}

bool SoftmaxOverKeys(const Graph& graph, const Probabilities& p) {
  const int64_t axis = IntAttribute(graph.node(p.softmax), "axis", -1);
  const auto rank = static_cast<int64_t>(p.args.size());
  return axis == -1 || axis == rank - 1;
}

Result Match(sym::Forms& forms, NodeId node, absl::Span<const CacheUpdate> caches) {
  const Graph& graph = forms.graph();
  if (!graph.Is(node, "MatMul")) return Result::NotThis();
  sym::Pool& pool = forms.pool();
  const ValueId left = graph.inputs(node)[0], right = graph.inputs(node)[1];
  const sym::Form out = forms.Of(graph.outputs(node)[0]);
  const sym::Form probabilities = forms.Of(left);
  if (!out.known_rank || !probabilities.known_rank || probabilities.shape.empty()) {
    return Result::NotThis();
  }
  // Only rank 4 is read in letters; other ranks are recognised far enough to be named.
  const int rank = static_cast<int>(probabilities.shape.size());
  Context c{forms, caches, node, {}};
  for (int k = 0; k < rank; ++k) c.facts.extents.push_back(probabilities.shape[k]);
  const std::vector<Expr> here = Indices(pool, probabilities.shape);
  const Probabilities p =
      ReadProbabilities(forms, BroadcastOperand(forms, left, here, c.facts), c.facts);
  if (p.softmax == kNoNode || p.args != here || !SoftmaxOverKeys(graph, p)) {
    return Result::NotThis();
  }
  if (rank != 4 || out.shape.size() != 4) {
    const Expr value = forms.Of(right).known_rank ? forms.Of(right).element : nullptr;
    if (value == nullptr || !ReadsCache(caches, value)) return Result::NotThis();
    return Refuse(c, "KV210", fmt::format("needs scores of rank 4, found rank {}", rank), node);
  }
  c.facts.extents.push_back(out.shape[3]);  // d of v
  const Expr b = here[0], h = here[1], s = here[2], t = here[3], d = pool.Index(4);

  const Expr v_raw = BroadcastOperand(forms, right, {b, h, t, d}, c.facts);
  if (v_raw == nullptr) return Result::NotThis();
  const Scaled v = PeelScale(forms, v_raw, c.facts);
  if (!ReadsCache(caches, v.element)) return Result::NotThis();  // cross-attention, no cache

  AttentionSite site;
  site.form = "decomposed";
  site.node = node;
  site.nan_guard = p.nan_guard;
  site.softmax_type = forms.ElementType(graph.inputs(p.softmax)[0]);
  site.nodes = p.nodes;
  site.nodes.push_back(node);
  if (out.shape[1]->kind() != Kind::kInteger) {
    return Refuse(c, "KV210", "needs a constant number of query heads", node);
  }
  site.q_heads = out.shape[1]->value();
  site.value_cache = FindCache(forms, caches, v.element, site.q_heads, c.facts);
  if (site.value_cache < 0 || v.factor != 1.0) {
    return Refuse(c, "KV213",
                  fmt::format("needs values that are a cache as it stands, found {}",
                              sym::ToString(v.element, &graph)),
                  node);
  }

  const ValueId scores = graph.inputs(p.softmax)[0];
  ScoreResult read = ReadScore(forms, forms.At(scores, here, c.facts), c.facts);
  if (!read.score) {
    return Refuse(
        c, "KV211",
        fmt::format("needs scores that are a scaled product plus a mask, found {}", read.why_not),
        read.blame);
  }
  Score& score = *read.score;
  site.nodes.insert(site.nodes.end(), score.nodes.begin(), score.nodes.end());
  site.nodes.push_back(score.product);
  site.keep = score.keep;
  site.finite_minimum = score.finite_minimum;
  site.softcap = score.softcap;
  if (score.product_args != here) {
    return Refuse(c, "KV210", "needs scores in the order batch, head, query, key", score.product);
  }

  const ValueId query = graph.inputs(score.product)[0], key = graph.inputs(score.product)[1];
  const sym::Form& query_form = forms.Of(query);
  if (!query_form.known_rank || query_form.shape.size() != 4 ||
      query_form.shape[3]->kind() != Kind::kInteger) {
    return Refuse(c, "KV210", "needs queries of rank 4 with a constant head size", score.product);
  }
  site.head_dim = query_form.shape[3]->value();
  sym::Facts product_facts = c.facts;
  product_facts.extents[4] = query_form.shape[3];
  const Expr q_raw = BroadcastOperand(forms, query, {b, h, s, d}, product_facts);
  const Expr k_raw = BroadcastOperand(forms, key, {b, h, d, t}, product_facts);
  if (q_raw == nullptr || k_raw == nullptr) return Result::NotThis();
  const Scaled q = PeelScale(forms, q_raw, product_facts);
  const Scaled k = PeelScale(forms, k_raw, product_facts);
  site.scale = score.factor * k.factor;
  site.nodes.insert(site.nodes.end(), q.nodes.begin(), q.nodes.end());
  site.nodes.insert(site.nodes.end(), k.nodes.begin(), k.nodes.end());
  site.key_cache = FindCache(forms, caches, k.element, site.q_heads, product_facts);
  if (site.key_cache < 0) {
    return Refuse(c, "KV213",
                  fmt::format("needs keys that are a cache as it stands, found {}",
                              sym::ToString(k.element, &graph)),
                  score.product);
  }
  c.facts = product_facts;
  if (!ReadQuery(c, q, query, &site)) {
    return Refuse(c, "KV210", "needs queries as a value of shape [B, N, S, D]", score.product);
  }
  site.kv_heads = *StaticExtent(forms, caches[site.key_cache], 'N');
  site.v_head_dim = out.shape[3]->kind() == Kind::kInteger ? out.shape[3]->value() : 0;
  return Result::Match(std::move(site));
}

}  // namespace

const Rule& decomposed_attention() {
  static const Rule rule = {"decomposed_attention",
                            "attention written out as MatMul, Softmax and MatMul", nullptr, &Match};
  return rule;
}

}  // namespace kvlift::rewrites
