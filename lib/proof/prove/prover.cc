#include "proof/prove/prover.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "contract/padding.h"
#include "fmt/format.h"
#include "proof/correspondence/correspondence.h"
#include "proof/correspondence/equality.h"
#include "proof/correspondence/length_limits.h"
#include "proof/correspondence/read_fed_rules.h"
#include "proof/dependence/other_dimensions.h"
#include "proof/dependence/padding_independence.h"
#include "proof/dependence/sequences_apart.h"
#include "proof/facts/cache_facts.h"
#include "proof/facts/fact_list.h"
#include "proof/facts/guards.h"
#include "proof/facts/lookups.h"
#include "proof/facts/matches.h"
#include "proof/facts/nodes.h"
#include "proof/facts/required_inputs.h"
#include "proof/facts/unmet_conditions.h"
#include "proof/graphs/constants.h"
#include "proof/graphs/frozen_sizes.h"
#include "proof/graphs/pair.h"
#include "proof/lower/branches.h"
#include "proof/lower/expand_contrib_ops.h"
#include "proof/prove/attention_pairs.h"
#include "proof/prove/unrestricted_source.h"
#include "proof/rows/slot_outputs.h"

namespace kvlift {
namespace {

using sym::Expr;

// Returns true if sequences have to be shown not to influence each other. They do not have to be if
// both models run all sequences at once: with one common length, as caches that grow in both models
// have, or with the same lengths given to both and fixed buffers.
bool IsForEachSequence(const Manifest& relation) {
  const bool grows = std::any_of(relation.caches.begin(), relation.caches.end(), BecomesBuffer);
  const bool has_control =
      std::any_of(relation.inputs.begin(), relation.inputs.end(),
                  [](const ManifestInput& input) { return AsControl(input) != nullptr; });
  return !relation.uniform && !relation.outputs.empty() && (grows || has_control);
}

class Prover {
 public:
  // open: null if the source was not restricted.
  Prover(const GraphPair& pair, const Manifest& relation, const std::vector<LengthClaim>& claims,
         const SourceCase& steps, Obligations* obligations, UnrestrictedSource* open)
      : open_(open),
        pair_(pair),
        graph_(pair.graph()),
        forms_(pair.forms()),
        pool_(forms_.pool()),
        relation_(relation),
        claims_(claims),
        steps_(steps),
        twins_(pair, relation, claims, steps),
        equality_(forms_, &twins_, obligations),
        facts_(forms_, relation, twins_, equality_),
        cache_facts_(pair, steps, twins_, &equality_, &facts_),
        required_(pair),
        nodes_(pair, twins_, equality_),
        matches_(pair, steps.past != SourceCase::Past::kAny, &twins_, &nodes_),
        attentions_(pair, relation, required_, &twins_, &equality_, &matches_, &facts_) {}

  // Returns true if the expanded operators of both models are given the lengths that their
  // expansion assumes: the source's are shown to be, and each of the converted model, in `after`,
  // has the lengths, the past and the number of tokens of one of the source's.
  bool ClaimsHold(const std::vector<LengthClaim>& after) const {
    const bool hold = std::all_of(claims_.begin(), claims_.end(), [&](const LengthClaim& claim) {
      const Expr beyond = twins_.Beyond(claim);
      return beyond != nullptr && beyond->is_integer(0);
    });
    return hold && std::all_of(after.begin(), after.end(), [&](const LengthClaim& claim) {
             return std::any_of(claims_.begin(), claims_.end(), [&](const LengthClaim& source) {
               return SameClaim(source, claim);
             });
           });
  }

