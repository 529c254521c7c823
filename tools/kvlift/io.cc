// The input and output that all commands share: streams, messages, models and JSON.
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/coded.h"
#include "base/escape.h"
#include "base/findings.h"
#include "exec/memory/budget.h"
#include "fmt/format.h"
#include "kvlift/cli.h"
#include "sym/expr/expr.h"

namespace kvlift::cli {
namespace {

// The most bytes of one message, since names in it may have any length.
constexpr size_t kMaxMessageBytes = 4096;

// Returns the finding whose code ends a message: "... [KV018]".
const FindingInfo* FindingAtEnd(std::string_view message) {
  if (message.empty() || message.back() != ']') return nullptr;
  const size_t open = message.rfind('[');
  if (open == std::string_view::npos) return nullptr;
  return FindFinding(message.substr(open + 1, message.size() - open - 2));
}

// Returns an entry of "errors" in docs/schema/error.schema.json. `info` is the finding whose code
// ends the message, and null for a message without a code.
nlohmann::ordered_json ErrorEntry(std::string_view what, std::string_view message,
                                  const FindingInfo* info) {
  std::string text = fmt::format("{}{}{}", what, what.empty() ? "" : ": ", message);
  if (info == nullptr) return {{"code", nullptr}, {"text", Shorten(text, kMaxMessageBytes)}};
  text.resize(text.rfind('['));
  absl::StripTrailingAsciiWhitespace(&text);
  return {{"code", info->code}, {"text", Shorten(text, kMaxMessageBytes)}};
}

}  // namespace

void Io::Say(std::string what) const {
  if (progress != nullptr) progress->Say(std::move(what));
}

void Io::StopProgress() const {
  if (progress != nullptr) progress->Stop();
}

std::ostream& Io::Results() const {
  StopProgress();
  reported->results = true;
  return out;
}

Style Io::OutStyle() const { return StyleOf(&out == &std::cout ? STDOUT_FILENO : -1, color); }

Style Io::ErrStyle() const { return StyleOf(&err == &std::cerr ? STDERR_FILENO : -1, color); }

void Complain(Io& io, std::string_view what, std::string_view message) {
  io.StopProgress();
  const Style style = io.ErrStyle();
  io.err << style.Paint(Tone::kBad, "kvlift:") << " " << EscapeTerminal(what)
         << (what.empty() ? "" : ": ") << Shorten(EscapeTerminal(message), kMaxMessageBytes)
         << "\n";
  const FindingInfo* info = FindingAtEnd(message);
  io.reported->errors.push_back(ErrorEntry(what, message, info));
  if (info == nullptr) return;
  io.err << style.Paint(Tone::kFaint, "  why: ") << info->why << "\n"
         << style.Paint(Tone::kFaint, "  do:  ") << info->remedy << "\n";
}

void Complain(Io& io, std::string_view what, const absl::Status& status) {
  const std::string code = CodeOf(status);
  const std::string message(status.message());
  Complain(io, what, code.empty() ? message : fmt::format("{} [{}]", message, code));
}

int RefuseWith(Io& io, std::string_view what, const absl::Status& status, ExitCode code) {
  Complain(io, what, status);
  return code;
}

absl::StatusOr<Model> ReadModel(const Io& io, const std::string& path, const CommonFlags& flags) {
  io.Say("reading " + path);
  exec::SetRunLimits(flags.load.limits);
  sym::SetMaxSteps(flags.load.limits.analysis_steps);
  return LoadModel(path, flags.load);
}

std::optional<Model> Load(Io& io, const std::string& path, const CommonFlags& flags) {
  absl::StatusOr<Model> model = ReadModel(io, path, flags);
  if (model.ok()) return *std::move(model);
  Complain(io, "", model.status());
  return std::nullopt;
}

std::string JsonText(const nlohmann::ordered_json& json) {
  // ASCII only: characters that a terminal would act on are escaped as in JSON.
  constexpr bool kAscii = true;
  return json.dump(2, ' ', kAscii, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void PrintJson(Io& io, const nlohmann::ordered_json& json) { io.Results() << JsonText(json); }

bool AsksForJson(const std::vector<std::string>& args) {
  const auto end = std::find(args.begin(), args.end(), "--");
  return std::find(args.begin(), end, "--json") != end;
}

void PrintErrorDocument(Io& io, int exit_code) {
  nlohmann::ordered_json document = {{"schema", "kvlift/error/1"}, {"command", nullptr}};
  if (io.args.size() > 1) document["command"] = io.args[1];
  document["exit_code"] = exit_code;
  document["errors"] = io.reported->errors;
  PrintJson(io, document);
}

}  // namespace kvlift::cli
