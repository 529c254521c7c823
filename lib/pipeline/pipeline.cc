#include "pipeline/pipeline.h"

#include <algorithm>
#include <csignal>
#include <memory>
#include <thread>
#include <utility>

#include "base/status.h"
#include "contract/padding.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "freeze/freeze.h"
#include "onnxio/files/guard.h"
#include "pipeline/checks.h"
#include "pipeline/step_files.h"
#include "rewrite/recognise/analysis.h"
#include "verify/judge/prove_alone.h"

namespace kvlift {
namespace {

std::string Sentence(const ProofFact& fact) {
  return fmt::format("{}: {}: {}", fact.about, fact.text, fact.why_not);
}

const ProofFact* FirstOf(const Proof& proof, FactStatus status) {
  const auto found = std::find_if(proof.facts.begin(), proof.facts.end(),
                                  [&](const ProofFact& fact) { return fact.status == status; });
  return found == proof.facts.end() ? nullptr : &*found;
}

// Returns in words the first fact that the proof leaves open; empty if there is none.
std::string WhatIsOpen(const Proof& proof) {
  if (!proof.not_tried.empty()) return "nothing is proved: " + proof.not_tried;
  if (const ProofFact* open = FirstOf(proof, FactStatus::kOpen)) return Sentence(*open);
  return proof.facts.empty() ? "nothing is proved" : "";
}

bool Passed(VerdictKind verdict) { return Accepts(verdict, Accept::kTested); }

// Sets the equality and the acceptance of a model whose plans ran.
void JudgeTested(ConvertAccept accept, const std::string& open, ProvedConversion* result) {
  const VerifyReport& tests = *result->tests;
  if (tests.verdict == VerdictKind::kDifferent) {
    result->equality = ConversionVerdict::kDifferent;
    result->reason = tests.reason;
  } else if (!Passed(tests.verdict)) {
    result->equality = ConversionVerdict::kInconclusive;
    result->reason = open.empty()
                         ? tests.reason
                         : fmt::format("{} (the proof leaves open: {})", tests.reason, open);
  } else {
    result->equality = open.empty() ? ConversionVerdict::kProved : ConversionVerdict::kTested;
    result->accepted = open.empty() || accept != ConvertAccept::kProved;
    if (!result->accepted) result->reason = "KV436 " + open;
  }
}

// Returns the facts that hold, each text once, for the manifest.
std::vector<ManifestFact> HeldFacts(const Proof& proof) {
  std::vector<ManifestFact> facts;
  for (const ProofFact& fact : proof.facts) {
    if (!fact.holds()) continue;
    std::vector<std::string> given;
    for (const Assumption& assumption : fact.given) given.push_back(assumption.condition);
    const std::string text =
        given.empty() ? fact.text
                      : fmt::format("{}, given that {}", fact.text, fmt::join(given, ", "));
    auto it = std::find_if(facts.begin(), facts.end(),
                           [&](const ManifestFact& known) { return known.text == text; });
    if (it == facts.end()) it = facts.insert(facts.end(), ManifestFact{text, {}});
    it->about.push_back(fact.about);
  }
  return facts;
}

// Records the measured errors of the outputs of a model with quantised caches.
void TakeErrors(const std::vector<OutputResult>& outputs, Manifest* manifest) {
  manifest->quantization->errors.clear();
  for (const OutputResult& output : outputs) {
    for (const ManifestOutput& known : manifest->outputs) {
      if (IsCache(known) || known.name != output.name) continue;
      manifest->quantization->errors.push_back({output.name, output.max_abs, output.bound});
    }
  }
}

// Returns what a manifest says about equality; nullopt if no model is handed out.
std::optional<ShownEquality> ShownOf(ConversionVerdict equality) {
  switch (equality) {
    case ConversionVerdict::kProved:
      return ShownEquality::kProved;
    case ConversionVerdict::kTested:
      return ShownEquality::kTested;
    case ConversionVerdict::kUnproved:
      return ShownEquality::kUnproved;
    case ConversionVerdict::kNothing:
    case ConversionVerdict::kDifferent:
    case ConversionVerdict::kInconclusive:
      break;
  }
  return std::nullopt;
}

// Computes a digest on a thread of its own, if one can be started. Where that fails, the digest is
// computed when it is asked for. The thread receives no signals from outside.
std::jthread ComputeBeside(SourceDigest& digest) {
  sigset_t all, old;
  sigfillset(&all);
  sigdelset(&all, SIGBUS);  // raised if the file becomes shorter
  pthread_sigmask(SIG_SETMASK, &all, &old);
  std::jthread thread;
  Guard("no thread", [&] {
    thread = std::jthread([&digest] { Guard("no digest", [&] { digest.Hex(); }).IgnoreError(); });
  }).IgnoreError();
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  return thread;
}

class Pipeline {
 public:
  Pipeline(const Model& source, const ProvingOptions& proving, const StepTrace& trace)
      : source_(source), proving_(proving), trace_(trace) {}