  Proof Run(const std::vector<LayerBoundary>& boundaries) {
    // One node may make the presents of several caches. Those that no node of the converted model
    // makes stand under kNoNode.
    absl::flat_hash_map<NodeId, std::vector<const ManifestCache*>> writes;
    for (const ManifestCache& cache : relation_.caches) {
      const ValueId present = pair_.After(cache.output);
      const NodeId maker = present == kNoValue ? kNoNode : graph_.producer(present);
      writes[maker != kNoNode && pair_.IsInAfter(maker) ? maker : kNoNode].push_back(&cache);
    }
    const auto made_by = [&](NodeId maker) -> absl::Span<const ManifestCache* const> {
      const auto it = writes.find(maker);
      return it == writes.end() ? absl::Span<const ManifestCache* const>() : it->second;
    };
    const auto prove_caches = [&](NodeId maker) {
      for (const ManifestCache* cache : made_by(maker)) {
        StartFactsOf(pair_.Before(cache->source.output));
        cache_facts_.Prove(*cache);
      }
    };
    const Expr guards = GuardsOf(pair_, twins_);
    if (std::string why = twins_.Contradiction({guards, twins_.Fits()}); !why.empty()) {
      Proof proof;
      proof.not_tried = std::move(why);
      return proof;
    }
    const std::vector<Assumption> stops = StepsThatStop(guards);
    equality_.Suppose(guards);
    // Nodes come in topological order, so operands are matched before their readers.
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (!pair_.IsInAfter(n)) continue;
      if (OnlyFillsBuffers(n, made_by(n))) {
        prove_caches(n);
        continue;
      }
      if (graph_.Is(n, "Attention") && attentions_.Prove(n)) {
        matches_.MatchFurther(n);
      } else {
        matches_.Match(n);
        if (graph_.Is(n, "Attention")) attentions_.ProveBesideCaches(n);
      }
      prove_caches(n);
    }
    prove_caches(kNoNode);
    ProveSequencesApart();
    for (const ManifestOutput& output : relation_.outputs) {
      if (!IsCache(output)) ProveOutput(output);
    }
    for (const UnmetConditions& unmet :
         {UnmetConditionsOf(pair_, twins_, equality_), LookupsOutside(pair_, twins_, equality_)}) {
      for (const auto& [value, why] : unmet) {
        twins_.TakeGrounds();
        facts_.Add(value, "has operands that fit each other", why);
      }
    }
    for (const LayerBoundary& boundary : boundaries) {
      StartFactsOf(pair_.Before(boundary.before_out));
      const std::string why = WhyInductionFails(boundary, pair_, twins_, &nodes_);
      facts_.Add(boundary.after_out,
                 "leaves its layer as it is in the source, as large as what entered", why);
    }
    Proof proof = facts_.Take(steps_.text);
    NameLimit(&proof);
    for (const sym::FormAssumption& assumption : forms_.assumptions()) {
      const auto kind = KindOf(assumption.reason);
      // The other conditions of the converted model's own nodes were checked
      // (proof/facts/unmet_conditions.h).
      if (pair_.IsInAfter(assumption.node) && !EntersLedger(assumption)) continue;
      const bool of_emptiness = assumption.reason == sym::AssumptionReason::kNotEmpty;
      if (of_emptiness && HoldsInEveryStep(forms_, assumption.predicate, twins_.past())) continue;
      if (!kind) continue;
      proof.assumptions.Add({*kind, "", assumption.text, AssumptionSource::kHost});
      // What the converted model alone needs excludes no step: such steps are compared.
      if (pair_.IsInAfter(assumption.node)) continue;
      if (auto fed = FedConditionOf(pair_, assumption)) {
        proof.fed.conditions.push_back(*std::move(fed));
      }
    }
    for (const Assumption& stop : stops) proof.assumptions.Add(stop);
    proof.lengths = LengthLimitsOf(pair_, twins_);
    proof.slot_outputs = SlotOutputsOf(pair_, relation_);
    proof.fed.Add(twins_.equal_sizes());
    if (steps_.past != SourceCase::Past::kAny) {
      for (FedCondition& condition : proof.fed.conditions) {
        condition.with_past = steps_.past == SourceCase::Past::kSome;
      }
    }
    HoldOtherDimensions(&proof);
    ExcludePadding(&proof);
    return proof;
  }

 private:
  // Returns entries for the conditions without which the converted model stops (GuardsOf), apart
  // from those that hold wherever the rows of a step fit into the buffers.
  std::vector<Assumption> StepsThatStop(Expr guards) {
    std::vector<Assumption> stops;
    for (const Expr guard : sym::ConjunctsOf(guards)) {
      if (equality_.Follows(twins_.Fits(), guard, sym::Facts{})) continue;
      stops.push_back({AssumptionKind::kOther, "write index",
                       fmt::format("{}; the converted model stops in other steps",
                                   sym::ToString(guard, &graph_)),
                       AssumptionSource::kOperator, true});
    }
    return stops;
  }

