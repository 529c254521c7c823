#include <algorithm>

#include "base/coded.h"
#include "base/escape.h"
#include "base/status.h"
#include "contract/manifest_text.h"
#include "contract/words.h"
#include "exec/session/program.h"
#include "fmt/format.h"
#include "hostloop/loop_facts.h"
#include "kvlift/commands/commands.h"
#include "kvlift/inputs/relation.h"
#include "kvlift/outputs.h"
#include "maintenance/maintenance.h"
#include "maintenance/slots.h"
#include "pipeline/checks.h"

namespace kvlift::cli {
namespace {

using nlohmann::ordered_json;

// Returns the inputs that may hold the positions of a step's tokens.
absl::StatusOr<std::vector<std::string>> PositionInputs(const Graph& model,
                                                        const Manifest& manifest) {
  KV_ASSIGN_OR_RETURN(const LoopFacts facts, ReadLoopFacts(model, manifest));
  std::vector<std::string> names;
  for (const LoopInput& input : facts.inputs) {
    const bool control = std::any_of(
        manifest.inputs.begin(), manifest.inputs.end(),
        [&](const ManifestInput& i) { return i.name == input.name && AsControl(i) != nullptr; });
    if (!control && input.meaning == "positions") names.push_back(input.name);
  }
  return names;
}

// The operations on rows and positions that are allowed, or why rows cannot be moved.
struct Policy {
  std::optional<Finding> refusal;
  ManifestMaintenance says;
};

Policy PolicyOf(const Graph& model, const Manifest& manifest, const MaintenanceOptions& options) {
  Policy policy;
  if (options.beam) policy.says.does.push_back(CompanionStep::kReorder);
  if (!options.keep) return policy;
  policy.says.does.push_back(CompanionStep::kKeep);
  SlotReading slots = ReadSlots(model, manifest);
  policy.refusal = std::move(slots.refusal);
  if (policy.refusal) return policy;
  policy.says.by_slot = std::move(slots.by_slot);
  auto positions = PositionInputs(model, manifest);
  if (!positions.ok()) {
    policy.refusal = Finding{"KV234", std::string(positions.status().message()), {}, {}};
    return policy;
  }
  policy.says.positions = positions->empty() ? PositionSource::kNone : PositionSource::kGiven;
  policy.says.position_inputs = *std::move(positions);
  return policy;
}

// Marks caches that the executor does not update in place as "copy" in the manifest, with the
// reader.
absl::Status ProveAliases(const onnx::ModelProto& model, Manifest* manifest) {
  KV_ASSIGN_OR_RETURN(Graph graph, Graph::Build(std::make_shared<const onnx::ModelProto>(model)));
  exec::CompileOptions options;
  for (const ManifestCache& c : manifest->caches) options.caches.push_back({c.input, c.output});
  KV_ASSIGN_OR_RETURN(
      const auto program,
      exec::Program::Compile(std::make_shared<const Graph>(std::move(graph)), options));
  for (const exec::AliasDecision& decision : program->aliasing()) {
    for (ManifestCache& cache : manifest->caches) {
      if (cache.input != decision.pair.input || decision.aliased) continue;
      cache.alias = CacheAlias::kCopy;
      cache.readers = decision.readers;
    }
  }
  return absl::OkStatus();
}

ordered_json Document(const Manifest* companion, const std::vector<std::string>& outputs,
                      const std::optional<Finding>& refusal) {
  ordered_json document = {{"schema", "kvlift/emit-maintenance/1"},
                           {"status", refusal ? "refused" : "written"},
                           {"caches", ordered_json::array()},
                           {"positions", nullptr},
                           {"position_inputs", ordered_json::array()},
                           {"by_slot", ordered_json::array()},
                           {"outputs", outputs},
                           {"reason", nullptr}};
  if (refusal) {
    document["reason"] = {
        {"code", refusal->code}, {"text", refusal->text}, {"nodes", refusal->nodes}};
    return document;
  }
  for (const ManifestCache& c : companion->caches) {
    document["caches"].push_back({{"id", c.id}, {"in_place", c.alias == CacheAlias::kSafe}});
  }
  const ManifestMaintenance& says = *companion->maintenance;
  if (says.positions) document["positions"] = WordOf(*says.positions);
  document["position_inputs"] = says.position_inputs;
  document["by_slot"] = says.by_slot;
  return document;
}

std::string Text(const Manifest& companion, const std::vector<std::string>& outputs) {
  const auto in_place =
      std::count_if(companion.caches.begin(), companion.caches.end(),
                    [](const ManifestCache& c) { return c.alias == CacheAlias::kSafe; });
  const ManifestMaintenance& says = *companion.maintenance;
  std::string text = fmt::format("caches: {}, {} in place\n", companion.caches.size(), in_place);
  if (says.positions == PositionSource::kGiven) {
    text += fmt::format(
        "positions: kept rows keep theirs; new tokens count on in {}, not from the write index\n",
        EscapeTerminal(fmt::format("{}", fmt::join(says.position_inputs, ", "))));
  } else if (says.positions == PositionSource::kNone) {
    text += "positions: the model has none\n";
  }
  if (!says.by_slot.empty()) {
    text += fmt::format("by slot: the host moves the entries of {}, too\n",
                        EscapeTerminal(fmt::format("{}", fmt::join(says.by_slot, ", "))));
  }
  for (const std::string& output : outputs) {
    text += fmt::format("wrote {}\n", EscapeTerminal(output));
  }
  return text;
}

int Refuse(const EmitMaintenanceFlags& flags, Io& io, const Finding& refusal) {
  if (flags.common.json) PrintJson(io, Document(nullptr, {}, refusal));
  std::string text = refusal.text;
  if (!refusal.nodes.empty()) text += fmt::format(" ({})", fmt::join(refusal.nodes, ", "));
  Complain(io, flags.model, fmt::format("{} [{}]", text, refusal.code));
  return kFindings;
}

}  // namespace

int RunEmitMaintenance(const EmitMaintenanceFlags& flags, Io io) {
  int exit = kDone;
  const auto converted = LoadConverted(io, flags.model, flags.manifest, flags.common, &exit);
  if (!converted) return exit;
  const auto& [model, manifest] = *converted;
  auto inlined = model.proto->functions_size() == 0 ? absl::StatusOr<onnx::ModelProto>(*model.proto)
                                                    : InlineFunctions(*model.proto);
  auto graph = inlined.ok()
                   ? Graph::Build(std::make_shared<const onnx::ModelProto>(*std::move(inlined)))
                   : absl::StatusOr<Graph>(inlined.status());
  if (!graph.ok()) {
    Complain(io, flags.model, graph.status());
    return kUnreadable;
  }
  const MaintenanceOptions options{flags.only != "beam", flags.only != "keep"};
  Policy policy = PolicyOf(*graph, manifest, options);
  if (policy.refusal) return Refuse(flags, io, *policy.refusal);
  auto companion = MakeCompanion(*graph, manifest, options);
  if (!companion.ok()) {
    return Refuse(flags, io,
                  {CodeOf(companion.status()), std::string(companion.status().message()), {}, {}});
  }
  companion->manifest.maintenance = std::move(policy.says);
  companion->manifest.source_sha256 = model.Sha256();
  absl::Status sound = ProveAliases(companion->model, &companion->manifest);
  StampMetadata(companion->manifest, &companion->model);
  Model result;
  result.proto = std::make_shared<const onnx::ModelProto>(companion->model);
  result.path = flags.output;
  if (sound.ok()) sound = CheckResult(result, companion->manifest);
  auto bytes = SerializeModel(companion->model);
  if (sound.ok()) sound = bytes.status();
  if (!sound.ok()) {
    Complain(io, flags.model,
             fmt::format("internal error: the companion is not valid: {}",
                         std::string(sound.message())));
    return kInternal;
  }
  const std::vector<OutputFile> files = {
      {ManifestPathFor(flags.output), ManifestText(companion->manifest)},
      {flags.output, *std::move(bytes)}};
  OutputGuard guard(flags.force);
  guard.ReadsModel(model);
  guard.ReadsManifestBeside(flags.model);
  guard.Reads(flags.manifest);
  if (const absl::Status may = guard.Check(files); !may.ok()) {
    Complain(io, "", may);
    return kUnwritable;
  }
  if (const auto status = WriteFiles(files); !status.ok()) {
    const std::string code = kvlift::CodeOf(status);
    Complain(io, flags.output,
             fmt::format("{} [{}]", std::string(status.message()), code.empty() ? "KV501" : code));
    return kUnwritable;
  }
  std::vector<std::string> names;
  for (const OutputFile& file : files) names.push_back(file.path);
  if (flags.common.json) {
    PrintJson(io, Document(&companion->manifest, names, std::nullopt));
  } else if (!flags.common.quiet) {
    io.Results() << Text(companion->manifest, names);
  }
  return kDone;
}

}  // namespace kvlift::cli
