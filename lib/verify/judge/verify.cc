#include "verify/judge/verify.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "exec/memory/budget.h"
#include "fmt/format.h"
#include "proof/prove/prove_conversion.h"
#include "verify/inputs/adapted_layouts.h"
#include "verify/inputs/added_sequences.h"
#include "verify/judge/by_layer.h"
#include "verify/judge/judge_pair.h"
#include "verify/judge/verify_quantized.h"
#include "verify/variants/drawn_weights.h"
#include "verify/variants/lifted_types.h"
#include "verify/variants/plain_experts.h"
#include "verify/variants/quantized.h"
#include "verify/variants/reused_axis_names.h"
#include "verify/variants/weight_places.h"

namespace kvlift {

namespace {

// Returns an inconclusive report on models that cannot be run or related.
VerifyReport CannotBeJudged(std::string_view code, const absl::Status& status) {
  VerifyReport report;
  report.reason = fmt::format("{} {}", code, std::string(status.message()));
  return report;
}

// Judges two models under any relation. Models without a batch axis, with quantised caches or with
// groups in layouts are rewritten first; a proof in `part` does not apply to rewritten models.
absl::StatusOr<VerifyReport> VerifyAny(const Model& before, const Model& after,
                                       const Manifest& relation, const VerifyOptions& options,
                                       const VerifyPart& part = {}) {
  VerifyPart of_adapted = part;
  of_adapted.proof = nullptr;
  if (LacksSequences(relation)) {
    const auto adapted = AddSequences(before, relation);
    if (!adapted.ok()) return CannotBeJudged("KV403", adapted.status());
    KV_ASSIGN_OR_RETURN(VerifyReport report,
                        VerifyAny(adapted->before, after, adapted->relation, options, of_adapted));
    const auto restore = [&](VerifyReport* r) { RemoveSequences(before, relation, r); };
    restore(&report);
    if (part.recorder != nullptr) part.recorder->Restore(restore);
    for (const DroppedInput& dropped : relation.dropped) {
      if (TellsOfSequences(dropped)) {
        report.assumptions.Add({AssumptionKind::kSequences, dropped.name,
                                fmt::format("{} is [{}]", dropped.name, GivenText(dropped)),
                                AssumptionSource::kManifest, false});
      }
    }
    return report;
  }
  if (part.bounds == nullptr && HasQuantizedCaches(relation)) {
    const auto plain = [](const Model& a, const Model& b, const Manifest& r, const VerifyOptions& o,
                          const VerifyPart& p) { return VerifyAny(a, b, r, o, p); };
    return VerifyQuantized(before, after, relation, options, plain, part.recorder);
  }
  if (!HasGroups(relation)) {
    return JudgePair(before, after, relation, options, part);
  }
  const auto adapted = AdaptSource(before, after, relation);
  if (!adapted.ok()) return CannotBeJudged("KV403", adapted.status());
  KV_ASSIGN_OR_RETURN(VerifyReport report,
                      JudgePair(adapted->before, after, adapted->relation, options, of_adapted));
  const auto restore = [&](VerifyReport* r) { RestoreSource(before, after, relation, r); };
  restore(&report);
  if (part.recorder != nullptr) part.recorder->Restore(restore);
  return report;
}

// Merges the report on two models in float32 with the report on their own half types. If all facts
// are proved and the models are equal in float32, a difference in their own types may be rounding
// and is inconclusive (KV413).
VerifyReport InBothTypes(VerifyReport report, VerifyReport agreement) {
  const bool is_proved = HoldsWhole(agreement.proof);
  report.half_types = {true, std::move(agreement.plans),     std::move(agreement.outputs),
                       "",   agreement.half_types.decisions, agreement.half_types.unlike};
  report.proof = std::move(agreement.proof);
  report.assumptions.Add(agreement.assumptions);
  if (agreement.verdict == VerdictKind::kDifferent && agreement.counterexample && is_proved) {
    report.verdict = VerdictKind::kInconclusive;
    report.reason = fmt::format("KV413 equal in float32; in their own types: {}",
                                agreement.counterexample->text);
  } else if (!Accepts(agreement.verdict, Accept::kTested)) {
    report.verdict = agreement.verdict;
    report.reason = std::move(agreement.reason);
    report.counterexample = std::move(agreement.counterexample);
  } else if (report.verdict == VerdictKind::kEqual) {
    report.verdict = agreement.verdict;
    report.reason = std::move(agreement.reason);
  }
  return report;
}

// Judges models of half precision in float32, where rounding does not hide differences, and then
// runs them in their own types. Other models are judged as they are. proof: of the two models as
// they are; null if it is not known.
absl::StatusOr<VerifyReport> VerifyTypes(const Model& before, const Model& after,
                                         const Manifest& relation, const VerifyOptions& options,
                                         const Proof* proof) {
  VerifyPart part;
  part.proof = proof;
  if (!HasHalfTypes(*before.proto) || HasQuantizedCaches(relation)) {
    return VerifyAny(before, after, relation, options, part);
  }
  const LiftedWeights weights;
  const auto source = weights.WithFloat32(before), result = weights.WithFloat32(after);
  if (!source.ok()) return CannotBeJudged("KV401", source.status());
  if (!result.ok()) return CannotBeJudged("KV401", result.status());
  KV_ASSIGN_OR_RETURN(VerifyReport report,
                      VerifyAny(*source, *result, WithFloat32(relation), options));
  report.half_types.computed_in_float32 = true;
  if (!Accepts(report.verdict, Accept::kTested)) {
    report.half_types.not_run = "they are not shown to be equal in float32";
    return report;
  }
  VerifyOptions own = options;
  own.controls = false;
  part.agreement = &weights;
  KV_ASSIGN_OR_RETURN(VerifyReport agreement, VerifyAny(before, after, relation, own, part));
  return InBothTypes(std::move(report), std::move(agreement));
}

// Judges whole models or the models of one layer. Weights are drawn here, as those of a whole model
// may not fit into memory.
absl::StatusOr<VerifyReport> VerifyPiece(const Model& before, const Model& after,
                                         const Manifest& relation, const VerifyOptions& options,
                                         const Proof* proof) {
  KV_ASSIGN_OR_RETURN(const Model source, WithPlainExperts(before));
  KV_ASSIGN_OR_RETURN(const Model result, WithPlainExperts(after));
  if (!options.random_weights) return VerifyTypes(source, result, relation, options, proof);
  const DrawnWeights weights(*options.random_weights);
  const auto drawn = weights.In(source, result);
  if (!drawn.ok()) return CannotBeJudged("KV401", drawn.status());
  return VerifyTypes(drawn->first, drawn->second, relation, options, nullptr);
}

// Returns an error for a model that no runtime loads. The shapes that it declares of values inside
// the graph are hints: ONNX Runtime warns where one contradicts the operators, and runs the model.
absl::Status WhyRefused(const onnx::ModelProto& model) {
  const absl::Status status = InferShapes(model).status();
  if (status.ok() || model.graph().value_info().empty()) return status;
  onnx::ModelProto bare = model;
  for (onnx::ValueInfoProto& value : *bare.mutable_graph()->mutable_value_info()) {
    if (value.type().has_tensor_type()) value.mutable_type()->mutable_tensor_type()->clear_shape();
  }
  return InferShapes(bare).ok() ? absl::OkStatus() : status;
}

absl::StatusOr<VerifyReport> VerifyModels(const Model& before, const Model& after,
                                          const Manifest& relation, const VerifyOptions& options) {
  std::string why;
  std::optional<Proof> proof;
  if (options.proof && !options.full && !options.whole) {
    proof = ProveConversion(*before.proto, *after.proto, relation);
    KV_ASSIGN_OR_RETURN(std::optional<VerifyReport> cut,
                        VerifyByLayer(before, after, relation, options, *proof, VerifyPiece, &why));
    if (cut) return *std::move(cut);
  }
  KV_ASSIGN_OR_RETURN(VerifyReport report,
                      VerifyPiece(before, after, relation, options, proof ? &*proof : nullptr));
  report.whole_because = std::move(why);
  return report;
}

// Judges two models whose inputs call axes alike that have one size in every step.
absl::StatusOr<VerifyReport> VerifyNamed(const Model& before, const Model& after,
                                         const Manifest& relation, const VerifyOptions& options) {
  const DeclaredSizes sizes(*before.proto, *after.proto);
  if (const absl::Status valid = WhyRefused(*after.proto);
      !valid.ok() && WhyRefused(*before.proto).ok()) {
    VerifyReport invalid;
    invalid.verdict = VerdictKind::kDifferent;
    invalid.reason =
        fmt::format("KV404 runtimes refuse the converted model: {}", std::string(valid.message()));
    return invalid;
  }
  absl::StatusOr<VerifyReport> report = absl::UnknownError("not run");
  const absl::Status status = exec::WithinMemory([&]() -> absl::Status {
    if (!options.random_weights) {
      report = VerifyModels(before, after, relation, options);
      return absl::OkStatus();
    }
    KV_ASSIGN_OR_RETURN(const PairedModels paired, PairAbsentWeights(before, after));
    report = VerifyModels(paired.before, paired.after, relation, options);
    if (!report.ok()) return absl::OkStatus();
    report->random_weights = options.random_weights;
    report->assumptions.Add(DrawnWeightsOf(*options.random_weights));
    if (paired.assumed) report->assumptions.Add(*paired.assumed);
    return absl::OkStatus();
  });
  if (status.ok()) return report;
  return CannotBeJudged("KV402", status);
}

}  // namespace

absl::StatusOr<VerifyReport> Verify(const Model& source, const Model& result,
                                    const Manifest& relation, const VerifyOptions& options) {
  const Model before = WithPastsApart(source, relation, PairSide::kSource);
  const Model after = WithPastsApart(result, relation, PairSide::kResult);
  KV_ASSIGN_OR_RETURN(VerifyReport report, VerifyNamed(before, after, relation, options));
  if (report.verdict != VerdictKind::kInconclusive || !report.plans.empty()) return report;
  // Steps may fail since other inputs call axes alike that differ in size.
  const Model source_apart = WithAllNamesApart(before, relation, PairSide::kSource);
  const Model result_apart = WithAllNamesApart(after, relation, PairSide::kResult);
  if (source_apart.proto == before.proto && result_apart.proto == after.proto) return report;
  KV_ASSIGN_OR_RETURN(VerifyReport apart,
                      VerifyNamed(source_apart, result_apart, relation, options));
  return apart.plans.empty() ? report : apart;
}

absl::StatusOr<VerifyReport> RecordPlans(const Model& source_given, const Model& result_given,
                                         const Manifest& relation, const VerifyOptions& options,
                                         Recorder* recorder) {
  const Model before = WithPastsApart(source_given, relation, PairSide::kSource);
  const Model after = WithPastsApart(result_given, relation, PairSide::kResult);
  const DeclaredSizes sizes(*before.proto, *after.proto);
  VerifyOptions plans = options;
  plans.controls = false;
  absl::StatusOr<VerifyReport> report = absl::UnknownError("not run");
  const absl::Status status = exec::WithinMemory([&]() -> absl::Status {
    const Proof proof = ProveConversion(*before.proto, *after.proto, relation);
    const LiftedWeights weights;
    VerifyPart part;
    part.proof = &proof;
    part.recorder = recorder;
    if (HasHalfTypes(*before.proto) && !HasQuantizedCaches(relation)) part.agreement = &weights;
    KV_ASSIGN_OR_RETURN(const Model source, WithPlainExperts(before));
    KV_ASSIGN_OR_RETURN(const Model result, WithPlainExperts(after));
    report = VerifyAny(source, result, relation, plans, part);
    return absl::OkStatus();
  });
  if (status.ok()) return report;
  return CannotBeJudged("KV402", status);
}

}  // namespace kvlift