  // Returns true if all results of a node are the presents of buffers: `caches` are those that it
  // makes. The source has no such node.
  bool OnlyFillsBuffers(NodeId n, absl::Span<const ManifestCache* const> caches) const {
    const auto results = graph_.outputs(n);
    return !caches.empty() && std::all_of(results.begin(), results.end(), [&](ValueId result) {
      return result == kNoValue ||
             std::any_of(caches.begin(), caches.end(), [&](const ManifestCache* cache) {
               return !cache->grows && pair_.After(cache->output) == result;
             });
    });
  }

  // Says of open facts that nothing more is proved behind the limit of the pool.
  void NameLimit(Proof* proof) const {
    if (!pool_.exhausted()) return;
    for (ProofFact& fact : proof->facts) {
      if (fact.status != FactStatus::kOpen) continue;
      fact.why_not = fmt::format("the limit of {} steps is reached (--max-analysis-steps): {}",
                                 sym::MaxSteps(), fact.why_not);
    }
  }

  // If all sequences have one length, one run of the source covers them, and they need not be
  // independent.
  void ProveSequencesApart() {
    if (!IsForEachSequence(relation_)) return;
    twins_.TakeGrounds();
    const std::string why = Mixed();
    const std::string text = "gives each sequence what the source gives that sequence alone";
    facts_.Add(relation_.outputs.front().name, text, why);
  }

  // Says why the results of a sequence may depend on others. A single sequence has no others.
  std::string Mixed() {
    const Expr sequences = twins_.sequences();
    const bool several = sequences != nullptr && sequences->kind() == sym::Kind::kInteger &&
                         !sequences->is_integer(1);
    if (open_ == nullptr || !several)
      return FirstDependentOutput(pair_, twins_, equality_, relation_);
    const Expr open = open_->twins().sequences();
    if (open == nullptr || open->kind() != sym::Kind::kDim) {
      return "the number of sequences has no name";
    }
    return FirstDependentOutput(open_->pair(), open_->twins(), open_->equality(), relation_);
  }

  // Returns why padding tokens may change the results for real tokens. In a model with static
  // shapes a host pads each step that has fewer tokens, whatever the source would be given.
  PaddingReach ReachedByPadding() {
    const Expr tokens = twins_.new_tokens();
    if (open_ != nullptr && tokens != nullptr && tokens->kind() == sym::Kind::kInteger) {
      if (tokens->is_integer(1)) return {};
      const Expr open = open_->twins().new_tokens();
      const bool named = open != nullptr && open->kind() == sym::Kind::kDim;
      if (!named) return {"the number of tokens has no name"};
      return ReachOfPadding(open_->pair(), open_->twins(), {}, relation_);
    }
    PaddingReach reach = ReachOfPadding(pair_, twins_, attentions_.proved(), relation_);
    // All sequences are in one run of the source, which then has the same padding tokens.
    if (relation_.uniform && !reach.with_same_padding) reach.why = Mixed();
    return reach;
  }

  // Adds that axes of inputs have one size in the runs of all sequences, where the source runs once
  // for each.
  void HoldOtherDimensions(Proof* proof) const {
    if (!IsForEachSequence(relation_)) return;
    for (const InputAxis& other : OtherDimensions(pair_, twins_, relation_)) {
      proof->assumptions.Add(
          {AssumptionKind::kOtherDimension, other.input,
           fmt::format("{}.shape[{}] is the same for each sequence alone, without padding tokens",
                       other.input, other.axis),
           AssumptionSource::kHost});
      proof->fed.common.push_back(other);
    }
  }

  // Returns true if some fact holds only for queries that see a key. Padding tokens in front of a
  // sequence see none.
  static bool NeedsVisibleKeys(const Proof& proof) {
    return std::any_of(proof.facts.begin(), proof.facts.end(), [](const ProofFact& fact) {
      return std::any_of(fact.given.begin(), fact.given.end(), [](const Assumption& given) {
        return given.kind == AssumptionKind::kVisibleKey;
      });
    });
  }

