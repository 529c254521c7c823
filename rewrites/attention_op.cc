// An Attention operator (opset 23 or later) whose keys and values are caches that the graph appends
// to in front of it:
//
//   Attention(q, repeat_kv(present_key), repeat_kv(present_value), mask)
//
// q [B, N, S, D], keys and values [B, N or Nk, T, D]. Correct: the result is the same operator over
// the converted caches, with nonpad_kv_seqlen and the same mask. Without a past and
// nonpad_kv_seqlen, is_causal is aligned top-left: query s sees keys t <= s. That becomes an
// explicit mask, since nonpad_kv_seqlen aligns is_causal bottom-right. A nonpad_kv_seqlen of the
// source hides the keys from its number on. Source: ONNX Attention-23, -24; torch.onnx exports at
// opset 23.
#include <algorithm>
#include <cmath>
#include <utility>

#include "fmt/format.h"
#include "rewrite/recognise/attention/match.h"
#include "rewrite/recognise/attention/score.h"
#include "rewrite/types/rule.h"

namespace kvlift::rewrites {
namespace {

using sym::Expr;
using sym::Kind;
using SiteResult = Recognised<AttentionSite>;

// The places of Attention's optional operands.
constexpr size_t kPastKey = 4, kPastValue = 5, kNonpad = 6;

ValueId Input(const Graph& graph, NodeId node, size_t k) {
  return k < graph.inputs(node).size() ? graph.inputs(node)[k] : kNoValue;
}

// Returns the number of valid keys of sequence i0; null if the operator is given none, or if it is
// not known.
Expr ValidKeys(sym::Forms& forms, NodeId node, const sym::Facts& facts) {
  const ValueId valid = Input(forms.graph(), node, kNonpad);
  return valid == kNoValue ? nullptr : forms.At(valid, {forms.pool().Index(0)}, facts);
}

// Returns true if an extent of the mask is 1, that of the scores, or declared by a name, which is
// taken to be that of the scores. An extent that is known only when the model runs may be any
// other.
bool IsSeen(Expr extent, Expr scores) {
  if (extent == scores || extent->kind() == Kind::kInteger) return true;
  const std::vector<sym::DimSymbol> dims = sym::DimsOf(extent);
  return std::none_of(dims.begin(), dims.end(),
                      [](const sym::DimSymbol& dim) { return dim.is_internal(); });
}

// Returns the predicate that key i3 has a column of the mask, since a mask with fewer columns than
// there are keys hides the rest. Null if the mask has one column for several keys, which runtimes
// repeat or take as hiding the rest, or if its extents are not seen. A name that counts sequences
// or new tokens is not taken to be the number of keys. `extents`: those of the scores.
Expr HasColumn(sym::Forms& forms, ValueId mask, absl::Span<const Expr> extents,
               const sym::Facts& facts) {
  sym::Pool& pool = forms.pool();
  const sym::Form& form = forms.Of(mask);
  if (!form.known_rank || form.shape.empty() || form.shape.size() > extents.size()) return nullptr;
  const size_t skip = extents.size() - form.shape.size();
  for (size_t k = 0; k < form.shape.size(); ++k) {
    if (!IsSeen(form.shape[k], extents[k + skip])) return nullptr;
  }
  const Expr columns = form.shape.back();
  if (columns == extents.back()) return pool.True();
  if (columns->is_integer(1)) return nullptr;
  const bool counts_others = std::find(extents.begin(), extents.end(), columns) != extents.end();
  if (columns->kind() == Kind::kDim && !counts_others) return pool.True();
  return pool.Lt(pool.Index(3), columns, facts);
}

// Reads the mask operand, nonpad_kv_seqlen and is_causal into the site. Returns false if the mask
// or the number of valid keys is not known.
bool ReadMask(sym::Forms& forms, NodeId node, const sym::Facts& facts, AttentionSite* site) {
  const Graph& graph = forms.graph();
  sym::Pool& pool = forms.pool();
  Expr keep = pool.True();
  site->mask.bias_keep = keep;
  if (const ValueId mask = Input(graph, node, 3); mask != kNoValue) {
    const auto scores = absl::MakeConstSpan(facts.extents).first(4);
    const Expr element = BroadcastOperand(forms, mask, Indices(pool, scores), facts);
    const Expr has_column = HasColumn(forms, mask, scores, facts);
    if (element == nullptr || has_column == nullptr) return false;
    if (forms.ElementType(mask) == onnx::TensorProto::BOOL) {
      keep = element;
    } else if (const Expr read = ReadAdditiveMask(pool, element); read != nullptr) {
      keep = read;
    } else {
      if (!has_column->is_integer(1)) return false;
      site->mask.biases = {{mask, HeadsOfScores::kOneAxis}};
      site->mask.bias_keep = BiasKeepsKey(pool, element);
    }
    keep = pool.And(keep, has_column);
  }
  const Expr valid = ValidKeys(forms, node, facts);
  if (valid == nullptr && Input(graph, node, kNonpad) != kNoValue) return false;
  if (valid != nullptr) keep = pool.And(keep, pool.Lt(pool.Index(3), valid, facts));
  if (IntAttribute(graph.node(node), "is_causal", 0) != 0) {
    // Query 0 stands at row 0, or S rows before the end of the valid keys.
    const Expr first = valid == nullptr ? pool.Integer(0) : pool.Sub(valid, facts.extents[2]);
    keep = pool.And(keep, pool.Le(pool.Index(3), pool.Add(first, pool.Index(2)), facts));
  }
  site->mask.keep = keep;
  return true;
}

SiteResult MatchAttentionOp(sym::Forms& forms, NodeId node, absl::Span<const CacheUpdate> caches) {
  const Graph& graph = forms.graph();
  if (!graph.Is(node, "Attention")) return SiteResult::NotThis();
  sym::Pool& pool = forms.pool();
  const auto refuse = [&](std::string_view code, std::string text) {
    return SiteResult::Refuse(MakeFinding(code, std::move(text), graph, {node}));
  };
  const ValueId query = Input(graph, node, 0), key = Input(graph, node, 1),
                value = Input(graph, node, 2);
  if (value == kNoValue) return SiteResult::NotThis();
  const sym::Form q = forms.Of(query), k = forms.Of(key), v = forms.Of(value);
  if (!q.known_rank || !k.known_rank || !v.known_rank) return SiteResult::NotThis();
  const ValueId own_past = Input(graph, node, kPastKey);
  for (const CacheUpdate& cache : caches) {
    if (own_past == kNoValue || forms.Of(cache.pair.past).element != forms.Of(own_past).element) {
      continue;
    }
    return refuse("KV206", fmt::format("needs caches that the graph puts together, found an "
                                       "Attention that keeps {} by itself",
                                       graph.name(cache.pair.past)));
  }
  if (!ReadsStored(forms, caches, k.element, {k.shape}) &&
      !ReadsStored(forms, caches, v.element, {v.shape})) {
    return SiteResult::NotThis();
  }
  if (own_past != kNoValue || Input(graph, node, kPastValue) != kNoValue) {
    return refuse("KV210", "needs no past of its own");
  }
  if (q.shape.size() != 4 || k.shape.size() != 4 || v.shape.size() != 4) {
    return refuse("KV210", fmt::format("needs inputs of rank 4, found rank {}", q.shape.size()));
  }
  for (const sym::Form* form : {&q, &k, &v}) {
    if (form->shape[1]->kind() != Kind::kInteger || form->shape[3]->kind() != Kind::kInteger) {
      return refuse("KV210", "needs constant head counts and sizes");
    }
  }
  // The head counts are for operands of rank 3. Runtimes refuse numbers other than those of the
  // operands.
  for (const auto& [name, form] : {std::pair{"q_num_heads", &q}, {"kv_num_heads", &k}}) {
    const int64_t heads = form->shape[1]->value();
    if (IntAttribute(graph.node(node), name, heads) == heads) continue;
    return refuse("KV210", fmt::format("needs {} heads in {}, found {}", heads, name,
                                       IntAttribute(graph.node(node), name, heads)));
  }
  for (size_t o = 1; o < graph.outputs(node).size(); ++o) {
    const ValueId output = graph.outputs(node)[o];
    if (output != kNoValue && !graph.uses(output).empty()) {
      return refuse("KV210", "needs an Attention of which only the first output is used");
    }
  }
  AttentionSite site;
  site.spelling = AttentionOperator{Input(graph, node, kNonpad) != kNoValue};
  site.node = node;
  site.nodes = {node};
  site.query = query;
  site.q_heads = q.shape[1]->value();
  site.head_dim = q.shape[3]->value();
  site.v_head_dim = v.shape[3]->value();
  site.scale = FloatAttribute(graph.node(node), "scale",
                              static_cast<float>(1.0 / std::sqrt(double(site.head_dim))));
  site.softmax_type = static_cast<int32_t>(IntAttribute(graph.node(node), "softmax_precision", 0));
  site.softcap = FloatAttribute(graph.node(node), "softcap", 0.0f);
  sym::Facts facts{{q.shape[0], k.shape[1], q.shape[2], k.shape[2], k.shape[3]}};
  const std::vector<Expr> here = Indices(pool, facts.extents);
  const Expr b = here[0], h = here[1], t = here[3], d = here[4];
  const int64_t heads = k.shape[1]->value();
  site.key = FindCache(forms, caches, forms.At(key, {b, h, t, d}, facts), forms.ElementType(key),
                       heads, facts);
  facts.extents[4] = v.shape[3];
  site.value = FindCache(forms, caches, forms.At(value, {b, h, t, d}, facts),
                         forms.ElementType(value), heads, facts);
  if (site.key.cache < 0 || site.value.cache < 0) {
    return refuse("KV213", "needs keys and values that are caches as they stand");
  }
  facts.extents[1] = q.shape[1];
  site.mask.keys = k.shape[2];
  if (!ReadMask(forms, node, facts, &site)) {
    return refuse("KV211",
                  "needs a mask with a column for each key, and a number of valid keys for each "
                  "sequence");
  }
  return SiteResult::Match(std::move(site));
}

}  // namespace

const Rule& attention_op() {
  static const Rule rule = {"attention_op", "an Attention operator that reads appended caches",
                            nullptr, &MatchAttentionOp};
  return rule;
}

}  // namespace kvlift::rewrites
