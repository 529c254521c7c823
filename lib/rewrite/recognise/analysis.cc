#include "rewrite/recognise/analysis.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "ir/arity.h"
#include "onnxio/files/limits.h"
#include "rewrite/lower/normalise.h"
#include "rewrite/lower/opset.h"
#include "rewrite/recognise/attention/attention_search.h"
#include "rewrite/recognise/attention/visibility.h"
#include "rewrite/recognise/axis_letters.h"
#include "rewrite/recognise/find_caches.h"
#include "rewrite/recognise/input_assumptions.h"
#include "rewrite/recognise/past_lengths.h"
#include "rewrite/types/resolved_options.h"
#include "sym/sizes/equal_names.h"
#include "sym/sizes/fixed_sizes.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Kind;

// Gives a site that the lowering spelled out the exact scale and softcap of its operator.
void TakeSpelledScores(const Analysis& a, AttentionSite* site) {
  const std::string name = a.graph->NodeName(site->node);
  for (const SpelledScores& scores : a.normalised.scores) {
    if (name.rfind(scores.prefix, 0) != 0) continue;
    site->scale = scores.scale;
    site->softcap = scores.softcap;
  }
}

void MatchAttention(RuleTable rules, Analysis& a) {
  for (NodeId n = 0; n < a.graph->num_nodes(); ++n) {
    for (const Rule* rule : rules) {
      if (rule->attention == nullptr) continue;
      auto result = rule->attention(*a.forms, n, a.updates);
      if (!result.match && !result.refusal) continue;
      if (result.match) TakeSpelledScores(a, &*result.match);
      a.attention.push_back({n, std::move(result.match), std::move(result.refusal)});
      break;
    }
  }
}

// Returns the cache with this index into Analysis::updates; nullptr if no cache has it.
const AnalysedCache* CacheOf(const Analysis& a, int update_index) {
  for (const AnalysedCache& cache : a.caches) {
    if (cache.update_index == update_index) return &cache;
  }
  return nullptr;
}

// Returns true if the past has a constant number of rows, so that a host cannot feed back more.
bool HasFixedPast(const Analysis& a, const Candidate& candidate) {
  if (!candidate.growing) return true;
  const sym::Form& form = a.forms->Of(candidate.pair.past);
  return form.known_rank && candidate.axis >= 0 &&
         candidate.axis < static_cast<int64_t>(form.shape.size()) &&
         form.shape[candidate.axis]->kind() == Kind::kInteger;
}

// Reports that a cache stays as it is, since it is not one of self-attention.
void ReportKept(Analysis& a, const CachePair& pair, std::string_view what) {
  a.near_misses.push_back(MakeFinding(
      "KV226", fmt::format("{} is {}: it stays as it is", a.graph->name(pair.past), what), *a.graph,
      {a.graph->producer(pair.present)}, {pair.past, pair.present}));
}

// Removes candidates that are states of another kind (of a convolution or a recurrence) and stay as
// they are: their pasts have one shape, and no attention reads them as keys or values. The state of
// one layer reaches the attention of another layer only over projections.
void SetStatesAside(Analysis& a) {
  std::erase_if(a.caches, [&](const AnalysedCache& cache) {
    const CachePair& pair = cache.candidate.pair;
    const bool state = cache.reason && !cache.candidate.converted &&
                       HasFixedPast(a, cache.candidate) && !cache.candidate.hidden &&
                       FindSoftmax(*a.graph, {pair.past, pair.present}, 0) == kNoNode;
    if (!state) return false;
    a.states.push_back(pair);
    ReportKept(a, pair, "a state that no attention reads");
    return true;
  });
}

// Returns true if no query can be one of the tokens whose rows the cache gets in this step: their
// numbers differ, and all queries see the same keys.
bool IsOverOtherTokens(Analysis& a, const AttentionSite& site) {
  const Expr written = a.updates[site.key.cache].new_length;
  return a.updates[site.key.cache].grows() && written->kind() == Kind::kDim &&
         written != QueryShape(*a.forms, site)[2] && !sym::ContainsIndex(site.mask.keep, 2);
}

