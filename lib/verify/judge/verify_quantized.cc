#include "verify/judge/verify_quantized.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/status.h"
#include "fmt/format.h"
#include "ir/types.h"
#include "proof/prove/prove_conversion.h"
#include "verify/inputs/ring_slots.h"
#include "verify/variants/quantized.h"

namespace kvlift {
namespace {

// Stands for an unknown bound: differences are measured and not judged.
constexpr double kUnknownBound = 1e300;

// Compares within computed bounds only. A tensor with an element that has none is measured, and
// counts as judged by the fixed bound.
Comparison CompareWithin(const exec::View& reference, const exec::View& actual, int source_nodes,
                         const exec::View& slack) {
  if (!IsFloatType(reference.type) || reference.shape != actual.shape) {
    Comparison c = Compare(reference, actual, source_nodes, slack);
    if (!c.bitwise && reference.shape == actual.shape) {
      c.difference.reset();
      c.fixed = true;
    }
    return c;
  }
  exec::Tensor bounds(onnx::TensorProto::DOUBLE, reference.shape);
  const bool given = !slack.absent() && slack.shape == reference.shape;
  bool known = given;
  for (int64_t i = 0; i < bounds.size(); ++i) {
    const double bound = given ? slack.as<double>()[i] : kUnknownBound;
    known = known && std::isfinite(bound);
    bounds.span<double>()[i] = std::isfinite(bound) ? bound : kUnknownBound;
  }
  Comparison c = Compare(reference, actual, source_nodes, bounds.view());
  c.fixed = !known;
  if (c.bound >= kUnknownBound) c.bound = 0;
  return c;
}

VerifyReport Inconclusive(VerifyReport report, std::string reason) {
  report.verdict = VerdictKind::kInconclusive;
  report.reason = std::move(reason);
  return report;
}

// Returns the report with the verdict, reason and counterexample of a part that failed.
VerifyReport Failed(VerifyReport report, VerifyReport part, const std::string& code,
                    const std::string& what) {
  report.verdict = part.verdict;
  report.counterexample = std::move(part.counterexample);
  const size_t space = part.reason.find(' ');
  const bool differs = part.verdict == VerdictKind::kDifferent;
  report.reason = differs && space != std::string::npos
                      ? fmt::format("{} {}: {}", code, what, part.reason.substr(space + 1))
                      : fmt::format("{} ({})", part.reason, what);
  return report;
}

void AddPlans(const std::string& prefix, const VerifyReport& part, VerifyReport* report) {
  for (PlanResult plan : part.plans) {
    plan.name = prefix + plan.name;
    report->plans.push_back(std::move(plan));
  }
}

void AddStored(const VerifyReport& stored, const Proof& proof, VerifyReport* report) {
  AddPlans("stored: ", stored, report);
  for (ControlResult control : stored.controls) {
    control.mutant = "stored: " + control.mutant;
    report->controls.push_back(std::move(control));
  }
  report->aliases = stored.aliases;
  for (ProofFact fact : proof.facts) {
    fact.text = "values and scales: " + fact.text;
    report->proof.facts.push_back(std::move(fact));
  }
  if (report->proof.not_tried.empty()) report->proof.not_tried = proof.not_tried;
  report->proof.assumptions.Add(proof.assumptions);
  for (OutputResult output : stored.outputs) {
    output.name = "stored: " + output.name;
    report->outputs.push_back(std::move(output));
  }
}

// Whether the source was found to read slots that hold no token. Where scales are zero, changing
// values alone would not show it.
bool ReadsUnused(const VerifyReport& plain) {
  return std::any_of(plain.plans.begin(), plain.plans.end(), [](const PlanResult& plan) {
    return plan.name == "dirty buffer" && plan.status == "skipped";
  });
}

// Whether the source shifts the rows of a cache. Its masks then speak of the order of rows and not
// of slots, so that the models compared here may read slots that hold no token.
bool MovesRows(const Manifest& relation) {
  return std::any_of(relation.caches.begin(), relation.caches.end(),
                     [](const ManifestCache& cache) { return Shifts(cache.source); });
}

}  // namespace

absl::StatusOr<VerifyReport> VerifyQuantized(const Model& before, const Model& after,
                                             const Manifest& relation, const VerifyOptions& options,
                                             const VerifyPlain& verify, Recorder* recorder) {
  const auto parts = TakeApart(after, relation);
  if (!parts.ok()) {
    return Inconclusive({}, "KV432 " + std::string(parts.status().message()));
  }
  KV_ASSIGN_OR_RETURN(VerifyReport report,
                      verify(before, parts->plain, parts->plain_relation, options, {}));
  if (!Accepts(report.verdict, Accept::kTested)) return report;

  // Sensitivity was sampled without quantisation. With random values and scales an attention may
  // weigh a single key only.
  VerifyPart without_sampling;
  without_sampling.sensitivity = false;
  without_sampling.reads_unused = ReadsUnused(report) || MovesRows(relation);
  // Values and scales are proved against the definition in ONNX operators, below.
  VerifyOptions as_defined = options;
  as_defined.proof = false;
  as_defined.source = false;
  KV_ASSIGN_OR_RETURN(VerifyReport stored, verify(parts->defined, after, parts->stored_relation,
                                                  as_defined, without_sampling));
  Proof proof;
  if (options.proof) {
    proof = ProveConversion(*parts->defined_operators.proto, *after.proto, parts->stored_relation);
  }
  report.outputs.clear();
  AddStored(stored, proof, &report);
  report.assumptions.Add(stored.assumptions);
  if (!Accepts(stored.verdict, Accept::kTested)) {
    return Failed(std::move(report), std::move(stored), "KV435",
                  "values, scales and their readers");
  }

  VerifyOptions within = options;
  within.controls = false;
  within.proof = false;
  within.source = false;
  within.compare = CompareWithin;
  VerifyPart bounded;
  bounded.bounds = &parts->rounded_bounds;
  KV_ASSIGN_OR_RETURN(VerifyReport rounded,
                      verify(before, parts->rounded, parts->plain_relation, within, bounded));
  AddPlans("rounded: ", rounded, &report);
  report.outputs.insert(report.outputs.begin(), rounded.outputs.begin(), rounded.outputs.end());
  if (!Accepts(rounded.verdict, Accept::kTested)) {
    return Failed(std::move(report), std::move(rounded), "KV433", "with rounded rows");
  }
  if (recorder != nullptr) {
    bounded.recorder = recorder;
    bounded.stored = StorageOf(relation);
    recorder->StoreRowsUnquantized(bounded.stored);
    KV_ASSIGN_OR_RETURN(rounded,
                        verify(before, parts->rounded, parts->plain_relation, within, bounded));
    recorder->Store(relation);
    report.plans = rounded.plans;
    report.oracle = rounded.oracle;
  }
  int judged = 0, measured = 0;
  std::string unjudged;
  for (const OutputResult& output : rounded.outputs) {
    judged += output.bitwise + output.by_bound;
    measured += output.by_fixed_bound;
    if (output.bitwise + output.by_bound == 0 && unjudged.empty()) unjudged = output.name;
  }
  report.coverage.emplace_back(
      "quantised", fmt::format("{} comparisons within the bound of rounding, {} measured only",
                               judged, measured));
  if (!unjudged.empty()) {
    return Inconclusive(std::move(report),
                        fmt::format("KV434 no bound is known for {} in any step", unjudged));
  }
  if (const ProofFact* fact = FirstThatFails(report.proof); fact != nullptr) {
    const bool refuted = fact->status == FactStatus::kRefuted;
    report.verdict = refuted ? VerdictKind::kDifferent : VerdictKind::kEqualAsTested;
    report.reason = fmt::format("{} {}: {}: {}", refuted ? "KV409" : "KV410 open:", fact->about,
                                fact->text, fact->why_not);
    return report;
  }
  if (!HoldsWhole(report.proof) || !HoldsWhole(proof)) {
    report.verdict = VerdictKind::kEqualAsTested;
    const std::string& why = report.proof.not_tried;
    report.reason = why.empty() ? "KV410 nothing is proved" : "KV410 " + why;
    return report;
  }
  report.verdict = VerdictKind::kEqualWithinQuantization;
  report.reason.clear();
  return report;
}

}  // namespace kvlift
