// Verdicts in the formats of build servers.
#pragma once

#include <string>
#include <vector>

#include "report/text/diagnostic.h"
#include "report/text/junit.h"
#include "verify/judge/verify.h"

namespace kvlift::cli {

// Returns the formats of documents about a verdict: those of --format, and html.
const std::vector<std::string>& VerifyDocumentFormats();

// Returns the reasons why the models are not said to be equal, or one note if they are.
std::vector<Diagnostic> VerifyDiagnostics(const VerifyReport& report, const std::string& before,
                                          const std::string& after);
// Returns test suites for the verdict, the plans, the mutants and what is proved for all shapes.
std::vector<TestSuite> VerifySuites(const VerifyReport& report, const std::string& before,
                                    const std::string& after);

}  // namespace kvlift::cli
