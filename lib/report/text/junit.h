// JUnit XML as build servers read it. Its elements are those of docs/schema/junit.xsd.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"

namespace kvlift {

// kFailed: the check was made and does not hold. kError: the check could not be made.
enum class CaseOutcome { kPassed, kFailed, kError, kSkipped };

struct TestCase {
  std::string group;  // JUnit's class name
  std::string name;
  CaseOutcome outcome = CaseOutcome::kPassed;
  std::string type = {};     // code of a finding, for failures and errors; else empty
  std::string message = {};  // one line
  std::string detail = {};   // any number of lines
};

struct TestSuite {
  std::string name;
  std::vector<TestCase> cases;
};

// Returns the whole file. It has no times and no host name, so equal results give equal bytes.
std::string JunitXml(absl::Span<const TestSuite> suites);

}  // namespace kvlift
