#include "proof/prove/prove_conversion.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>

#include "base/status.h"
#include "contract/layout.h"
#include "fmt/format.h"
#include "ir/operators/operator_changes.h"
#include "onnxio/model/gated_sinks.h"
#include "onnxio/model/model.h"
#include "onnxio/model/round_rows.h"
#include "proof/correspondence/obligations.h"
#include "proof/graphs/constants.h"
#include "proof/graphs/frozen_sizes.h"
#include "proof/graphs/pair.h"
#include "proof/graphs/plain_products.h"
#include "proof/lemmas/scale_moved.h"
#include "proof/lower/branches.h"
#include "proof/lower/expand_requantized.h"
#include "proof/lower/one_length.h"
#include "proof/lower/opset13.h"
#include "proof/prove/folding.h"
#include "proof/prove/prover.h"
#include "proof/prove/same_model.h"
#include "proof/prove/select_branches.h"
#include "proof/rows/slot_outputs.h"
#include "proof/rows/windows.h"
#include "sym/forms/forms.h"
#include "sym/sizes/equal_names.h"

namespace kvlift {
namespace {

// How the flags of the host, such as use_cache_branch, go with the past.
enum class Flags { kTrueWithPast, kTrueWithoutPast, kAny };

// Returns the cases of steps with a past and without one, for all values of the flags that occur;
// all flags have one value in a step.
std::vector<SourceCase> CasesOf(const Manifest& relation, const std::vector<std::string>& flags,
                                Flags rule) {
  std::vector<SourceCase> cases;
  for (const bool past : {true, false}) {
    for (const bool flag : {past, !past}) {
      const bool tied = rule == Flags::kTrueWithPast ? flag == past : flag != past;
      if (rule != Flags::kAny && !tied) continue;
      SourceCase& steps = cases.emplace_back();
      steps.past = past ? SourceCase::Past::kSome : SourceCase::Past::kNone;
      steps.one_token = past && relation.limits.new_tokens_with_past == 1;
      steps.flag = flag;
      steps.text = past ? "steps with a past" : "steps without a past";
      if (flags.empty()) continue;
      steps.text += fmt::format(", {} = {}", fmt::join(flags, " = "), flag ? 1 : 0);
    }
  }
  return cases;
}

void Append(const Proof& part, Proof* whole) {
  whole->facts.insert(whole->facts.end(), part.facts.begin(), part.facts.end());
  whole->assumptions.Add(part.assumptions);
  whole->lengths.insert(whole->lengths.end(), part.lengths.begin(), part.lengths.end());
  whole->fed.Add(part.fed);
  for (const SlotOutput& output : part.slot_outputs) {
    auto& all = whole->slot_outputs;
    if (std::find(all.begin(), all.end(), output) == all.end()) all.push_back(output);
  }
  if (!part.not_tried.empty()) whole->not_tried = part.not_tried;
}

// Proves equal layers once if that proves all facts, and else each layer. `runs`: the number of
// runs of equal layers that were shortened so far.
Proof ProveSteps(const onnx::ModelProto& source, const onnx::ModelProto& result,
                 const Manifest& relation, const SourceCase& steps, Obligations* obligations,
                 const std::vector<LayerBoundary>& boundaries = {}, int runs = 0) {
  constexpr int kMostRuns = 8;
  if (const auto folded = FoldLayers(source, result, relation); folded && runs < kMostRuns) {
    std::vector<LayerBoundary> all = boundaries;
    all.insert(all.end(), folded->boundaries.begin(), folded->boundaries.end());
    const Proof proof = ProveSteps(folded->before, folded->after, folded->relation, steps,
                                   obligations, all, runs + 1);
    if (auto whole = Unfold(*folded, relation, boundaries.size(), proof)) return *std::move(whole);
  }
  return ProveCase(source, result, relation, steps, boundaries, obligations);
}

// Writes products and equal constants of two models without branches in the same way.
void Align(onnx::ModelProto* source, onnx::ModelProto* result) {
  *source = WithPlainProducts(std::move(*source));
  *result = WithPlainProducts(std::move(*result));
  ShareConstants(source, result);
}

Proof ProveBranches(const onnx::ModelProto& source, const onnx::ModelProto& result,
                    const Manifest& relation, const std::vector<SourceCase>& cases,
                    Obligations* obligations) {
  Proof proof;
  for (const SourceCase& steps : cases) {
    auto taken = TakeBranches(source, relation, steps);
    auto mine = TakeBranches(result, relation, steps);
    if (!taken.ok() || !mine.ok()) {
      proof.facts.clear();
      proof.not_tried = std::string((taken.ok() ? mine.status() : taken.status()).message());
      return proof;
    }
    Align(&*taken, &*mine);
    Append(ProveSteps(*taken, *mine, relation, steps, obligations), &proof);
  }
  return proof;
}

// If the source's cache is the same ring, it is treated as any other fixed buffer.
Manifest WithoutCommonRings(Manifest relation) {
  for (ManifestCache& cache : relation.caches) {
    if (!cache.source.growing) cache.ring.reset();
  }
  return relation;
}

// Writes sizes that operators fix into both models. Those of the source restrict nothing. One that
// only the result fixes is left open, because the result would refuse steps that the source takes.
void DeclareFixedSizes(onnx::ModelProto* source, onnx::ModelProto* result) {
  const std::vector<NamedSize> theirs = SizesFixedByOperators(*source);
  std::vector<NamedSize> mine = SizesFixedByOperators(*result);
  std::erase_if(mine, [&](const NamedSize& size) {
    return std::find(theirs.begin(), theirs.end(), size) == theirs.end();
  });
  DeclareSizes(theirs, source->mutable_graph());
  DeclareSizes(mine, result->mutable_graph());
}

// Gives one name to sizes that operators in front of the source's presents make equal, which
// excludes no step (EqualNamesOf). Also gives the name of B to the rows of matrices that the source
// reads as one row per sequence (RowNamesOf); the ledger's entry on sizes of one name states that.
void ShareEqualNames(const Manifest& relation, onnx::ModelProto* source) {
  const auto graph =
      Graph::Build(std::shared_ptr<const onnx::ModelProto>(source, [](const auto*) {}));
  if (!graph.ok()) return;
  sym::Forms forms(*graph);
  for (const ManifestCache& cache : relation.caches) {
    if (const ValueId v = graph->Find(cache.source.output); v != kNoValue) forms.Of(v);
  }
  const sym::SizeNames equal = sym::EqualNamesOf(forms), rows = sym::RowNamesOf(forms);
  sym::RenameSizes(rows, source->mutable_graph());
  sym::RenameSizes(equal, source->mutable_graph());
}

// The assumption under which forms decide that integers stay within their type (sym/forms/forms.h).
Assumption SmallSizes() {
  return {AssumptionKind::kIntegerRange, "sizes and integers",
          fmt::format("no axis has more than {0} elements, and integers that a host feeds lie "
                      "between -{0} and {0}",
                      sym::MostSize()),
          AssumptionSource::kHost, false};
}

// Returns the model at opset 13 or later, with quantisers of presents at the rows, sinks as keys,
// and Concat and Where in place of operators that put quantised numbers together.
absl::StatusOr<onnx::ModelProto> Normal(onnx::ModelProto model) {
  KV_ASSIGN_OR_RETURN(onnx::ModelProto raised, AsOpset13(std::move(model)));
  KV_ASSIGN_OR_RETURN(onnx::ModelProto plain, ExpandRequantized(std::move(raised)));
  KV_ASSIGN_OR_RETURN(RewrittenModel rounded, RoundRowsFirst(std::move(plain)));
  KV_ASSIGN_OR_RETURN(RewrittenModel keyed, KeyGatedSinks(std::move(rounded.model)));
  return std::move(keyed.model);
}

// `tokens_fit`: SourceCase::tokens_fit of all cases.
Proof ProveWithoutBranches(onnx::ModelProto source, onnx::ModelProto result,
                           const Manifest& relation, Obligations* obligations,
                           bool tokens_fit = false) {
  Align(&source, &result);
  Proof proof;
  for (SourceCase& steps : WindowCases(relation)) {
    steps.tokens_fit = tokens_fit;
    Append(ProveSteps(source, result, relation, steps, obligations), &proof);
  }
  return proof;
}

// `tokens_fit`: SourceCase::tokens_fit of all cases. Models with branches are not tried with it.
Proof ProveAll(const onnx::ModelProto& before, const onnx::ModelProto& after,
               const Manifest& manifest, Obligations* obligations, bool tokens_fit = false) {
  Proof proof;
  const Manifest relation = WithoutCommonRings(manifest);
  auto flat = InlineFunctions(before);
  auto result = InlineFunctions(after);
  if (!flat.ok() || !result.ok()) {
    proof.not_tried = "model-local functions cannot be inlined";
    return proof;
  }
  // Nodes are compared by operator name and attributes, so names must mean the same in both opsets.
  if (const std::string op = OperatorWithOtherMeaning(*flat, DefaultOpset(*result)); !op.empty()) {
    proof.not_tried = fmt::format("{} means something else in the other model's operator set", op);
    return proof;
  }
  auto source = Normal(*std::move(flat));
  if (!source.ok()) {
    proof.not_tried = std::string(source.status().message());
    return proof;
  }
  result = Normal(*std::move(result));
  if (!result.ok()) {
    proof.not_tried = std::string(result.status().message());
    return proof;
  }
  SeparateWindowLengths(relation, &*source);
  ShareLengths(relation, &*source);
  ShareEqualNames(relation, &*source);
  DeclareFixedSizes(&*source, &*result);
  if (!HasBranches(*source)) {
    return ProveWithoutBranches(*std::move(source), *std::move(result), relation, obligations,
                                tokens_fit);
  }
  if (tokens_fit) return proof;
  const std::vector<std::string> flags = KeptFlags(*source, relation);
  // Flags that have to go with the past are an assumption.
  std::vector<Flags> rules = {Flags::kTrueWithPast};
  if (flags.size() == 1) rules.insert(rules.begin(), Flags::kAny);
  if (!flags.empty()) rules.push_back(Flags::kTrueWithoutPast);
  std::optional<Proof> kept;  // the first that holds, or else that of flags that say "a past"
  Obligations of_kept;
  for (const Flags rule : rules) {
    Obligations own;  // only those of the proof that is kept are returned
    Proof found = ProveBranches(*source, *result, relation, CasesOf(relation, flags, rule),
                                obligations == nullptr ? nullptr : &own);
    for (const std::string& flag : flags) {
      if (rule == Flags::kAny) break;
      found.assumptions.Add({AssumptionKind::kPastFlag, flag,
                             fmt::format("{} is true where there is {}past", flag,
                                         rule == Flags::kTrueWithPast ? "a " : "no "),
                             AssumptionSource::kHost, false});
    }
    const bool holds = HoldsWhole(found);
    if (holds || (rule == Flags::kTrueWithPast && !kept)) {
      kept = std::move(found);
      of_kept = std::move(own);
    }
    if (holds) break;
  }
  if (kept->facts.empty()) {
    auto selected = SelectBranches(*std::move(source));
    auto mine = SelectBranches(*std::move(result));
    if (selected.ok() && mine.ok() && !HasBranches(*selected)) {
      return ProveWithoutBranches(*std::move(selected), *std::move(mine), relation, obligations);
    }
  }
  if (obligations != nullptr) *obligations = std::move(of_kept);
  return *std::move(kept);
}

// Returns true if the model has an input of this name that declares at least `axes` axes.
bool HasAxes(const onnx::GraphProto& graph, const std::string& input, int64_t axes) {
  return std::any_of(graph.input().begin(), graph.input().end(), [&](const auto& value) {
    return value.name() == input && value.type().tensor_type().shape().dim_size() >= axes;
  });
}

// Returns the first cache whose layout or sequence axis the declared shapes do not have, or empty.
// Facts about caches look for elements on those axes.
std::string CacheWithoutItsAxes(const onnx::ModelProto& before, const onnx::ModelProto& after,
                                const Manifest& relation) {
  for (const ManifestCache& cache : relation.caches) {
    const auto own = static_cast<int64_t>(AxesOfLayout(cache.layout).size());
    const auto theirs =
        static_cast<int64_t>(AxesOfLayout(cache.source.layout).size() + cache.source.select.size());
    const bool inside =
        0 <= cache.axis && cache.axis < own && 0 <= cache.source.axis && cache.source.axis < theirs;
    if (!inside || !HasAxes(after.graph(), cache.input, own) ||
        !HasAxes(before.graph(), cache.source.input, theirs)) {
      return cache.id;
    }
  }
  return {};
}

// Returns true if some cache has a fixed capacity in the source, where every row has one slot.
bool HasFixedBuffer(const Manifest& relation) {
  return std::any_of(
      relation.caches.begin(), relation.caches.end(),
      [](const ManifestCache& cache) { return !cache.source.growing && !cache.ring; });
}

// Returns the smallest power of two that is not below any size that the two models declare.
int64_t SizeLimitOf(const onnx::ModelProto& before, const onnx::ModelProto& after) {
  constexpr int64_t kMost = int64_t{1} << 62;
  const int64_t largest =
      std::max(LargestDeclaredSize(before.graph()), LargestDeclaredSize(after.graph()));
  return largest >= kMost ? kMost
                          : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(largest)));
}

