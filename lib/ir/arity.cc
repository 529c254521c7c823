#include "ir/arity.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/coded.h"
#include "base/escape.h"
#include "base/status.h"
#include "fmt/format.h"
#include "onnx/defs/schema.h"

namespace kvlift {
namespace {

using onnx::OpSchema;

// Finds the schemas of operators in the versions that the model imports, and remembers them. An
// operator that is newer than the imported version is checked against its newest schema, because
// later code knows a node by the name of its operator alone.
class Schemas {
 public:
  explicit Schemas(const onnx::ModelProto& model) {
    for (const auto& import : model.opset_import()) {
      versions_[Domain(import.domain())] = static_cast<int>(import.version());
    }
    for (const auto& function : model.functions()) {
      local_.insert({Domain(function.domain()), function.name()});
    }
  }

  // Returns true if a model-local function defines the operator.
  bool IsLocal(const onnx::NodeProto& node) const {
    return local_.contains(std::pair(Domain(node.domain()), node.op_type()));
  }

  // Returns nullptr if ONNX does not define the operator, or if the model itself does.
  const OpSchema* Find(const onnx::NodeProto& node) {
    if (IsLocal(node)) return nullptr;
    const std::string domain = Domain(node.domain());
    const auto version = versions_.find(domain);
    if (version == versions_.end()) return nullptr;
    const auto [known, added] = known_.try_emplace({domain, node.op_type()}, nullptr);
    if (added) {
      known->second = onnx::OpSchemaRegistry::Schema(node.op_type(), version->second, domain);
      if (known->second == nullptr) {
        known->second = onnx::OpSchemaRegistry::Schema(node.op_type(), domain);
      }
    }
    return known->second;
  }

 private:
  static std::string Domain(const std::string& domain) {
    return domain == "ai.onnx" ? std::string() : domain;
  }

  absl::flat_hash_map<std::string, int> versions_;
  absl::flat_hash_map<std::pair<std::string, std::string>, const OpSchema*> known_;
  absl::flat_hash_set<std::pair<std::string, std::string>> local_;
};

absl::Status Wrong(std::string_view code, const onnx::NodeProto& node, std::string_view what) {
  const std::string name = !node.name().empty()     ? node.name()
                           : !node.output().empty() ? node.output(0)
                                                    : std::string();
  return Coded(code,
               absl::InvalidArgumentError(fmt::format("node \"{}\": {} {}", EscapeTerminal(name),
                                                      EscapeTerminal(node.op_type()), what)));
}

bool IsFlag(const std::string& attribute) {
  static const auto& flags = *new absl::flat_hash_set<std::string>({
      "allowzero",
      "auto_round",
      "ceil_mode",
      "count_include_pad",
      "do_rotary",
      "exclusive",
      "is_causal",
      "is_packed_batching",
      "keepdims",
      "largest",
      "linear_before_reset",
      "noop_with_empty_axes",
      "reverse",
      "rotary_interleaved",
      "scale_rotary",
      "select_last_index",
      "sorted",
      "transA",
      "transB",
      "transBatchA",
      "transBatchB",
      "unidirectional",
  });
  return flags.contains(attribute);
}

absl::Status CheckFlags(const onnx::NodeProto& node) {
  if (!node.domain().empty() && node.domain() != "ai.onnx" && node.domain() != "com.microsoft") {
    return absl::OkStatus();
  }
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.type() != onnx::AttributeProto::INT || !IsFlag(attribute.name())) continue;
    if (attribute.i() == 0 || attribute.i() == 1) continue;
    return Wrong("KV032", node, fmt::format("has {} = {}", attribute.name(), attribute.i()));
  }
  return absl::OkStatus();
}

absl::Status CheckNode(const onnx::NodeProto& node, const OpSchema& schema) {
  if (node.input_size() < schema.min_input()) {
    return Wrong("KV026", node,
                 fmt::format("has {} inputs and needs {}", node.input_size(), schema.min_input()));
  }
  if (node.output_size() < schema.min_output()) {
    return Wrong(
        "KV026", node,
        fmt::format("has {} outputs and needs {}", node.output_size(), schema.min_output()));
  }
  for (int k = 0; k < schema.min_input() && k < static_cast<int>(schema.inputs().size()); ++k) {
    const bool required = schema.inputs()[static_cast<size_t>(k)].GetOption() == OpSchema::Single;
    if (required && node.input(k).empty())
      return Wrong("KV026", node, fmt::format("omits input {}", k));
  }
  for (int k = 0; k < schema.min_output() && k < static_cast<int>(schema.outputs().size()); ++k) {
    const bool required = schema.outputs()[static_cast<size_t>(k)].GetOption() == OpSchema::Single;
    if (required && node.output(k).empty())
      return Wrong("KV026", node, fmt::format("omits output {}", k));
  }
  int inputs = node.input_size(), outputs = node.output_size();
  while (inputs > 0 && node.input(inputs - 1).empty()) --inputs;
  while (outputs > 0 && node.output(outputs - 1).empty()) --outputs;
  // An input that only a later version takes is an error of the opset, which `check` reports.
  const OpSchema* latest = onnx::OpSchemaRegistry::Schema(schema.Name(), schema.domain());
  if (inputs > std::max(schema.max_input(), latest == nullptr ? 0 : latest->max_input()) ||
      outputs > std::max(schema.max_output(), latest == nullptr ? 0 : latest->max_output())) {
    return Wrong("KV026", node,
                 fmt::format("has {} inputs and {} outputs and takes at most {} and {}", inputs,
                             outputs, schema.max_input(), schema.max_output()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckArity(const onnx::ModelProto& model) {
  for (const auto& import : model.opset_import()) {
    // The schema registry of ONNX takes versions as int.
    if (import.version() >= 0 && import.version() <= std::numeric_limits<int>::max()) continue;
    return Coded("KV023", absl::InvalidArgumentError(
                              fmt::format("the model imports version {} of \"{}\"",
                                          import.version(), EscapeTerminal(import.domain()))));
  }
  Schemas schemas(model);
  std::vector<const onnx::GraphProto*> graphs = {&model.graph()};
  while (!graphs.empty()) {
    const onnx::GraphProto& graph = *graphs.back();
    graphs.pop_back();
    for (const onnx::NodeProto& node : graph.node()) {
      if (const OpSchema* schema = schemas.Find(node)) {
        KV_RETURN_IF_ERROR(CheckNode(node, *schema));
      }
      if (!schemas.IsLocal(node)) KV_RETURN_IF_ERROR(CheckFlags(node));
      for (const onnx::AttributeProto& attribute : node.attribute()) {
        if (attribute.has_g()) graphs.push_back(&attribute.g());
        for (const onnx::GraphProto& body : attribute.graphs()) graphs.push_back(&body);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace kvlift