  // Adds the assumption that steps have no padding tokens if they may change the results for real
  // tokens: the source then computes something else in a step with fewer tokens, or with fewer
  // sequences.
  void ExcludePadding(Proof* proof) {
    const bool grows = std::any_of(relation_.caches.begin(), relation_.caches.end(),
                                   [](const ManifestCache& cache) { return cache.source.growing; });
    if (!grows || ExcludesPadding(relation_)) return;
    const PaddingReach reach = ReachedByPadding();
    std::string why = reach.why;
    if (!HoldsWhole(*proof) && !(relation_.uniform && reach.with_same_padding)) return;
    if (why.empty() && open_ == nullptr && NeedsVisibleKeys(*proof)) {
      why = ReachOfRowsWithoutKeys(pair_, twins_, attentions_.proved(), relation_).why;
    }
    twins_.TakeGrounds();
    if (why.empty()) return;
    proof->assumptions.Add({AssumptionKind::kPadding, "",
                            fmt::format("no step has padding tokens: {}", why),
                            AssumptionSource::kHost});
  }

  // Returns the ledger's kind for an assumption of the forms; nullopt if the correspondence has
  // entered it already.
  static std::optional<AssumptionKind> KindOf(sym::AssumptionReason reason) {
    switch (reason) {
      case sym::AssumptionReason::kInside:
        return AssumptionKind::kIndexRange;
      case sym::AssumptionReason::kCountsUp:
        return AssumptionKind::kPositions;
      case sym::AssumptionReason::kFinite:
        return AssumptionKind::kFinite;
      case sym::AssumptionReason::kSmall:
        return AssumptionKind::kIntegerRange;
      case sym::AssumptionReason::kNotEmpty:
      case sym::AssumptionReason::kDeclared:
        return AssumptionKind::kOther;
      case sym::AssumptionReason::kEqualExtents:
      case sym::AssumptionReason::kBroadcast:
        break;
    }
    return std::nullopt;
  }

  // Starts facts about a value of the source.
  void StartFactsOf(ValueId of_source) {
    twins_.TakeGrounds();
    facts_.RestOn(required_.GroundsOf(of_source));
  }

  void ProveOutput(const ManifestOutput& output) {
    const ValueId mine = pair_.After(output.name);
    const ValueId theirs = pair_.Before(NameInSource(output));
    StartFactsOf(theirs);
    const char* text = "outside the attentions, the source's operators over the source's values";
    const Sameness same = nodes_.Compare(mine, theirs);
    const Grounds grounds = twins_.TakeGrounds();
    if (same == Sameness::kWhole && !grounds.doubted) {
      twins_.RestOn(grounds);
      facts_.Add(output.name, text, "");
    } else if (same == Sameness::kInCommon && !grounds.doubted) {
      facts_.Add(output.name, text, "it is not shown to have the source's extents");
    } else if (const auto first = matches_.FirstUnlike(mine);
               first.refuted && same == Sameness::kWhole) {
      facts_.AddRefuted(output.name, text, first.text);
    } else {
      facts_.Add(output.name, text, first.text);
    }
  }

  UnrestrictedSource* const open_;
  const GraphPair& pair_;
  const Graph& graph_;
  sym::Forms& forms_;
  sym::Pool& pool_;
  const Manifest& relation_;
  bool SameClaim(const LengthClaim& source, const LengthClaim& after) const {
    const ValueId value = pair_.After(after.value);
    if (source.less != after.less || value == kNoValue || value != pair_.Before(source.value)) {
      return false;
    }
    const bool grows = std::any_of(
        relation_.caches.begin(), relation_.caches.end(), [&](const ManifestCache& cache) {
          return cache.grows && cache.input == after.past && cache.source.input == source.past;
        });
    if (!grows && pair_.After(after.past) != pair_.Before(source.past)) return false;
    const sym::Form theirs = forms_.Of(pair_.Before(source.queries));
    const sym::Form mine = forms_.Of(pair_.After(after.queries));
    return theirs.known_rank && mine.known_rank && theirs.shape.size() > 1 &&
           mine.shape.size() > 1 && theirs.shape[1] == mine.shape[1];
  }

