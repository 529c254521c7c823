#include "base/escape.h"
#include "fmt/format.h"
#include "kvlift/commands/cmd_verify_infer.h"
#include "kvlift/commands/commands.h"
#include "kvlift/inputs/relation.h"
#include "kvlift/outputs.h"
#include "kvlift/reports/documents.h"
#include "kvlift/reports/report_data.h"

namespace kvlift::cli {
int RunReport(const ReportFlags& flags, Io io) {
  const auto pair = LoadPair(io, flags.before, flags.after, flags.manifest, flags.common);
  if (!pair) return kUnreadable;
  const auto& [before, after, relation, found, same] = *pair;
  std::vector<Manifest> inferred = found;
  OutputGuard guard(flags.force);
  for (const Model* model : {&before, &after}) {
    guard.ReadsModel(*model);
    guard.ReadsManifestBeside(model->path);
  }
  guard.Reads(flags.manifest);
  if (const absl::Status may = guard.Check({flags.output}); !may.ok()) {
    Complain(io, "", may);
    return kUnwritable;
  }
  VerifyOptions options;
  options.full = flags.plan == "full";
  options.threads = flags.common.threads;
  options.source = true;
  io.Say("running both models step by step, and mutants of the second");
  size_t judged = 0;
  const auto verdict = inferred.empty() ? Verify(before, after, relation, options)
                                        : VerifyEach(before, after, &inferred, options, &judged);
  if (!verdict.ok()) return RefuseWith(io, flags.after, verdict.status(), kUnreadable);

  io.Say("drawing");
  auto page = ReportPage(before, after, inferred.empty() ? relation : inferred[judged], *verdict,
                         CommandText(io.args));
  if (!page.ok()) return RefuseWith(io, flags.after, page.status(), kUnreadable);
  if (const auto written = WriteFiles({{flags.output, *std::move(page)}}); !written.ok()) {
    Complain(io, flags.output, written);
    return kUnwritable;
  }
  if (flags.common.json) {
    nlohmann::ordered_json document = {{"schema", "kvlift/report/1"}};
    document["output"] = flags.output;
    document["verdict"] = VerdictName(verdict->verdict);
    PrintJson(io, document);
  } else if (!flags.common.quiet) {
    io.Results() << fmt::format("wrote {}\nverdict: {}\n", EscapeTerminal(flags.output),
                                VerdictName(verdict->verdict));
  }
  return ExitCodeOf(verdict->verdict);
}

}  // namespace kvlift::cli
