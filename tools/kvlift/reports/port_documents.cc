#include "kvlift/reports/port_documents.h"

namespace kvlift::cli {
namespace {

using nlohmann::ordered_json;

// Returns the mapping `model` of inference_metadata.yaml.
ordered_json ModelOf(const DecoderPorts& ports) {
  ordered_json io = ordered_json::object();
  const auto add = [&](const char* key, const std::string& name) {
    if (!name.empty()) io[key] = name;
  };
  add("token_input", ports.token_input);
  add("inputs_embeds_input", ports.inputs_embeds_input);
  add("sequence_source", SequenceSource(ports));
  add("position_ids_input", ports.position_ids_input);
  add("attention_mask_input", ports.attention_mask_input);
  add("logits_output", ports.logits_output);
  io["static_cache"] = {{"write_indices_input", ports.write_indices_input},
                        {"kv_sequence_length_input", ports.kv_sequence_length_input},
                        {"key_cache_inputs", ports.key_cache_inputs},
                        {"value_cache_inputs", ports.value_cache_inputs},
                        {"key_cache_outputs", ports.key_cache_outputs},
                        {"value_cache_outputs", ports.value_cache_outputs}};
  return {{"io", std::move(io)}};
}

}  // namespace

ordered_json PortDocument(const DecoderPorts* ports, const Finding* refusal,
                          const std::vector<std::string>& outputs) {
  ordered_json document = {{"schema", "kvlift/metadata/1"},
                           {"status", refusal != nullptr ? "refused" : "named"},
                           {"model", nullptr},
                           {"other_inputs", ordered_json::array()},
                           {"other_outputs", ordered_json::array()},
                           {"outputs", outputs},
                           {"reason", nullptr}};
  if (ports != nullptr) {
    document["model"] = ModelOf(*ports);
    document["other_inputs"] = ports->other_inputs;
    document["other_outputs"] = ports->other_outputs;
  }
  if (refusal != nullptr) {
    document["reason"] = {
        {"code", refusal->code}, {"text", refusal->text}, {"nodes", refusal->nodes}};
  }
  return document;
}

}  // namespace kvlift::cli
