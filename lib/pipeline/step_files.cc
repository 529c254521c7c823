#include "pipeline/step_files.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/coded.h"
#include "base/escape.h"
#include "base/status.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "onnxio/bytes/folders.h"
#include "rewrite/convert/describe_steps.h"

namespace kvlift {
namespace {

namespace fs = std::filesystem;

std::string LedgerLine(const Assumption& a) {
  return EscapeTerminal(fmt::format("{}{}{}: {} ({}{})", WordOf(a.kind),
                                    a.subject.empty() ? "" : " ", a.subject, a.condition,
                                    WordOf(a.source), a.checked ? ", checked" : ""));
}

std::string FactText(const ProofFact& fact) {
  std::string text = fmt::format("{:<8} {}\n", WordOf(fact.status),
                                 EscapeTerminal(fmt::format("{}: {}", fact.about, fact.text)));
  AddLine("lemmas", fmt::format("{}", fmt::join(fact.lemmas, ", ")), &text);
  for (const Assumption& given : fact.given) AddLine("given", LedgerLine(given), &text);
  AddLine("why not", fact.why_not, &text);
  return text;
}

std::string TestsText(const VerifyReport& tests) {
  std::string text = "\nplans\n";
  for (const PlanResult& plan : tests.plans) {
    AddLine(plan.status, fmt::format("{}, {} steps", plan.name, plan.steps), &text);
  }
  return text;
}

}  // namespace

absl::StatusOr<StepFiles> StepFiles::In(const std::string& folder, const Model& source) {
  KV_RETURN_IF_ERROR(MakeFolders(folder));
  return StepFiles(folder, source.path == "-" ? "" : source.path);
}

absl::Status StepFiles::Write(std::vector<StepText> texts) {
  std::vector<OutputFile> files;
  for (StepText& text : texts) {
    const std::string path = (fs::path(folder_) / text.name).string();
    std::error_code error;
    if (!source_.empty() && fs::equivalent(path, source_, error) && !error) {
      return Coded("KV501", absl::AlreadyExistsError(fmt::format(
                                "cannot write \"{}\": it is the input", EscapeTerminal(path))));
    }
    files.push_back({path, std::move(text.text)});
  }
  KV_RETURN_IF_ERROR(WriteFiles(files));
  for (OutputFile& file : files) written_.push_back(std::move(file.path));
  return absl::OkStatus();
}

bool IsWriteError(const absl::Status& status) { return CodeOf(status).rfind("KV5", 0) == 0; }

std::vector<StepText> DescribeChecks(const std::vector<CheckOutcome>& outcomes) {
  std::string text;
  for (const CheckOutcome& outcome : outcomes) {
    AddLine(outcome.check,
            outcome.status.ok() ? std::string("passed")
                                : "failed: " + std::string(outcome.status.message()),
            &text);
    for (const Lint& lint : outcome.lints) {
      AddLine("",
              fmt::format("{} {}", lint.severity == Severity::kError ? "error" : "warning",
                          FindingLine(lint.finding)),
              &text);
    }
  }
  return {{"5-check.txt",
           (StatusOf(outcomes).ok() ? "check: passed\n" : "check: failed\n") + std::move(text)}};
}

std::vector<StepText> DescribeRefusedCheck(const Conversion& conversion) {
  std::string text = "check: refused\n";
  for (const CacheReport& cache : conversion.inspection.caches) {
    if (!cache.reason) continue;
    text += "  " + FindingLine(*cache.reason) + "\n";
    break;
  }
  return {{"5-check.txt", std::move(text)}};
}

std::vector<StepText> DescribeProof(const ProvedConversion& converted) {
  const Proof& proof = converted.proof;
  std::string text = fmt::format("prove: {}\n", WordOf(converted.equality));
  AddLine("accepted", converted.accepted ? "yes" : "no", &text);
  AddLine("reason", converted.reason, &text);
  AddLine("not tried", proof.not_tried, &text);
  text += "\nfacts\n";
  for (const ProofFact& fact : proof.facts) text += FactText(fact);
  if (converted.tests) text += TestsText(*converted.tests);
  text += "\nledger\n";
  for (const Assumption& assumption : converted.conversion.manifest.assumptions.all()) {
    text += LedgerLine(assumption) + "\n";
  }
  return {{"6-prove.txt", std::move(text)}};
}

}  // namespace kvlift
