#include "kvlift/fleet/outcome.h"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/escape.h"
#include "base/findings.h"
#include "fmt/format.h"
#include "kvlift/cli.h"

namespace kvlift::cli {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostReasonBytes = 500;

// Returns an empty string if there is no such field, or if it is no text.
std::string TextAt(const ordered_json& json, const char* key) {
  if (!json.is_object()) return {};
  const auto field = json.find(key);
  if (field == json.end() || !field->is_string()) return {};
  return *field->get_ptr<const std::string*>();
}

// Returns null if there is no such field.
ordered_json At(const ordered_json& json, const char* key) {
  if (!json.is_object()) return nullptr;
  const auto field = json.find(key);
  return field == json.end() ? ordered_json(nullptr) : *field;
}

// Returns the first line of stderr that says something, without the name of the program.
std::string FirstLine(const std::string& errors) {
  absl::string_view first;
  for (absl::string_view line : absl::StrSplit(errors, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (absl::ConsumePrefix(&line, "kvlift: ")) return std::string(line);
    if (first.empty()) first = line;
  }
  return std::string(first);
}

// Adds the codes that stand in brackets: "... [KV018]".
void AddCodes(std::string_view text, std::vector<std::string>* codes) {
  for (size_t at = text.find("[KV"); at != std::string_view::npos; at = text.find("[KV", at + 1)) {
    const std::string code(text.substr(at + 1, 5));
    if (text.substr(at + 6, 1) == "]" && FindFinding(code) != nullptr) codes->push_back(code);
  }
}

bool SaysOutOfMemory(std::string_view text) {
  // The last two are those of the program loader.
  for (const char* words : {"out of memory", "bad_alloc", "annot allocate", "failed to map segment",
                            "cannot map zero-fill pages"}) {
    if (text.find(words) != std::string_view::npos) return true;
  }
  return false;
}

// Reads the documents of the three commands. The functions return the outcome.
class DocumentReader {
 public:
  explicit DocumentReader(FleetResult* result) : r_(*result) {}

  std::string Read(const ordered_json& document) {
    return r_.command == "convert"  ? Convert(document)
           : r_.command == "verify" ? Verify(document)
                                    : Check(document);
  }

 private:
  void AddFinding(const ordered_json& finding) {
    const std::string code = TextAt(finding, "code");
    if (code.empty()) return;
    r_.codes.push_back(code);
    if (r_.reason.empty()) r_.reason = code + ": " + TextAt(finding, "text");
  }

  std::string Convert(const ordered_json& document) {
    for (const char* list : {"caches", "attention"}) {
      for (const ordered_json& entry : At(document, list)) AddFinding(At(entry, "reason"));
    }
    const std::string status = TextAt(document, "status");
    const ordered_json equality = At(document, "equality");
    const std::string shown = TextAt(equality, "shown");
    if (shown == "different" || shown == "inconclusive") {
      r_.reason = TextAt(equality, "reason");
      return shown;
    }
    if (status == "nothing") return "no-cache";
    if (status != "converted") return status;
    return shown == "tested"     ? "converted-as-tested"
           : shown == "unproved" ? "converted-untested"
                                 : "converted";
  }

  std::string Verify(const ordered_json& document) {
    r_.reason = TextAt(document, "reason");
    const std::string code = r_.reason.substr(0, r_.reason.find(' '));
    if (FindFinding(code) != nullptr) r_.codes.push_back(code);
    return absl::StrReplaceAll(TextAt(document, "verdict"), {{" ", "-"}});
  }

  std::string Check(const ordered_json& document) {
    bool wrong = false;
    for (const ordered_json& model : At(document, "models")) {
      for (const ordered_json& finding : At(model, "findings")) {
        const bool error = TextAt(finding, "severity") == "error";
        if (error && !wrong)
          r_.reason.clear();  // the first error is the reason, before any warning
        wrong = wrong || error;
        AddFinding(finding);
      }
    }
    return wrong ? "findings" : "clean";
  }

  FleetResult& r_;
};

// Returns false for an error document, too.
bool IsOfCommand(const ordered_json& document, const std::string& command) {
  return absl::StartsWith(TextAt(document, "schema"), fmt::format("kvlift/{}/", command));
}

std::string OutcomeOfExit(int code) {
  switch (code) {
    case kUsage:
    case kUnreadable:
      return "invalid";
    case kUnwritable:
      return "not-written";
    default:
      return "crashed";
  }
}

// Judges an end without the document that the exit code promises.
void JudgeFailure(const ProcessEnd& end, const ProcessOutput& printed, FleetResult* r) {
  const std::string first = FirstLine(printed.errors);
  r->reason = first;
  if (end.timed_out) {
    r->outcome = "timeout";
    r->reason = fmt::format("took longer than {:g} s", r->timeout_seconds.value_or(0));
    return;
  }
  if (SaysOutOfMemory(printed.errors)) {
    r->outcome = "out-of-memory";
    if (r->memory_gib) {
      r->reason = fmt::format("needs more than {:g} GiB: {}", *r->memory_gib, first);
    }
    return;
  }
  if (WIFSIGNALED(end.status)) {
    const int signal = WTERMSIG(end.status);
    const char* name = sigabbrev_np(signal);
    r->outcome = "crashed";
    r->reason = fmt::format("ended by signal {} (SIG{})", signal, name == nullptr ? "?" : name);
    if (signal == SIGKILL) r->reason += ", as a system does that runs out of memory";
    if (!first.empty()) r->reason += ": " + first;
    return;
  }
  r->outcome = OutcomeOfExit(r->exit_code);
  if (r->reason.empty()) {
    r->reason = fmt::format("ended with exit code {} and no document", r->exit_code);
  }
}

}  // namespace

bool Judge(const ProcessEnd& end, const ProcessOutput& printed, FleetResult* result) {
  FleetResult& r = *result;
  r.seconds = end.seconds;
  r.peak_memory_bytes = end.peak_bytes;
  r.exit_code = WIFEXITED(end.status) ? WEXITSTATUS(end.status) : 128 + WTERMSIG(end.status);
  const auto document = ordered_json::parse(printed.document, nullptr, false);
  r.succeeded = r.exit_code == kDone;
  const bool whole = WIFEXITED(end.status) && IsOfCommand(document, r.command);
  const bool answered =
      r.exit_code == kDone || r.exit_code == kFindings || r.exit_code == kInconclusive;
  r.outcome = whole && answered ? DocumentReader(&r).Read(document) : std::string();
  const std::vector<std::string>& known = FleetOutcomes();
  if (std::find(known.begin(), known.end(), r.outcome) == known.end()) {
    r.codes.clear();
    JudgeFailure(end, printed, &r);
    AddCodes(printed.errors, &r.codes);
    r.succeeded = false;
  } else if (r.outcome == "inconclusive" && r.memory_gib && SaysOutOfMemory(r.reason)) {
    r.outcome = "out-of-memory";
  }
  std::sort(r.codes.begin(), r.codes.end());
  r.codes.erase(std::unique(r.codes.begin(), r.codes.end()), r.codes.end());
  r.reason = Shorten(ToValidUtf8(r.reason), kMostReasonBytes);
  return whole && r.exit_code != kUnreadable;
}

}  // namespace kvlift::cli