// Removes caches of cross-attention to which a step appends rows of other tokens than its queries,
// such as those of an image. They stay as they are beside the caches of self-attention; a model
// that has no others is judged as one that appends.
void SetCrossCachesAside(Analysis& a) {
  absl::flat_hash_set<int> crossing, other;
  for (const AnalysedAttention& attention : a.attention) {
    if (!attention.site) continue;
    auto& set = IsOverOtherTokens(a, *attention.site) ? crossing : other;
    set.insert({attention.site->key.cache, attention.site->value.cache});
  }
  for (const int cache : other) crossing.erase(cache);
  // The keys of an attention are set aside with its values, or neither is.
  for (bool fewer = true; fewer;) {
    fewer = false;
    for (const AnalysedAttention& attention : a.attention) {
      if (!attention.site) continue;
      const int key = attention.site->key.cache, value = attention.site->value.cache;
      if (crossing.contains(key) == crossing.contains(value)) continue;
      crossing.erase(key);
      crossing.erase(value);
      fewer = true;
    }
  }
  const bool beside = !other.empty() || absl::c_any_of(a.caches, IsConvertedAlready);
  if (!beside || crossing.empty()) return;
  std::erase_if(a.attention, [&](const AnalysedAttention& attention) {
    return attention.site && crossing.contains(attention.site->key.cache);
  });
  std::erase_if(a.caches, [&](const AnalysedCache& cache) {
    if (!crossing.contains(cache.update_index)) return false;
    ReportKept(a, cache.candidate.pair,
               "a cache of cross-attention, to which rows of other tokens than the queries are "
               "appended");
    return true;
  });
}

// Finds the attentions around caches that no recognised attention reads. A cache without any is
// refused.
void FindOtherAttention(Analysis& a) {
  std::vector<bool> read(a.updates.size(), false);
  absl::flat_hash_set<NodeId> known;
  for (const AnalysedAttention& attention : a.attention) {
    if (attention.site) {
      read[attention.site->key.cache] = read[attention.site->value.cache] = true;
    }
    known.insert(attention.node);
    known.insert(SoftmaxBehind(*a.graph, attention.node));
  }
  for (AnalysedCache& cache : a.caches) {
    if (cache.update_index < 0 || read[cache.update_index]) continue;
    const CachePair& pair = cache.candidate.pair;
    const NodeId softmax =
        FindSoftmax(*a.graph, {pair.past, pair.present, cache.update->read_by_attention()});
    if (softmax == kNoNode) {
      cache.reason = StayReason::Refused(
          MakeFinding("KV212", "needs an attention that reads it as keys or values, found none",
                      *a.graph, {cache.update->node}, {pair.past, pair.present}));
    } else if (known.insert(softmax).second) {
      const NodeId other = BetweenSoftmaxAndProduct(*a.graph, softmax);
      const std::string found = other == kNoNode ? "another kind of attention"
                                                 : fmt::format("{} between softmax and product",
                                                               a.graph->node(other).op_type());
      a.attention.push_back(
          {softmax, std::nullopt,
           MakeFinding("KV211",
                       fmt::format("needs softmax(scale * q k + mask) v around {}, found {}",
                                   a.graph->name(pair.past), found),
                       *a.graph, {other == kNoNode ? softmax : other}, {pair.past})});
    }
  }
  std::stable_sort(a.attention.begin(), a.attention.end(),
                   [](const auto& x, const auto& y) { return x.node < y.node; });
}

// Removes the updates of caches that no attention reads, and renumbers the rest.
void DropUnread(Analysis& a) {
  std::vector<CacheUpdate> updates;
  std::vector<int> index(a.updates.size(), -1);
  for (AnalysedCache& cache : a.caches) {
    if (cache.update_index < 0) continue;
    const int old = cache.update_index;
    cache.update_index = -1;
    if (cache.reason) continue;
    index[old] = cache.update_index = static_cast<int>(updates.size());
    updates.push_back(std::move(a.updates[old]));
  }
  a.updates = std::move(updates);
  for (AnalysedAttention& attention : a.attention) {
    if (!attention.site) continue;
    attention.site->key.cache = index[attention.site->key.cache];
    attention.site->value.cache = index[attention.site->value.cache];
  }
}