  const std::vector<LengthClaim>& claims_;
  const SourceCase& steps_;
  Correspondence twins_;
  Equality equality_;
  FactList facts_;
  CacheFacts cache_facts_;
  RequiredInputs required_;
  Nodes nodes_;
  Matches matches_;
  AttentionPairs attentions_;
};

// Returns the pasts that the relation calls sliding buffers.
std::vector<SlidingPast> SlidingPastsOf(const Manifest& relation) {
  std::vector<SlidingPast> pasts;
  for (const ManifestCache& cache : relation.caches) {
    if (!cache.source.sliding) continue;
    pasts.push_back(
        {cache.source.input, cache.source.output, cache.source.axis, *cache.source.sliding});
  }
  return pasts;
}

// Returns the first input that is not among `names`.
std::string NameOfOther(const std::vector<SlidingPast>& pasts,
                        const std::vector<std::string>& names) {
  for (const SlidingPast& past : pasts) {
    if (std::find(names.begin(), names.end(), past.input) == names.end()) return past.input;
  }
  return "";
}

}  // namespace

Proof ProveCase(const onnx::ModelProto& before, const onnx::ModelProto& after,
                const Manifest& relation, const SourceCase& steps,
                const std::vector<LayerBoundary>& boundaries, Obligations* obligations) {
  Proof proof;
  const std::vector<NamedSize> sizes = FrozenSizesOf(before, after, relation);
  const auto restricted = sizes.empty() ? nullptr : WithSizes(before, sizes);
  const onnx::ModelProto& source = restricted == nullptr ? before : *restricted;
  const std::vector<SlidingPast> sliding = SlidingPastsOf(relation);
  for (const bool lengths : {true, false}) {
    ExpandedModel plain = ExpandContribOps(source, lengths, sliding),
                  mine = ExpandContribOps(after, lengths, {});
    ShareConstants(&plain.model, &mine.model);
    if (plain.grown.size() != sliding.size() && !lengths) {
      proof.not_tried =
          "the lengths of a GroupQueryAttention over sliding buffers are not shown to be P + S";
      return proof;
    }
    if (plain.grown.size() != sliding.size()) {
      proof.not_tried = fmt::format(
          "the past of no GroupQueryAttention over sliding buffers is {}, as the relation says",
          NameOfOther(sliding, plain.grown));
      return proof;
    }
    const auto pair = GraphPair::Create(plain.model, mine.model, relation);
    if (!pair.ok()) {
      proof.not_tried = std::string(pair.status().message());
      return proof;
    }
    std::unique_ptr<UnrestrictedSource> open;
    if (!sizes.empty()) {
      auto created = UnrestrictedSource::Create(ExpandContribOps(before, lengths, sliding),
                                                mine.model, relation, steps);
      if (!created.ok()) {
        proof.not_tried = std::string(created.status().message());
        return proof;
      }
      open = *std::move(created);
    }
    Prover prover(*pair, relation, plain.claims, steps, obligations, open.get());
    if (!prover.ClaimsHold(mine.claims)) continue;
    proof = prover.Run(boundaries);
    proof.assumptions.Add(RestrictionsTo(sizes, before, relation));
    for (const ManifestCache& cache : relation.caches) {
      if (cache.source.sliding) proof.assumptions.Add(HoldsNewest(cache.source));
    }
    for (const ExpandedModel* model : {&plain, &mine}) {
      for (const std::string& positions : model->positions) {
        proof.assumptions.Add({AssumptionKind::kPositions, positions,
                               fmt::format("{} holds the positions P..T-1", positions),
                               AssumptionSource::kHost});
      }
    }
    break;
  }
  return proof;
}

size_t NumberOfOutputFacts(const Manifest& relation) {
  const auto outputs = std::count_if(relation.outputs.begin(), relation.outputs.end(),
                                     [](const ManifestOutput& o) { return !IsCache(o); });
  return static_cast<size_t>(outputs) + (IsForEachSequence(relation) ? 1 : 0);
}

}  // namespace kvlift
