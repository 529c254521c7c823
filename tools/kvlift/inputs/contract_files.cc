#include "kvlift/inputs/contract_files.h"

#include "base/status.h"
#include "contract/manifest.h"
#include "fmt/format.h"
#include "ports/ports.h"

namespace kvlift::cli {
namespace {

// Returns the path of a file beside a model: "out.onnx" -> "out.genai.json".
std::string Beside(const std::string& output, std::string_view ending) {
  constexpr std::string_view kManifest = ".kv.json";
  const std::string manifest = ManifestPathFor(output);
  return manifest.substr(0, manifest.size() - kManifest.size()) + std::string(ending);
}

}  // namespace

absl::StatusOr<ContractFiles> ContractFilesOf(const Conversion& conversion,
                                              const std::string& output) {
  ContractFiles found;
  if (!conversion.genai.empty()) {
    found.files.push_back({Beside(output, ".genai.json"), conversion.genai});
  }
  if (conversion.manifest.target != "genai-static") return found;
  const std::string path = Beside(output, ".inference_metadata.yaml");
  KV_ASSIGN_OR_RETURN(const PortReading reading, ReadPorts(*conversion.model));
  if (reading.ports) {
    found.files.push_back({path, MetadataText(*reading.ports)});
  } else {
    found.left_out = path;
    found.why = fmt::format("not written: {} [{}]", reading.refusal->text, reading.refusal->code);
  }
  return found;
}

}  // namespace kvlift::cli
