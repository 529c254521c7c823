#include "report/text/github.h"

#include "base/escape.h"
#include "fmt/format.h"

namespace kvlift {
namespace {

std::string_view Command(Level level) {
  return level == Level::kError ? "error" : level == Level::kWarning ? "warning" : "notice";
}

// GitHub cuts longer lines of a log silently.
constexpr size_t kMaxLogLineBytes = 4096;

std::string Title(const Finding& finding) {
  const FindingInfo* info = FindFinding(finding.code);
  return info == nullptr ? "kvlift" : fmt::format("{} {}", info->code, info->name);
}

}  // namespace

std::string GithubAnnotations(absl::Span<const Diagnostic> diagnostics) {
  std::string text;
  for (const Diagnostic& d : diagnostics) {
    text += fmt::format("::{} file={},title={}::{}\n", Command(d.level),
                        EscapeGithubProperty(Shorten(d.path, kMaxLogLineBytes)),
                        EscapeGithubProperty(Title(d.finding)),
                        EscapeGithubData(Shorten(OneLine(d.finding), kMaxLogLineBytes)));
  }
  return text;
}

}  // namespace kvlift