// Assigns layers and roles by the attention that reads the cache, or else in the order of outputs.
void AssignLayers(Analysis& a) {
  std::vector<bool> assigned(a.caches.size(), false);
  int layer = 0;
  for (const AnalysedAttention& attention : a.attention) {
    if (!attention.site) continue;
    const bool both = attention.site->key.cache == attention.site->value.cache;
    bool fresh = false;
    for (const auto& [index, role] :
         {std::pair(attention.site->key.cache, both ? CacheRole::kKeyValue : CacheRole::kKey),
          std::pair(attention.site->value.cache,
                    both ? CacheRole::kKeyValue : CacheRole::kValue)}) {
      const auto position = static_cast<size_t>(CacheOf(a, index) - a.caches.data());
      if (assigned[position]) continue;
      a.caches[position].layer = layer;
      a.caches[position].role = role;
      assigned[position] = true;
      fresh = true;
    }
    if (fresh) ++layer;
  }
  int waiting = 0;
  for (size_t k = 0; k < a.caches.size(); ++k) {
    if (assigned[k]) continue;
    if (a.caches[k].update && HasPackedAxes(a.caches[k].update->layout)) {
      waiting += waiting % 2;
      a.caches[k].layer = layer + waiting / 2;
      a.caches[k].role = CacheRole::kKeyValue;
      waiting += 2;
      continue;
    }
    a.caches[k].layer = layer + waiting / 2;
    a.caches[k].role = waiting % 2 == 0 ? CacheRole::kKey : CacheRole::kValue;
    ++waiting;
  }
}

}  // namespace

absl::StatusOr<Analysis> Lower(const Model& model, UnreadMasks unread) {
  Analysis a;
  KV_ASSIGN_OR_RETURN(onnx::ModelProto flat, InlineFunctions(*model.proto));
  KV_RETURN_IF_ERROR(CheckArity(flat));
  RaisedOpset raised = RaiseOpset(std::move(flat));
  a.not_raised = raised.refusal;
  if (!a.not_raised) {
    KV_ASSIGN_OR_RETURN(a.normalised, Normalise(std::move(raised.model), unread));
    raised.model = std::move(a.normalised.model);
  }
  KV_ASSIGN_OR_RETURN(
      Graph graph, Graph::Build(std::make_shared<const onnx::ModelProto>(std::move(raised.model))));
  if (const auto sizes = sym::FixedSizesOf(graph); !sizes.empty()) {
    KV_ASSIGN_OR_RETURN(graph, Graph::Build(WithSizes(graph.model(), sizes)));
  }
  a.graph = std::make_shared<const Graph>(std::move(graph));
  a.forms = std::make_unique<sym::Forms>(*a.graph);
  if (a.not_raised) a.near_misses.push_back(*a.not_raised);
  return a;
}

namespace {

// States that inputs have one row for each sequence whose rows get the name of the batch.
void StateRowNames(Analysis& a) {
  const sym::SizeNames names = sym::RowNamesOf(*a.forms);
  for (const ValueId input : a.graph->graph_inputs()) {
    const auto& shape = a.graph->type(input).shape;
    if (!shape || shape->empty()) continue;
    const auto name = names.find(shape->front().param);
    if (name == names.end()) continue;
    const std::string text = fmt::format("{} has one row for each sequence: {} == {}",
                                         a.graph->name(input), name->first, name->second);
    std::vector<Precondition>& all = a.normalised.preconditions;
    const bool known =
        std::any_of(all.begin(), all.end(), [&](const Precondition& p) { return p.text == text; });
    if (!known) all.push_back({"KV309", text, PreconditionStatus::kAssumed});
  }
}

// Recognises caches and attentions, and replaces those of an earlier call.
absl::Status RecogniseAll(RuleTable rules, const ConvertOptions& options, WrittenCaches written,
                          Analysis& a) {
  a.caches.clear();
  a.updates.clear();
  a.attention.clear();
  FindCaches(rules, options, written, a);
  using Renaming = absl::StatusOr<std::shared_ptr<const Graph>> (*)(Analysis&);
  constexpr Renaming kRenamings[] = {
      [](Analysis& now) { return WithWindowLengths(*now.graph, now.updates); },
      [](Analysis& now) { return WithOneLength(*now.graph, now.updates); },
      [](Analysis& now) { return WithEqualNames(*now.graph, *now.forms); },
      [](Analysis& now) {
        StateRowNames(now);
        return WithRowNames(*now.graph, *now.forms);
      }};
  for (const Renaming renaming : kRenamings) {
    KV_ASSIGN_OR_RETURN(auto renamed, renaming(a));
    if (renamed == nullptr) continue;
    a.graph = std::move(renamed);
    a.forms = std::make_unique<sym::Forms>(*a.graph);
    a.caches.clear();
    a.updates.clear();
    FindCaches(rules, options, written, a);
  }
  SetStatesAside(a);
  MatchAttention(rules, a);
  for (AnalysedAttention& attention : a.attention) {
    if (attention.reason) a.normalised.GiveReason(&*attention.reason);
  }
  for (AnalysedCache& cache : a.caches) {
    if (!cache.reason || cache.reason->cause == StayCause::kLeftByOption) continue;
    a.normalised.GiveReason(&cache.reason->finding);
  }
  SetCrossCachesAside(a);
  FindOtherAttention(a);
  DropUnread(a);
  AssignLayers(a);
  return WithinSteps(*a.forms);
}

// Returns true if there are caches, and TensorScatter writes all of them already.
bool AllConverted(const Analysis& a) {
  return !a.caches.empty() && std::all_of(a.caches.begin(), a.caches.end(), IsConvertedAlready);
}

bool HasSpelledOut(const Analysis& a) {
  return std::any_of(a.attention.begin(), a.attention.end(), [](const AnalysedAttention& found) {
    return found.site && std::holds_alternative<AttentionSpelledOut>(found.site->spelling);
  });
}

}  // namespace

