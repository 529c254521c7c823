// The roles of the inputs and outputs of a decoder with static caches, and the file that names them
// for a runtime: inference_metadata.yaml with `model.io.static_cache`, as onnx-genai reads and
// mobius writes it (onnx/onnx#8184).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/findings.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Names of inputs and outputs. The four lists have one entry for each layer.
struct DecoderPorts {
  // Each name is empty if the model has no such input or output, or if the graph does not show
  // which it is.
  std::string token_input, inputs_embeds_input, position_ids_input, attention_mask_input,
      logits_output;
  std::string write_indices_input, kv_sequence_length_input;
  std::vector<std::string> key_cache_inputs, value_cache_inputs;
  std::vector<std::string> key_cache_outputs, value_cache_outputs;
  std::vector<std::string> other_inputs, other_outputs;  // those that have no role above
};

struct PortReading {
  std::optional<DecoderPorts> ports;  // absent: `refusal` says why
  std::optional<Finding> refusal;     // KV254
};

// Calls of model-local functions are inlined first. Fails as Graph::Build and InlineFunctions.
absl::StatusOr<PortReading> ReadPorts(const onnx::ModelProto& model);

// Returns "token_ids" or "inputs_embeds": which input drives the decoder. Empty if the ports name
// neither.
std::string SequenceSource(const DecoderPorts& ports);

// Returns the text of inference_metadata.yaml.
std::string MetadataText(const DecoderPorts& ports);

}  // namespace kvlift
