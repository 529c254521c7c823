#include "fmt/format.h"
#include "hostloop/loop_facts.h"
#include "kvlift/commands/commands.h"
#include "kvlift/inputs/relation.h"
#include "kvlift/outputs.h"

namespace kvlift::cli {

int RunEmitLoop(const EmitLoopFlags& flags, Io io) {
  int exit = kDone;
  const auto converted = LoadConverted(io, flags.model, flags.manifest, flags.common, &exit);
  if (!converted) return exit;
  const auto& [model, manifest] = *converted;
  const auto graph = Graph::Build(model.proto);
  if (!graph.ok()) {
    Complain(io, flags.model, graph.status());
    return kUnreadable;
  }
  auto facts = ReadLoopFacts(*graph, manifest);
  if (!facts.ok()) {
    Complain(io, flags.model, facts.status());
    return kInconclusive;
  }
  facts->model = flags.model;
  if (flags.speculative) {
    if (const std::string why = WhyNotSpeculative(*facts); !why.empty()) {
      Complain(io, flags.model, why);
      return kInconclusive;
    }
    if (flags.lang != "python-ort") {
      Complain(io, "--speculative", "is for --lang python-ort only");
      return kUsage;
    }
  }
  std::string text = flags.speculative         ? SpeculativeLoop(*facts)
                     : flags.lang == "cpp-ort" ? CppLoop(*facts)
                                               : PythonLoop(*facts);
  if (flags.common.json) {
    PrintJson(io, {{"schema", "kvlift/emit-loop/1"}, {"lang", flags.lang}, {"text", text}});
    return kDone;
  }
  if (flags.output.empty()) {
    io.out << text;
    return kDone;
  }
  OutputGuard guard(flags.force);
  guard.ReadsModel(model);
  guard.ReadsManifestBeside(flags.model);
  guard.Reads(flags.manifest);
  const std::vector<OutputFile> files = {{flags.output, std::move(text)}};
  if (const absl::Status may = guard.Check(files); !may.ok()) {
    Complain(io, "", may);
    return kUnwritable;
  }
  if (const auto status = WriteFiles(files); !status.ok()) {
    Complain(io, flags.output, status);
    return kUnwritable;
  }
  return kDone;
}

}  // namespace kvlift::cli
