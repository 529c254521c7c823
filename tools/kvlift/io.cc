// What all commands print and load: the streams, messages, models and JSON.
#include <unistd.h>

#include <iostream>
#include <utility>

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

}  // namespace

void Io::Say(std::string what) const {
  if (progress != nullptr) progress->Say(std::move(what));
}

std::ostream& Io::Results() const {
  if (progress != nullptr) progress->Stop();
  return out;
}

Style Io::OutStyle() const { return StyleOf(&out == &std::cout ? STDOUT_FILENO : -1, color); }

Style Io::ErrStyle() const { return StyleOf(&err == &std::cerr ? STDERR_FILENO : -1, color); }

void Complain(Io& io, std::string_view what, std::string_view message) {
  if (io.progress != nullptr) io.progress->Stop();
  const Style style = io.ErrStyle();
  io.err << style.Paint(Tone::kBad, "kvlift:") << " " << EscapeTerminal(what)
         << (what.empty() ? "" : ": ") << Shorten(EscapeTerminal(message), kMaxMessageBytes)
         << "\n";
  const FindingInfo* info = FindingAtEnd(message);
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

}  // namespace kvlift::cli
