#include "kvlift/reports/verify_formats.h"

#include "fmt/format.h"
#include "kvlift/reports/documents.h"
#include "kvlift/reports/saved_documents.h"

namespace kvlift::cli {
namespace {

// Splits a reason such as "KV404 what differs" into code and text.
Finding ReasonOf(const VerifyReport& report) {
  const size_t space = report.reason.find(' ');
  const std::string code = report.reason.substr(0, space);
  if (space == std::string::npos || FindFinding(code) == nullptr) {
    return {"", report.reason, {}, {}};
  }
  return {code, report.reason.substr(space + 1), {}, {}};
}

CaseOutcome OutcomeOf(VerdictKind verdict) {
  return Accepts(verdict, Accept::kProved)    ? CaseOutcome::kPassed
         : verdict == VerdictKind::kDifferent ? CaseOutcome::kFailed
                                              : CaseOutcome::kError;
}

TestCase PlanCase(const PlanResult& plan) {
  TestCase one{"plans", plan.name};
  one.message = plan.note;
  if (plan.status == "different") {
    one.outcome = CaseOutcome::kFailed;
    one.type = "KV404";
  } else if (plan.status == "failed") {
    one.outcome = CaseOutcome::kError;
    one.type = "KV401";
  } else if (plan.status == "skipped") {
    one.outcome = CaseOutcome::kSkipped;
  }
  return one;
}

TestCase ControlCase(const ControlResult& control) {
  TestCase one{"mutants", fmt::format("{}: {}", control.group, control.mutant)};
  if (control.missed()) {
    one.outcome = CaseOutcome::kError;
    one.type = "KV407";
    one.message = "not detected";
  } else if (control.detected_by.empty()) {
    one.outcome = CaseOutcome::kSkipped;
    one.message = !control.not_run.empty() ? "does not run: " + control.not_run
                                           : "excused: " + control.equivalent;
  }
  return one;
}

TestCase FactCase(const ProofFact& fact) {
  TestCase one{"for all shapes", fmt::format("{}: {}", fact.about, fact.text)};
  if (fact.status == FactStatus::kRefuted) {
    one.outcome = CaseOutcome::kFailed;
    one.type = "KV409";
    one.message = fact.why_not;
  } else if (!fact.holds()) {
    one.outcome = CaseOutcome::kSkipped;
    one.message = "only tested: " + fact.why_not;
  }
  return one;
}

template <typename Items, typename Make>
void AddSuite(const char* name, const Items& items, Make make, std::vector<TestSuite>* suites) {
  TestSuite suite{name, {}};
  for (const auto& item : items) suite.cases.push_back(make(item));
  if (!suite.cases.empty()) suites->push_back(std::move(suite));
}

}  // namespace

const std::vector<std::string>& VerifyDocumentFormats() {
  static const std::vector<std::string> formats = [] {
    std::vector<std::string> all = kFormats;
    all.push_back("html");
    return all;
  }();
  return formats;
}

std::vector<Diagnostic> VerifyDiagnostics(const VerifyReport& report, const std::string& before,
                                          const std::string& after) {
  std::vector<Diagnostic> all;
  if (OutcomeOf(report.verdict) == CaseOutcome::kPassed) {
    all.push_back(
        {Level::kNote,
         after,
         {"", fmt::format("verdict: {} to {}", VerdictName(report.verdict), before), {}, {}}});
    return all;
  }
  Finding reason = ReasonOf(report);
  if (report.counterexample && !report.counterexample->after_node.empty()) {
    reason.nodes.push_back(report.counterexample->after_node);
  }
  reason.text = fmt::format("verdict: {} compared with {}: {}", VerdictName(report.verdict), before,
                            reason.text);
  const bool tested = report.verdict == VerdictKind::kEqualAsTested;
  all.push_back({tested ? Level::kWarning : Level::kError, after, std::move(reason)});
  for (const ControlResult& control : report.controls) {
    if (!control.missed()) continue;
    all.push_back({Level::kWarning, after, {"KV407", "not detected: " + control.mutant, {}, {}}});
  }
  return all;
}

std::vector<TestSuite> VerifySuites(const VerifyReport& report, const std::string& before,
                                    const std::string& after) {
  const Finding reason = ReasonOf(report);
  TestCase verdict{"verify", fmt::format("{} is equal to {}", after, before),
                   OutcomeOf(report.verdict)};
  verdict.type = reason.code;
  verdict.message = fmt::format("{}: {}", VerdictName(report.verdict), reason.text);
  if (report.counterexample) verdict.detail = report.counterexample->text;
  std::vector<TestSuite> suites = {{"verdict", {verdict}}};
  AddSuite("plans", report.plans, PlanCase, &suites);
  AddSuite("mutants", report.controls, ControlCase, &suites);
  AddSuite("for all shapes", report.proof.facts, FactCase, &suites);
  return suites;
}

}  // namespace kvlift::cli
