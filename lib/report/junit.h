// JUnit XML as build servers read it; its elements are those of docs/schema/junit.xsd.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"

namespace kvlift {

// Failed: what was checked does not hold. Error: it could not be checked.
enum class Outcome { kPassed, kFailed, kError, kSkipped };

struct TestCase {
  std::string group;  // JUnit's class name
  std::string name;
  Outcome outcome = Outcome::kPassed;
  std::string type = {};     // of a failure: a finding's code
  std::string message = {};  // one line
  std::string detail = {};   // any number of lines
};

struct TestSuite {
  std::string name;
  std::vector<TestCase> cases;
};

// The whole file. No times and no host: equal results give equal bytes.
std::string JunitXml(absl::Span<const TestSuite> suites);

}  // namespace kvlift
