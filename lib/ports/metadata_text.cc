// Writes inference_metadata.yaml. Keys are plain words; names are always quoted.
#include "base/quote_yaml.h"
#include "fmt/format.h"
#include "ports/ports.h"

namespace kvlift {
namespace {

std::string Entry(std::string_view indent, std::string_view key, const std::string& name) {
  return name.empty() ? "" : fmt::format("{}{}: {}\n", indent, key, QuoteYaml(name));
}

std::string List(std::string_view indent, std::string_view key,
                 const std::vector<std::string>& names) {
  std::string text = fmt::format("{}{}:\n", indent, key);
  for (const std::string& name : names) {
    text += fmt::format("{}  - {}\n", indent, QuoteYaml(name));
  }
  return text;
}

}  // namespace

std::string MetadataText(const DecoderPorts& ports) {
  constexpr std::string_view kIo = "    ", kCache = "      ";
  std::string text = "model:\n  io:\n";
  text += Entry(kIo, "token_input", ports.token_input);
  text += Entry(kIo, "inputs_embeds_input", ports.inputs_embeds_input);
  text += Entry(kIo, "sequence_source", SequenceSource(ports));
  text += Entry(kIo, "position_ids_input", ports.position_ids_input);
  text += Entry(kIo, "attention_mask_input", ports.attention_mask_input);
  text += Entry(kIo, "logits_output", ports.logits_output);
  text += "    static_cache:\n";
  text += Entry(kCache, "write_indices_input", ports.write_indices_input);
  text += Entry(kCache, "kv_sequence_length_input", ports.kv_sequence_length_input);
  text += List(kCache, "key_cache_inputs", ports.key_cache_inputs);
  text += List(kCache, "value_cache_inputs", ports.value_cache_inputs);
  text += List(kCache, "key_cache_outputs", ports.key_cache_outputs);
  text += List(kCache, "value_cache_outputs", ports.value_cache_outputs);
  return text;
}

}  // namespace kvlift
