#include "ports/ports.h"

#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/escape.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/graph.h"
#include "onnxio/model/model.h"
#include "ports/cache_writers.h"
#include "ports/model_ports.h"
#include "ports/static_cache.h"

namespace kvlift {
namespace {

class Naming {
 public:
  explicit Naming(const Graph& graph) : graph_(graph) {}

  DecoderPorts Of(const ports::StaticCache& cache, const ports::ModelPorts& model) {
    DecoderPorts named;
    named.token_input = Name(model.tokens);
    named.inputs_embeds_input = Name(model.embeds);
    named.position_ids_input = Name(model.positions);
    named.attention_mask_input = Name(model.attention_mask);
    named.logits_output = Name(model.logits);
    named.write_indices_input = Name(cache.write_indices);
    named.kv_sequence_length_input = Name(cache.kv_length);
    for (const ports::LayerCaches& layer : cache.layers) {
      named.key_cache_inputs.push_back(Name(layer.key.input));
      named.value_cache_inputs.push_back(Name(layer.value.input));
      named.key_cache_outputs.push_back(Name(layer.key.output));
      named.value_cache_outputs.push_back(Name(layer.value.output));
    }
    named.other_inputs = Others(graph_.graph_inputs());
    named.other_outputs = Others(graph_.graph_outputs());
    return named;
  }

  // Returns a name that has a role and is not UTF-8, which no YAML file can hold.
  const std::string* NotUtf8() const {
    for (const ValueId v : named_) {
      if (!IsValidUtf8(graph_.name(v))) return &graph_.name(v);
    }
    return nullptr;
  }

 private:
  std::string Name(ValueId v) {
    if (v == kNoValue) return {};
    named_.insert(v);
    return graph_.name(v);
  }

  std::vector<std::string> Others(absl::Span<const ValueId> values) const {
    std::vector<std::string> names;
    for (const ValueId v : values) {
      if (!named_.contains(v)) names.push_back(graph_.name(v));
    }
    return names;
  }

  const Graph& graph_;
  absl::flat_hash_set<ValueId> named_;
};

}  // namespace

absl::StatusOr<PortReading> ReadPorts(const onnx::ModelProto& model) {
  auto source = std::make_shared<onnx::ModelProto>(model);
  if (model.functions_size() > 0) {
    KV_ASSIGN_OR_RETURN(*source, InlineFunctions(model));
  }
  // The roles of some ports follow from sizes that only shape inference gives.
  if (auto inferred = InferShapes(*source); inferred.ok()) *source = *std::move(inferred);
  KV_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(source));
  PortReading reading;
  ports::StaticCache cache;
  reading.refusal = ports::ReadStaticCache(graph, &cache);
  if (reading.refusal) return reading;
  Naming naming(graph);
  DecoderPorts named = naming.Of(cache, ports::ReadModelPorts(graph, cache));
  if (const std::string* name = naming.NotUtf8(); name != nullptr) {
    reading.refusal =
        ports::Refusal(graph, kNoNode, fmt::format("a name is not valid UTF-8: {}", *name));
    return reading;
  }
  reading.ports = std::move(named);
  return reading;
}

std::string SequenceSource(const DecoderPorts& ports) {
  return !ports.token_input.empty()           ? "token_ids"
         : !ports.inputs_embeds_input.empty() ? "inputs_embeds"
                                              : "";
}

}  // namespace kvlift