absl::Status Recognise(RuleTable rules, const ConvertOptions& options, Analysis* analysis) {
  Analysis& a = *analysis;
  const bool asked = AsksForForm(options);
  KV_RETURN_IF_ERROR(
      RecogniseAll(rules, options, asked ? WrittenCaches::kRecognise : WrittenCaches::kStay, a));
  if (asked || !AllConverted(a)) return absl::OkStatus();
  KV_RETURN_IF_ERROR(RecogniseAll(rules, options, WrittenCaches::kRecognise, a));
  if (HasSpelledOut(a)) return absl::OkStatus();
  return RecogniseAll(rules, options, WrittenCaches::kStay, a);
}

absl::StatusOr<Analysis> Analyse(const Model& model, RuleTable rules,
                                 const ConvertOptions& options) {
  KV_ASSIGN_OR_RETURN(Analysis a, Lower(model));
  if (!a.not_raised) KV_RETURN_IF_ERROR(Recognise(rules, options, &a));
  return a;
}

bool HasGrowing(const Analysis& a) {
  return std::any_of(a.updates.begin(), a.updates.end(),
                     [](const CacheUpdate& update) { return update.grows(); });
}

std::vector<const AnalysedCache*> ConvertedCaches(const Analysis& a) {
  std::vector<const AnalysedCache*> order;
  for (const AnalysedCache& cache : a.caches) {
    if (cache.update_index >= 0) order.push_back(&cache);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto* x, const auto* y) {
    return std::pair(x->layer, WordOf(x->role)) < std::pair(y->layer, WordOf(y->role));
  });
  return order;
}

int LayerOf(const Analysis& analysis, int update_index) {
  const AnalysedCache* const cache = CacheOf(analysis, update_index);
  return cache == nullptr ? 0 : cache->layer;
}

absl::Status WithinSteps(const sym::Forms& forms) {
  if (!forms.exhausted()) return absl::OkStatus();
  Limits limits;
  limits.analysis_steps = sym::MaxSteps();
  return OverLimit(&Limits::analysis_steps, limits);
}

std::string DescribeMask(Analysis& analysis, const AttentionSite& site) {
  sym::Pool& pool = analysis.forms->pool();
  const Expr start = CountedUp(*analysis.forms, analysis.updates[site.key.cache].write_index(pool));
  const bool one_token = QueryShape(*analysis.forms, site)[2]->is_integer(1);
  const Visibility v =
      ReadVisibility(*analysis.forms, CountedUp(*analysis.forms, site.mask.keep), start, one_token);
  std::vector<std::string> words;
  if (v.causal) words.push_back("causal");
  bool padding = false, explicit_mask = false;
  for (Expr part : sym::ConjunctsOf(v.rest)) {
    if (const auto back = TokensBack(pool, part, start, one_token)) {
      words.push_back(fmt::format("sliding({})", *back + 1));
      continue;
    }
    const auto sources = sym::SourcesOf(part);
    if (!sources.empty()) {
      const bool plain = std::all_of(sources.begin(), sources.end(), [&](ValueId s) {
        return analysis.graph->type(s).shape && analysis.graph->type(s).shape->size() == 2;
      });
      (plain ? padding : explicit_mask) = true;
    } else if (part == pool.Le(pool.Index(3), pool.Index(2), {})) {
      words.push_back("top-left");
    } else {
      explicit_mask = true;
    }
  }
  if (padding) words.push_back("padding");
  if (explicit_mask) words.push_back("explicit");
  if (!site.mask.biases.empty()) words.push_back("bias");
  if (words.empty()) return "none";
  return fmt::format("{}", fmt::join(words, "+"));
}