// Returns SlotOutputsOf for a model that is compared with itself; empty if it cannot be read.
std::vector<SlotOutput> SlotOutputsOfOne(const onnx::ModelProto& model, const Manifest& relation) {
  if (relation.uniform || !HasFixedBuffer(relation)) return {};
  auto flat = InlineFunctions(model);
  if (!flat.ok()) return {};
  const auto normal = Normal(*std::move(flat));
  if (!normal.ok()) return {};
  const auto pair = GraphPair::Create(*normal, *normal, relation);
  return pair.ok() ? SlotOutputsOf(*pair, relation) : std::vector<SlotOutput>();
}

}  // namespace

DeclaredSizes::DeclaredSizes(const onnx::ModelProto& before, const onnx::ModelProto& after)
    : limit_(SizeLimitOf(before, after)) {}

Proof ProveConversion(const onnx::ModelProto& before, const onnx::ModelProto& after,
                      const Manifest& manifest, Obligations* obligations) {
  if (const std::string id = CacheWithoutItsAxes(before, after, manifest); !id.empty()) {
    Proof proof;
    proof.not_tried = fmt::format("the cache {} does not have the axes of its layout", id);
    return proof;
  }
  if (auto same = ProofOfSameModel(before, after, manifest)) {
    same->slot_outputs = SlotOutputsOfOne(before, manifest);
    return *std::move(same);
  }
  const DeclaredSizes sizes(before, after);
  Proof proof = ProveAll(before, after, manifest, obligations);
  // Proves once more under further assumptions, and keeps that if all of it is proved.
  const auto prove_under = [&](const onnx::ModelProto& result, bool tokens_fit) {
    Obligations own;
    Proof other =
        ProveAll(before, result, manifest, obligations == nullptr ? nullptr : &own, tokens_fit);
    if (!HoldsWhole(other)) return false;
    if (obligations != nullptr) *obligations = own;
    proof = std::move(other);
    return true;
  };
  if (!HoldsWhole(proof) && HasFixedBuffer(manifest)) prove_under(after, /*tokens_fit=*/true);
  if (proof.facts.empty()) return proof;
  // Sizes that the converted model computes by several ways from its lengths are the same if all
  // sequences have one length.
  if (manifest.uniform && !HoldsWhole(proof) &&
      prove_under(WithOneLength(after, manifest), /*tokens_fit=*/false)) {
    proof.assumptions.Add(SequencesOfOneLength());
  }
  proof.assumptions.Add(SmallSizes());
  proof.assumptions.Add(ProductsAreFinite());
  return proof;
}

}  // namespace kvlift
