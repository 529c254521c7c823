#include "base/escape.h"
#include "base/findings.h"
#include "fmt/format.h"
#include "kvlift/commands/commands.h"
#include "report/text/text_width.h"

namespace kvlift::cli {
namespace {

int ExplainCode(const FindingInfo& info, const ExplainFlags& flags, Io io) {
  if (flags.common.json) {
    PrintJson(io, {{"schema", "kvlift/explain/1"},
                   {"code", info.code},
                   {"name", info.name},
                   {"message", info.message},
                   {"why", info.why},
                   {"remedy", info.remedy}});
  } else {
    const Style style = io.OutStyle();
    std::ostream& out = io.Results();
    out << style.Paint(Tone::kHeading, fmt::format("{} {}", info.code, info.name)) << "\n";
    for (const auto& [title, text] :
         {std::pair{"What", info.message}, {"Why", info.why}, {"What to do", info.remedy}}) {
      out << "\n" << style.Paint(Tone::kFaint, fmt::format("{}:", title)) << "\n";
      for (const std::string& line : WrapText(text, style.width - 2)) out << "  " << line << "\n";
    }
  }
  return kDone;
}

}  // namespace

int RunExplain(const ExplainFlags& flags, Io io) {
  if (const FindingInfo* info = FindFinding(flags.what); info != nullptr) {
    return ExplainCode(*info, flags, io);
  }
  if (flags.node.empty()) {
    Complain(io, flags.what, "no such finding; for a model, give --node NAME");
    return kUsage;
  }
  const auto model = Load(io, flags.what, flags.common);
  if (!model) return kUnreadable;
  const auto lines = ExplainNode(*model, flags.node, AllRules());
  if (!lines.ok()) {
    Complain(io, flags.what, lines.status());
    return absl::IsNotFound(lines.status()) ? kUsage : kUnreadable;
  }
  if (flags.common.json) {
    PrintJson(io, {{"schema", "kvlift/explain/1"}, {"node", flags.node}, {"lines", *lines}});
    return kDone;
  }
  for (const std::string& line : *lines) io.Results() << EscapeTerminal(line) << "\n";
  return kDone;
}

}  // namespace kvlift::cli
