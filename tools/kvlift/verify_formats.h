// A verdict in the formats of build servers.
#pragma once

#include <string>
#include <vector>

#include "report/diagnostic.h"
#include "report/junit.h"
#include "verify/verify.h"

namespace kvlift::cli {

// Why the models are not said to be equal; a note if they are.
std::vector<Diagnostic> VerifyDiagnostics(const VerifyReport& report, const std::string& before,
                                          const std::string& after);
// Suites of the verdict, the plans, the mutants and what is proved for all shapes.
std::vector<TestSuite> VerifySuites(const VerifyReport& report, const std::string& before,
                                    const std::string& after);

}  // namespace kvlift::cli