  absl::StatusOr<ProvedConversion> Run(const ConvertOptions& options, RuleTable rules) {
    // The digest of gigabytes takes seconds, so it is computed beside the proof; only a dumped
    // manifest cannot wait for it.
    Model converted = source_;
    if (!trace_.take) converted.digest = nullptr;
    KV_ASSIGN_OR_RETURN(Conversion conversion, Convert(converted, options, rules, trace_));
    if (!conversion.model) return Without(std::move(conversion));
    if (options.tree_mask) RefuseTree(*source_.proto, &conversion);
    if (!conversion.model) {
      KV_RETURN_IF_ERROR(trace_.Take([&] { return DescribeRefusedCheck(conversion); }));
    }
    return RunFrom(std::move(conversion));
  }

  // Checks and proves what the first steps made.
  absl::StatusOr<ProvedConversion> RunFrom(Conversion conversion) {
    if (!conversion.model) return Without(std::move(conversion));
    // The source may have been read with other names of axes than it declares.
    source_.proto = conversion.source;
    result_.conversion = std::move(conversion);
    std::jthread hashing;
    if (source_.digest != nullptr) hashing = ComputeBeside(*source_.digest);
    Model after;
    after.base_dir = source_.base_dir;
    // The conversion outlives `after`.
    after.proto = std::shared_ptr<const onnx::ModelProto>(std::shared_ptr<const void>(),
                                                          &*result_.conversion.model);
    const auto outcomes = CheckEach(source_, after, &result_.conversion.manifest);
    KV_RETURN_IF_ERROR(trace_.Take([&] { return DescribeChecks(outcomes); }));
    const absl::Status valid = StatusOf(outcomes);
    if (!valid.ok()) {
      const auto lowered = Lower(source_);
      return BlameFor(source_, after, valid, lowered.ok() ? &lowered->graph->model() : nullptr);
    }
    if (trace_.ends(Step::kCheck)) {
      StopConversion(&result_.conversion);
      return Finished();
    }
    KV_RETURN_IF_ERROR(Prove(after));
    KV_RETURN_IF_ERROR(Judge(after));
    if (!result_.accepted) Withhold();
    FillManifest();
    KV_RETURN_IF_ERROR(trace_.Take([&] { return DescribeProof(result_); }));
    if (result_.accepted && trace_.ends(Step::kProve)) StopConversion(&result_.conversion);
    return Finished();
  }

  // Proves and tests a model that ConvertAndProve did not make.
  absl::StatusOr<ProvedConversion> RunPair(const Model& after, const Manifest& relation) {
    result_.conversion.manifest = relation;
    KV_RETURN_IF_ERROR(Prove(after));
    KV_RETURN_IF_ERROR(Judge(after));
    result_.conversion.manifest.assumptions = Ledger();
    return std::move(result_);
  }

 private:
  ProvedConversion Without(Conversion conversion) {
    result_.conversion = std::move(conversion);
    return Finished();
  }

  ProvedConversion Finished() {
    if (result_.conversion.status == ConvertStatus::kStopped) {
      result_.stopped_after = trace_.stop_after;
    }
    return std::move(result_);
  }

