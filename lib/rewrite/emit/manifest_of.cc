#include "rewrite/emit/manifest_of.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "base/overloaded.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "rewrite/plan/declared_types.h"
#include "rewrite/recognise/attention/attention_search.h"
#include "sym/forms/keeps_value.h"

namespace kvlift {

namespace {

using sym::Expr;

std::string_view TargetName(Target target) {
  switch (target) {
    case Target::kOrt:
      return "ort";
    case Target::kGenai:
      return "genai";
    case Target::kGenaiStatic:
      return "genai-static";
    case Target::kTensorRt:
      return "tensorrt";
    case Target::kPortable:
      return "portable";
    default:
      return "spec";
  }
}

std::string IdOf(const AnalysedCache& cache) {
  return fmt::format("{}.{}", cache.layer, WordOf(cache.role));
}

const AnalysedCache* CacheNamed(const Analysis& a, ValueId v) {
  for (const AnalysedCache& cache : a.caches) {
    if (cache.update_index < 0) continue;  // stays as it is
    if (cache.candidate.pair.past == v || cache.candidate.pair.present == v) return &cache;
  }
  return nullptr;
}

bool IsFifo(const CacheUpdate& update) { return std::holds_alternative<Fifo>(update.how); }

bool HasFifo(const Analysis& a) {
  return std::any_of(a.updates.begin(), a.updates.end(),
                     [](const CacheUpdate& update) { return IsFifo(update); });
}

ManifestCache DescribeCache(const Analysis& a, const PlannedCache& update,
                            const AnalysedCache& cache) {
  ManifestCache m;
  m.id = IdOf(cache);
  m.layer = cache.layer;
  m.role = cache.role;
  m.input = a.graph->name(update.pair.past);
  m.output = a.graph->name(update.pair.present);
  m.dtype = ElementTypeName(a.graph->type(update.pair.past).elem_type);
  m.layout = update.placement.layout;
  m.axis = update.placement.axis;
  m.alias = CacheAlias::kSafe;
  if (const WindowRing* ring = update.ring()) m.ring = CacheRing{ring->window};
  // A layout of which the result separates heads says that they are on one axis.
  const std::string own = update.placement.split_heads > 0 ? kHeadsInLastAxis : update.layout;
  m.source = {m.input, m.output, update.kind(), own, update.axis, update.grows(), {}};
  if (const auto* all = std::get_if<AppendAll>(&update.how)) m.source.sliding = all->sliding;
  if (const UnpackedCache* packed = a.normalised.unpacked.Find(m.input)) {
    m.source = packed->source;
    m.source.kind = update.kind();
  }
  return m;
}

void AddInputs(const Analysis& a, const ConversionPlan& plan, Manifest* m) {
  std::map<ValueId, int> key_axes;
  for (const auto& [input, axis] : plan.extents.key_length_masks) key_axes[input] = axis;
  const bool padded = plan.mask_width == MaskWidth::kCapacity;
  for (ValueId v : a.graph->graph_inputs()) {
    ManifestInput input;
    input.name = a.graph->name(v);
    const auto assumed = plan.assumed.find(v);
    const AllElements all = assumed != plan.assumed.end() && assumed->second == 0
                                ? AllElements::kZeros
                                : AllElements::kOnes;
    if (plan.dropped.contains(v)) {
      m->dropped.push_back({input.name, all});
      continue;
    }
    const std::vector<std::string>& ones = a.normalised.all_ones;
    if (assumed != plan.assumed.end()) {
      input.all = all;
    } else if (std::find(ones.begin(), ones.end(), input.name) != ones.end()) {
      input.all = AllElements::kOnes;
    }
    const auto mask = key_axes.find(v);
    if (const AnalysedCache* cache = CacheNamed(a, v); cache != nullptr) {
      input.as = CacheInput{IdOf(*cache)};
    } else if (mask != key_axes.end() && padded) {
      input.as = PaddedInput{mask->second, 0};
    }
    m->inputs.push_back(std::move(input));
  }
  const auto* inputs = std::get_if<IndexInputs>(&plan.index);
  if (inputs == nullptr) return;
  const auto add_control = [&](const std::string& name, ControlInput control) {
    if (!name.empty()) m->inputs.push_back({name, std::move(control)});
  };
  add_control(inputs->write_indices, {ControlValue::kPastLength, "int64", {"B"}});
  add_control(inputs->nonpad_kv_seqlen, {ControlValue::kTotalLength, "int64", {"B"}});
  add_control(inputs->tree_mask, {ControlValue::kLowerTriangle, "bool", {"B", "1|N", "S", "S"}});
}

// Returns the starts of all updates of type Write, WriteAt or WriteAround, each once.
template <typename Write>
std::vector<std::string> StartsOf(const Analysis& a) {
  std::vector<std::string> starts;
  for (const CacheUpdate& update : a.updates) {
    const auto* write = std::get_if<Write>(&update.how);
    if (write == nullptr) continue;
    std::string text = sym::ToString(write->start, a.graph.get());
    if (write->start->kind() == sym::Kind::kSelect) text = fmt::format("({})", text);
    if (std::find(starts.begin(), starts.end(), text) == starts.end()) {
      starts.push_back(std::move(text));
    }
  }
  return starts;
}

void AddAssumedMasks(const ConversionPlan& plan, Manifest* m) {
  const auto all = [&](int64_t value) {
    return std::any_of(plan.assumed.begin(), plan.assumed.end(),
                       [&](const auto& input) { return input.second == value; });
  };
  for (const AllElements value : {AllElements::kOnes, AllElements::kZeros}) {
    if (!all(value == AllElements::kOnes ? 1 : 0)) continue;
    m->preconditions.push_back({"KV305", fmt::format("the padding mask is all {}", WordOf(value)),
                                PreconditionStatus::kAssumed});
  }
}

void AddRings(const ConversionPlan& plan, Manifest* m) {
  std::set<std::string> said;
  for (const PlannedCache& cache : plan.caches) {
    const WindowRing* ring = cache.ring();
    if (ring == nullptr) continue;
    const std::string capacity = plan.options.window_capacity
                                     ? fmt::format("{}", *plan.options.window_capacity)
                                     : RingDimension(plan, *ring);
    std::string text = fmt::format("new tokens <= {} - {}", capacity, ring->window);
    if (!said.insert(text).second) continue;
    m->preconditions.push_back({"KV301", std::move(text), PreconditionStatus::kAssumed});
  }
}

// Returns the input that a condition is about; empty if it is about several values, or none.
std::string InputOf(const sym::Forms& forms, Expr predicate) {
  const std::vector<ValueId> sources = sym::SourcesOf(predicate);
  const bool one = sources.size() == 1 && forms.graph().is_graph_input(sources[0]);
  return one ? forms.graph().name(sources[0]) : "";
}

// Returns why no padding tokens may be among those of a step, as the text of a precondition.
std::string WhyNoPadding(const Graph& graph, const NoPadding& why) {
  const auto at = [&](NodeId n) {
    return fmt::format("{} at {}", graph.node(n).op_type(), graph.NodeName(n));
  };
  return std::visit(
      Overloaded{
          [](const StateTakesTokens&) {
            return std::string("a state takes in every token of a step: no pads among them");
          },
          [&](const TokensTogether& together) {
            return fmt::format("{} takes in all tokens of a step: no padding tokens among them",
                               at(together.node));
          },
          [&](const OtherRowsRead& other) {
            return fmt::format(
                "{} computes with other rows of a step: no padding tokens among them",
                at(other.node));
          },
          [&](const LaterTokensSeen& later) {
            return fmt::format("a token sees those behind it at {}: no padding tokens among them",
                               graph.NodeName(later.node));
          },
          [](const IndexFromTotalLength&) {
            return std::string(
                "a step writes the last of the valid rows: no padding tokens behind its own");
          }},
      why);
}

// Returns true if an attention of the source reads slots that hold no token: a buffer without a
// mask, or with one behind which scores are quantised, or hidden keys get a weight.
bool ReadsAllSlots(const Analysis& a) {
  const bool buffers = absl::c_any_of(a.updates, [](const CacheUpdate& u) { return !u.grows(); });
  return absl::c_any_of(a.attention, [&](const AnalysedAttention& attention) {
    const bool weighs = QuantizerOfScores(*a.graph, attention.node) != kNoNode ||
                        (!attention.site && MayWeighHiddenKeys(*a.graph, attention.node));
    if (weighs && buffers) return true;
    if (!attention.site || attention.site->key.cache < 0) return false;
    const CacheUpdate& update = a.updates[static_cast<size_t>(attention.site->key.cache)];
    return !update.grows() && attention.site->mask.keep->is_integer(1);
  });
}

void AddPreconditions(const Analysis& a, const ConversionPlan& plan, Manifest* m) {
  const auto* inputs = std::get_if<IndexInputs>(&plan.index);
  const std::string past = inputs == nullptr ? "the past's length" : inputs->write_indices;
  if (std::any_of(plan.caches.begin(), plan.caches.end(),
                  [](const PlannedCache& cache) { return cache.grows() && cache.linear(); })) {
    m->preconditions.push_back(
        {"KV301", fmt::format("0 <= {0} and {0} + new tokens <= capacity, for each sequence", past),
         PreconditionStatus::kGuarded});
  }
  for (const std::string& start : StartsOf<WriteAt>(a)) {
    m->preconditions.push_back({"KV301",
                                fmt::format("0 <= {0} and {0} + new tokens <= capacity", start),
                                PreconditionStatus::kGuarded});
  }
  std::vector<std::string> around = StartsOf<WriteAround>(a);
  if (HasFifo(a)) around.push_back(past);
  for (const std::string& start : around) {
    m->preconditions.push_back({"KV301", fmt::format("0 <= {} and new tokens <= capacity", start),
                                PreconditionStatus::kGuarded});
  }
  AddRings(plan, m);
  m->preconditions.push_back(
      {"KV302",
       ReadsAllSlots(a)
           ? "unused cache slots, which attention reads, hold the numbers that they would hold in "
             "the source: fill new caches alike, with zeros"
           : "unused cache slots hold finite numbers: fill new caches with zeros",
       PreconditionStatus::kAssumed});
  for (const CacheUpdate& update : a.updates) {
    if (!sym::HoldsFewerNumbers(*a.forms, update.pair.past)) continue;
    const std::string& name = a.graph->name(update.pair.past);
    m->preconditions.push_back({"KV311",
                                fmt::format("{} holds {}, as every {} does", name,
                                            a.forms->NumbersOf(update.pair.past).Text(),
                                            a.graph->name(update.pair.present)),
                                PreconditionStatus::kAssumed, name});
  }
  for (const sym::FormAssumption& assumption : plan.assumptions) {
    const bool of_sizes = sym::SourcesOf(assumption.predicate).empty();
    m->preconditions.push_back({of_sizes ? "KV309" : "KV307", assumption.text,
                                PreconditionStatus::kAssumed,
                                InputOf(*a.forms, assumption.predicate)});
  }
  if (plan.may_hide_all_keys) {
    const bool additive = plan.options.mask == MaskForm::kAdditive;
    m->preconditions.push_back(
        {"KV303",
         fmt::format("queries that see no key at all (padding tokens in front of a sequence, or "
                     "tokens whose mask hides every key) get {} where the source may give {}",
                     additive ? "an average over all slots" : "0",
                     additive ? "0, NaN or another average" : "an average or NaN"),
         PreconditionStatus::kAssumed});
  }
  if (a.updates.size() > 1 && (plan.grows() || HasFifo(a))) {
    m->preconditions.push_back({"KV304", "all caches of a step hold the same number of tokens",
                                PreconditionStatus::kAssumed});
  }
  if (plan.no_padding) {
    m->preconditions.push_back(
        {"KV236", WhyNoPadding(*a.graph, *plan.no_padding), PreconditionStatus::kAssumed});
  }
  AddAssumedMasks(plan, m);
  if (plan.uniform && plan.grows()) {
    m->preconditions.push_back({"KV306", "all sequences of a batch hold the same number of tokens",
                                PreconditionStatus::kAssumed});
  }
}

// Sets the capacity of a model whose caches are buffers: the number of slots of the smallest one,
// and the name that the first one gives to it.
void SetCapacityOfBuffers(const Analysis& a, Manifest* m) {
  std::optional<int64_t> least;
  for (const CacheUpdate& update : a.updates) {
    const Expr slots = a.forms->Of(update.pair.past).shape[update.axis];
    if (slots->kind() != sym::Kind::kInteger) continue;
    least = std::min(least.value_or(slots->value()), slots->value());
  }
  if (least) m->capacity_value = least;
  const CacheUpdate& first = a.updates.front();
  const Expr slots = a.forms->Of(first.pair.past).shape[first.axis];
  if (slots->kind() == sym::Kind::kDim) m->capacity_dim = slots->dim().name();
}

}  // namespace

Manifest MakeManifest(const Analysis& a, const ConversionPlan& plan) {
  Manifest m;
  m.target = TargetName(plan.options.target);
  m.capacity_dim = CapacityDimension(*a.graph);
  m.capacity_value = plan.options.max_seq_len;
  const bool circular =
      std::any_of(plan.caches.begin(), plan.caches.end(),
                  [](const PlannedCache& cache) { return !cache.grows() && !cache.linear(); });
  m.mode = circular ? BufferMode::kCircular : BufferMode::kLinear;
  m.read = plan.prefix_read() ? CacheRead::kPrefix : CacheRead::kFull;
  m.uniform = plan.uniform_reason.has_value();
  m.uniform_reason = plan.uniform_reason.value_or("");
  if (!plan.grows()) SetCapacityOfBuffers(a, &m);
  for (const AnalysedCache* cache : ConvertedCaches(a)) {
    m.caches.push_back(DescribeCache(a, plan.caches[cache->update_index], *cache));
  }
  AddInputs(a, plan, &m);
  for (ValueId v : a.graph->graph_outputs()) {
    ManifestOutput output;
    output.name = a.graph->name(v);
    if (const AnalysedCache* cache = CacheNamed(a, v); cache != nullptr) {
      output.as = CacheOutput{IdOf(*cache)};
    }
    m.outputs.push_back(std::move(output));
  }
  AddPreconditions(a, plan, &m);
  const Normalised& normalised = a.normalised;
  m.dropped.insert(m.dropped.end(), normalised.dropped.begin(), normalised.dropped.end());
  m.preconditions.insert(m.preconditions.end(), normalised.preconditions.begin(),
                         normalised.preconditions.end());
  m.limits = normalised.limits;
  return m;
}

}  // namespace kvlift
