// The part of PairVerifier that makes a verdict from the results of the plans, the checks and the
// proof.
#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "verify/inputs/ledger.h"
#include "verify/judge/pair_verifier.h"

namespace kvlift::internal {

VerifyReport PairVerifier::Inconclusive(std::string reason) {
  report_.verdict = VerdictKind::kInconclusive;
  report_.reason = std::move(reason);
  return std::move(report_);
}

CoverageExcuses PairVerifier::Excuses() const {
  CoverageExcuses excuses;
  if (!coverage_.last_slot()) excuses.last_slot = NoteOf("last slot");
  if (!coverage_.lengths_differ()) excuses.one_length = OneLength();
  if (!TakesSeveral()) excuses.one_token = "the source takes one token at a time";
  if (limits_.tokens && !limits_.free_capacity && !limits_.circular &&
      *limits_.tokens == limits_.capacity) {
    excuses.no_past = "a step fills the buffers";
  }
  return excuses;
}

std::string PairVerifier::NoteOf(const std::string& name) const {
  for (const PlanResult& plan : report_.plans) {
    if (plan.name == name) return plan.note;
  }
  return {};
}

// Returns why all sequences of a batch have one length.
std::string PairVerifier::OneLength() const {
  if (relation_.uniform) return "the relation gives one length for the whole batch";
  if (limits_.batch && *limits_.batch < 2) return "steps have one sequence only";
  if (facts_.grows) return "a cache that grows has one length for the whole batch";
  return NoteOf("ragged");
}

VerifyReport PairVerifier::Finish() {
  report_.coverage = coverage_.Lines(relation_, Excuses());
  report_.coverage.insert(report_.coverage.end(), sensitivity_.begin(), sensitivity_.end());
  if (report_.counterexample) {
    report_.verdict = VerdictKind::kDifferent;
    report_.reason = "KV404 " + report_.counterexample->text;
    return std::move(report_);
  }
  if (!unsupported_.empty()) return Inconclusive("KV401 " + unsupported_);
  if (Failed()) {
    report_.verdict = VerdictKind::kDifferent;
    report_.reason = "KV404 " + failure_;
    return std::move(report_);
  }
  const ProofFact* fact = FirstThatFails(report_.proof);
  if (fact != nullptr && fact->status == FactStatus::kRefuted) {
    report_.verdict = VerdictKind::kDifferent;
    report_.reason = fmt::format("KV409 {}: {}: {}", fact->about, fact->text, fact->why_not);
    return std::move(report_);
  }
  if (!false_role_.empty()) {
    report_.verdict = VerdictKind::kDifferent;
    report_.reason = "KV411 " + false_role_;
    return std::move(report_);
  }
  AddAliases();
  for (const ManifestOutput& output : relation_.outputs) {
    const bool seen = std::any_of(report_.outputs.begin(), report_.outputs.end(),
                                  [&](const OutputResult& o) { return o.name == output.name; });
    if (!seen && coverage_.decodes() > 0) {
      return Inconclusive(fmt::format("KV405 {} holds no number in any step", output.name));
    }
  }
  if (!unjudged_.empty()) return Inconclusive("KV405 " + unjudged_);
  if (!no_append_.empty()) return Inconclusive("KV402 " + no_append_);
  if (report_.oracle.disagreement) {
    return Inconclusive("KV420 " + *report_.oracle.disagreement);
  }
  if (!report_.rounding.broken.empty()) {
    return Inconclusive(
        fmt::format("KV421 node {} is the same in both models, on equal operands, "
                    "and gives other bits",
                    report_.rounding.broken));
  }
  if (const std::string missing = coverage_.Missing(relation_, Excuses()); !missing.empty()) {
    return Inconclusive("KV406 " + missing +
                        (undecided_.empty() ? "" : "; a plan was not judged: " + undecided_));
  }
  if (!weak_.empty()) return Inconclusive("KV408 " + weak_);
  if (options_.controls && report_.controls.empty()) {
    return Inconclusive("KV407 no mutant could be made of the converted model");
  }
  for (const ControlResult& control : report_.controls) {
    if (control.missed()) {
      return Inconclusive(fmt::format("KV407 the mutant \"{}\" was not detected", control.mutant));
    }
  }
  if (options_.source && OfAnotherSource()) {
    return Inconclusive(fmt::format("KV412 the relation is of a source with the digest {}",
                                    relation_.source_sha256));
  }
  report_.verdict = VerdictKind::kEqual;
  if (!HoldsWhole(report_.proof)) AsTested();
  return std::move(report_);
}

bool PairVerifier::OfAnotherSource() const {
  return before_.digest != nullptr && !relation_.source_sha256.empty() &&
         before_.digest->Hex() != relation_.source_sha256;
}

// Adds the assumption that hosts keep two buffers for each cache that the relation does not call
// safe.
void PairVerifier::AddAliases() {
  for (const AliasCertificate& alias : report_.aliases) {
    if (alias.claim == CacheAlias::kSafe) continue;
    report_.assumptions.Add({AssumptionKind::kAlias, alias.cache,
                             fmt::format("past and present of {} do not share memory", alias.cache),
                             AssumptionSource::kManifest, false});
  }
}

// Makes the verdict "equal as tested": says which fact is open and which sizes were run.
void PairVerifier::AsTested() {
  report_.verdict = VerdictKind::kEqualAsTested;
  const ProofFact* open = FirstThatFails(report_.proof);
  const std::string sizes =
      fmt::format("up to {} sequences, {} new tokens, {} past ones and {} slots", reached_.batch,
                  reached_.tokens, reached_.past, reached_.capacity);
  if (open != nullptr) {
    report_.reason = fmt::format("KV410 run {}; open: {}: {}: {}", sizes, open->about, open->text,
                                 open->why_not);
  } else {
    report_.reason =
        fmt::format("KV410 run {}; nothing is proved{}{}", sizes,
                    report_.proof.not_tried.empty() ? "" : ": ", report_.proof.not_tried);
  }
  report_.assumptions.Add(NotRun(AssumptionKind::kCapacity, "", "sizes that were run: " + sizes));
  if (limits_.free_lengths) {
    report_.assumptions.Add(
        NotRun(AssumptionKind::kCapacity, "",
               fmt::format("lengths that no step determines were run from {} on",
                           fmt::join(reached_.free_lengths, ", "))));
  }
}

}  // namespace kvlift::internal