  void Say(std::string what) const {
    if (proving_.say) proving_.say(std::move(what));
  }

  absl::Status Prove(const Model& after) {
    Say("proving");
    KV_ASSIGN_OR_RETURN(result_.proof, ProveAlone(source_, after, result_.conversion.manifest));
    StatePadding();
    return absl::OkStatus();
  }

  // Padding tokens that the proof excludes are excluded by a precondition as well.
  void StatePadding() {
    Manifest& manifest = result_.conversion.manifest;
    StatePaddingOf(result_.proof.assumptions);
    if (manifest.frozen) StateShortSteps(&manifest);
  }

  // States that steps have no padding tokens, if the entries say so and nothing has said it yet.
  void StatePaddingOf(const Assumptions& entries) {
    Manifest& manifest = result_.conversion.manifest;
    const Assumption* excluded = PaddingExcluded(entries);
    if (excluded == nullptr || ExcludesPadding(manifest)) return;
    manifest.preconditions.push_back({"KV236", excluded->condition, PreconditionStatus::kAssumed});
  }

  // Returns the text about what a host feeds if it has fewer tokens than the graph takes.
  static void StateShortSteps(Manifest* manifest) {
    FrozenShape& frozen = *manifest->frozen;
    const bool pads = frozen.tokens > 1 && !ExcludesPadding(*manifest);
    frozen.short_steps = pads ? ShortSteps::kPadRight : ShortSteps::kNone;
    if (!pads) return;
    manifest->preconditions.push_back(
        {"KV310",
         fmt::format("a step of fewer than {} tokens has padding tokens behind them, which "
                     "take slots as well; the next write index counts the real tokens only",
                     frozen.tokens),
         PreconditionStatus::kAssumed});
  }

  absl::Status Judge(const Model& after) {
    if (const ProofFact* refuted = FirstOf(result_.proof, FactStatus::kRefuted)) {
      result_.equality = ConversionVerdict::kDifferent;
      result_.reason = "KV404 " + Sentence(*refuted);
      if (!proving_.plans) return absl::OkStatus();
    }
    const std::string open = WhatIsOpen(result_.proof);
    const bool tests_open = !open.empty() && proving_.accept == ConvertAccept::kTested;
    if (proving_.plans || (tests_open && result_.reason.empty())) {
      const bool refuted = result_.equality == ConversionVerdict::kDifferent;
      const std::string why = result_.reason;
      KV_RETURN_IF_ERROR(Test(after));
      JudgeTested(proving_.accept, open, &result_);
      if (!open.empty()) StatePaddingOf(result_.tests->assumptions);
      if (refuted && result_.equality != ConversionVerdict::kDifferent) {
        result_.equality = ConversionVerdict::kDifferent;
        result_.reason = why;
        result_.accepted = false;
      }
      return absl::OkStatus();
    }
    if (open.empty()) {
      result_.equality = ConversionVerdict::kProved;
      result_.accepted = true;
      return absl::OkStatus();
    }
    result_.equality = ConversionVerdict::kUnproved;
    result_.accepted = proving_.accept == ConvertAccept::kUnproved;
    if (!result_.accepted) result_.reason = "KV436 " + open;
    return absl::OkStatus();
  }

  absl::Status Test(const Model& after) {
    Say("running both models step by step, and mutants of the second");
    VerifyOptions options;
    options.full = proving_.plans == ProvingOptions::Plans::kFull;
    options.threads = proving_.threads;
    options.random_weights = proving_.random_weights;
    options.say = proving_.say;
    KV_ASSIGN_OR_RETURN(result_.tests,
                        Verify(source_, after, result_.conversion.manifest, options));
    return absl::OkStatus();
  }

  // Refuses a model that is not accepted. The reason begins with a code.
  void Withhold() {
    const size_t space = result_.reason.find(' ');
    const Finding reason = {
        result_.reason.substr(0, space), result_.reason.substr(space + 1), {}, {}};
    RefuseAll(reason, *source_.proto, &result_.conversion);
  }