namespace {

// Returns the bytes that a cache of this type takes for one token of one sequence.
std::optional<int64_t> BytesPerToken(const TensorType& type, const std::string& layout,
                                     int64_t axis) {
  constexpr int64_t kMost = int64_t{1} << 32;
  if (!type.shape || type.shape->size() != layout.size()) return std::nullopt;
  int64_t bits = ElementBits(type.elem_type);
  if (bits == 0) return std::nullopt;
  for (size_t k = 0; k < layout.size(); ++k) {
    if (static_cast<int64_t>(k) == axis || layout[k] == 'B') continue;
    const auto extent = (*type.shape)[k].value;
    if (!extent || *extent < 1 || *extent > kMost / bits) return std::nullopt;
    bits *= *extent;
  }
  return bits / 8;
}

}  // namespace

Inspection Report(Analysis& a) {
  Inspection report;
  report.nodes = a.graph->num_nodes();
  for (const AnalysedCache& cache : a.caches) {
    const CachePair& pair = cache.candidate.pair;
    CacheReport r;
    r.id = fmt::format("{}.{}", cache.layer, WordOf(cache.role));
    r.layer = cache.layer;
    r.role = cache.role;
    r.input = a.graph->name(pair.past);
    r.output = a.graph->name(pair.present);
    r.kind = cache.update ? cache.update->kind() : cache.candidate.kind;
    r.axis = cache.candidate.axis;
    r.growing = cache.candidate.growing;
    r.dtype = ElementTypeName(a.graph->type(pair.past).elem_type);
    if (cache.reason) r.reason = cache.reason->finding;
    if (cache.update) {
      r.axis = cache.update->axis;
      r.layout = cache.update->layout;
      r.growing = cache.update->grows();
      const Expr start = cache.update->write_index(a.forms->pool());
      const bool fifo = std::holds_alternative<Fifo>(cache.update->how);
      r.write_start = fifo ? "P" : sym::ToString(start, a.graph.get());
      if (!r.growing) {
        r.capacity = sym::ToString(a.forms->Of(pair.past).shape[r.axis], a.graph.get());
      }
      if (cache.update->update != kNoValue) r.update = a.graph->name(cache.update->update);
    } else {
      const sym::Form& form = a.forms->Of(pair.past);
      if (!r.growing && form.known_rank && form.shape.size() > 2) {
        const auto rank = static_cast<int64_t>(form.shape.size());
        const bool known = cache.candidate.converted && r.axis >= 0 && r.axis < rank;
        if (!known) r.axis = 2;
        r.capacity = sym::ToString(form.shape[r.axis], a.graph.get());
      }
      r.layout = LayoutOf(*a.forms, pair, static_cast<int>(r.axis));
    }
    r.bytes_per_token = BytesPerToken(a.graph->type(pair.past), r.layout, r.axis);
    if (const UnpackedCache* packed = a.normalised.unpacked.Find(r.input)) {
      r.input = packed->source.input;
      r.output = packed->source.output;
      if (!packed->scales.input.empty()) r.dtype = ElementTypeName(onnx::TensorProto::INT8);
    }
    report.caches.push_back(std::move(r));
  }
  int number = 0;
  for (const AnalysedAttention& attention : a.attention) {
    AttentionReport r;
    r.id = fmt::format("{}", number++);
    r.form = a.graph->Is(attention.node, "Attention") ? "op" : "decomposed";
    r.reason = attention.reason;
    r.nodes = {a.graph->NodeName(attention.node)};
    if (attention.site) {
      const AttentionSite& site = *attention.site;
      r.q_heads = site.q_heads;
      r.kv_heads = site.key.view.heads;
      r.head_dim = site.head_dim;
      r.v_head_dim = site.v_head_dim;
      r.scale = site.scale;
      r.softcap = site.softcap;
      r.mask = DescribeMask(a, site);
      r.nodes.clear();
      for (NodeId n : site.nodes) r.nodes.push_back(a.graph->NodeName(n));
    }
    report.attention.push_back(std::move(r));
  }
  report.near_misses = a.near_misses;
  return report;
}

}  // namespace kvlift
