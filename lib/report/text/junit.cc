#include "report/text/junit.h"

#include <algorithm>

#include "base/escape.h"
#include "fmt/format.h"

namespace kvlift {
namespace {

constexpr size_t kMaxJunitBytes = 16384;

std::string JunitText(std::string_view text) { return EscapeMarkup(Shorten(text, kMaxJunitBytes)); }

// Escapes a text line by line, so that line breaks are kept.
std::string JunitLines(const std::string& text) {
  std::string out;
  size_t begin = 0;
  for (size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find('\n', begin);
    if (begin > 0) out += '\n';
    out += JunitText(std::string_view(text).substr(begin, end - begin));
    if (end == std::string::npos) break;
  }
  return out;
}

struct Counts {
  size_t tests = 0, failures = 0, errors = 0, skipped = 0;

  void Add(const TestSuite& suite) {
    const auto count = [&](CaseOutcome outcome) {
      return static_cast<size_t>(
          std::count_if(suite.cases.begin(), suite.cases.end(),
                        [&](const TestCase& c) { return c.outcome == outcome; }));
    };
    tests += suite.cases.size();
    failures += count(CaseOutcome::kFailed);
    errors += count(CaseOutcome::kError);
    skipped += count(CaseOutcome::kSkipped);
  }
};

std::string CaseXml(const TestCase& c) {
  const std::string head = fmt::format("    <testcase classname=\"{}\" name=\"{}\"",
                                       JunitText(c.group), JunitText(c.name));
  if (c.outcome == CaseOutcome::kPassed) return head + "/>\n";
  if (c.outcome == CaseOutcome::kSkipped) {
    return head + fmt::format(">\n      <skipped message=\"{}\"/>\n    </testcase>\n",
                              JunitText(c.message));
  }
  const std::string_view element = c.outcome == CaseOutcome::kFailed ? "failure" : "error";
  return head +
         fmt::format(">\n      <{0} type=\"{1}\" message=\"{2}\">{3}</{0}>\n    </testcase>\n",
                     element, JunitText(c.type), JunitText(c.message), JunitLines(c.detail));
}

}  // namespace

std::string JunitXml(absl::Span<const TestSuite> suites) {
  Counts all;
  std::string body;
  for (const TestSuite& suite : suites) {
    Counts own;
    own.Add(suite);
    all.Add(suite);
    body += fmt::format(
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\">\n",
        JunitText(suite.name), own.tests, own.failures, own.errors, own.skipped);
    for (const TestCase& c : suite.cases) body += CaseXml(c);
    body += "  </testsuite>\n";
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"kvlift\" tests=\"{}\" "
      "failures=\"{}\" errors=\"{}\" skipped=\"{}\">\n{}</testsuites>\n",
      all.tests, all.failures, all.errors, all.skipped, body);
}

}  // namespace kvlift