  // Returns all that the proof and the plans take for granted.
  Assumptions Ledger() const {
    Assumptions ledger = result_.proof.assumptions;
    for (const ProofFact& fact : result_.proof.facts) {
      for (const Assumption& given : fact.given) ledger.Add(given);
    }
    if (result_.tests) ledger.Add(result_.tests->assumptions);
    return ledger;
  }

  void FillManifest() {
    Manifest& manifest = result_.conversion.manifest;
    manifest.source_sha256 = source_.Sha256();
    manifest.equality = ShownOf(result_.equality);
    manifest.proved = HeldFacts(result_.proof);
    manifest.assumptions = Ledger();
    if (manifest.quantization && result_.tests) TakeErrors(result_.tests->outputs, &manifest);
  }

  Model source_;
  const ProvingOptions& proving_;
  const StepTrace& trace_;
  ProvedConversion result_;
};

}  // namespace

std::optional<ConvertAccept> ReadConvertAccept(std::string_view word) {
  const auto shown = ReadWord<ShownEquality>(word);
  if (!shown) return std::nullopt;
  switch (*shown) {
    case ShownEquality::kProved:
      return ConvertAccept::kProved;
    case ShownEquality::kTested:
      return ConvertAccept::kTested;
    case ShownEquality::kUnproved:
      return ConvertAccept::kUnproved;
  }
  return std::nullopt;
}

std::string_view WordOf(ConversionVerdict equality) {
  if (const auto shown = ShownOf(equality)) return WordOf(*shown);
  if (equality == ConversionVerdict::kDifferent) return "different";
  return equality == ConversionVerdict::kInconclusive ? "inconclusive" : "";
}

absl::StatusOr<ProvedConversion> ConvertAndProve(const Model& source, const ConvertOptions& options,
                                                 RuleTable rules, const ProvingOptions& proving,
                                                 const StepRequest& steps) {
  StepTrace trace;
  trace.stop_after = steps.stop_after;
  if (!steps.dump_dir) return Pipeline(source, proving, trace).Run(options, rules);
  KV_ASSIGN_OR_RETURN(StepFiles files, StepFiles::In(*steps.dump_dir, source));
  trace.take = [&](std::vector<StepText> texts) { return files.Write(std::move(texts)); };
  KV_ASSIGN_OR_RETURN(ProvedConversion result,
                      Pipeline(source, proving, trace).Run(options, rules));
  result.dumps = files.written();
  return result;
}

absl::StatusOr<std::vector<ProvedConversion>> ConvertFrozen(const Model& source,
                                                            const ConvertOptions& options,
                                                            RuleTable rules,
                                                            const FreezeRequest& freeze,
                                                            const ProvingOptions& proving) {
  const StepTrace trace;
  Model converted = source;
  converted.digest = nullptr;  // each graph's manifest gets it when it is judged
  KV_ASSIGN_OR_RETURN(Conversion conversion, Convert(converted, options, rules, trace));
  if (options.tree_mask) RefuseTree(*source.proto, &conversion);
  std::vector<ProvedConversion> graphs;
  for (const FreezeSizes& sizes : freeze.Graphs()) {
    Conversion own = conversion;
    if (own.model) {
      KV_ASSIGN_OR_RETURN(Frozen frozen, Freeze(*conversion.model, conversion.manifest, sizes));
      own.model = std::move(frozen.model);
      own.manifest = std::move(frozen.manifest);
      // No graph is handed out alone.
      if (frozen.refusal) RefuseAll(*frozen.refusal, *source.proto, &own);
    }
    const bool made = own.model.has_value();
    KV_ASSIGN_OR_RETURN(ProvedConversion judged,
                        Pipeline(source, proving, trace).RunFrom(std::move(own)));
    if (!made) graphs.clear();
    graphs.push_back(std::move(judged));
    if (!made) break;
  }
  return graphs;
}

absl::StatusOr<ProvedConversion> ProvePair(const Model& before, const Model& after,
                                           const Manifest& relation,
                                           const ProvingOptions& proving) {
  const StepTrace trace;
  return Pipeline(before, proving, trace).RunPair(after, relation);
}

}  // namespace kvlift
