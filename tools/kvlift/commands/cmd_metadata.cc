#include <string>
#include <vector>

#include "base/escape.h"
#include "fmt/format.h"
#include "kvlift/commands/commands.h"
#include "kvlift/outputs.h"
#include "kvlift/reports/port_documents.h"
#include "ports/ports.h"

namespace kvlift::cli {
namespace {

int RefusePorts(const MetadataFlags& flags, Io& io, const Finding& refusal, bool json) {
  if (json) PrintJson(io, PortDocument(nullptr, &refusal, {}));
  Complain(io, flags.model, fmt::format("{} [{}]", refusal.text, refusal.code));
  return kFindings;
}

// Says which inputs and outputs the file does not name.
void NameOthers(const MetadataFlags& flags, Io& io, const DecoderPorts& ports) {
  for (const auto& [names, what] :
       {std::pair(&ports.other_inputs, "inputs"), std::pair(&ports.other_outputs, "outputs")}) {
    if (names->empty()) continue;
    Complain(io, flags.model,
             fmt::format("{} that the file does not name: {}", what, fmt::join(*names, ", ")));
  }
}

}  // namespace

void AddMetadataFlags(CLI::App* command, MetadataFlags* flags) {
  command->add_option("model", flags->model, "A model with TensorScatter and Attention")
      ->required();
  command->add_option("-o,--output", flags->output, "Where to write it; stdout by default")
      ->check(CLI::Validator(OutputNameError, ""));
  AddFormat(command, "What stdout gets", {"text", "json"}, &flags->format, &flags->common);
  command->add_flag("--force", flags->force, "Overwrite an existing file");
}

int RunMetadata(const MetadataFlags& flags, Io io) {
  const bool json = flags.common.json;
  const auto model = Load(io, flags.model, flags.common);
  if (!model) return kUnreadable;
  const auto reading = ReadPorts(*model->proto);
  if (!reading.ok()) {
    Complain(io, flags.model, reading.status());
    return absl::IsInternal(reading.status()) ? kInternal : kUnreadable;
  }
  if (!reading->ports) return RefusePorts(flags, io, *reading->refusal, json);
  const DecoderPorts& ports = *reading->ports;
  std::vector<OutputFile> files;
  if (!flags.output.empty()) files.push_back({flags.output, MetadataText(ports)});
  OutputGuard guard(flags.force);
  guard.ReadsModel(*model);
  guard.ReadsManifestBeside(flags.model);
  if (const absl::Status may = guard.Check(files); !may.ok()) {
    Complain(io, "", may);
    return kUnwritable;
  }
  if (const absl::Status written = WriteFiles(files); !written.ok()) {
    Complain(io, flags.output, written);
    return kUnwritable;
  }
  if (json) {
    std::vector<std::string> names;
    if (!files.empty()) names = {flags.output};
    PrintJson(io, PortDocument(&ports, nullptr, names));
  } else if (files.empty()) {
    io.Results() << MetadataText(ports);
  } else if (!flags.common.quiet) {
    io.Results() << fmt::format("wrote {}\n", EscapeTerminal(flags.output));
  }
  if (!json && !flags.common.quiet) NameOthers(flags, io, ports);
  return kDone;
}

}  // namespace kvlift::cli
