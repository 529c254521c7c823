#include "onnxio/model/functions.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/coded.h"
#include "base/escape.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/subgraphs.h"
#include "onnx/defs/schema.h"

namespace kvlift {
namespace {

constexpr std::string_view kRuntime = "com.microsoft";

// The nodes and calls of a graph or function, bodies included.
struct Calls {
  int64_t nodes = 0;
  std::vector<int> callees;  // one entry per call
  // The size and depth after inlining all calls; set when `state` is kDone.
  enum { kNew, kOpen, kDone } state = kNew;
  int64_t inlined = 0;
  int64_t depth = 0;
};

// "ai.onnx" is the same domain as "".
template <typename Named>
std::string_view DomainOf(const Named& named) {
  return named.domain() == "ai.onnx" ? std::string_view() : std::string_view(named.domain());
}

template <typename Named>
std::string KeyOf(const Named& named, const std::string& name) {
  return fmt::format("{}\n{}\n{}", DomainOf(named), name, named.overload());
}

bool IsOperatorOfOnnx(const onnx::ModelProto& model, const onnx::FunctionProto& function) {
  if (!DomainOf(function).empty()) return false;
  for (const auto& import : model.opset_import()) {
    if (!DomainOf(import).empty()) continue;
    return onnx::OpSchemaRegistry::Schema(function.name(), static_cast<int>(import.version())) !=
           nullptr;
  }
  return false;
}

class CallGraph {
 public:
  CallGraph(const onnx::ModelProto& model, const Limits& limits) : model_(model), limits_(limits) {}

  absl::Status Check() {
    if (model_.functions().empty()) return absl::OkStatus();
    for (const auto& function : model_.functions()) {
      const int index = static_cast<int>(index_.size());
      if (!index_.try_emplace(KeyOf(function, function.name()), index).second) {
        return Wrong("stands twice in the model", function.name());
      }
      if (IsOperatorOfOnnx(model_, function)) {
        return Wrong("has the name of an operator of ONNX: runtimes choose which one they run",
                     function.name());
      }
      if (function.domain() == kRuntime && !IsBodyOfOperator(function)) {
        return Wrong(
            "is in ONNX Runtime's domain com.microsoft: runtimes choose which one they run",
            function.name());
      }
    }
    for (const auto& function : model_.functions()) {
      calls_.emplace_back();
      Collect(function.node(), calls_.back());
    }
    for (int f = 0; f < model_.functions_size(); ++f) KV_RETURN_IF_ERROR(Visit(f));
    Calls main;
    Collect(model_.graph().node(), main);
    return Sum(main);
  }

 private:
  static absl::Status Wrong(const char* what, const std::string& name) {
    return Coded("KV007", absl::InvalidArgumentError(
                              fmt::format("function \"{}\" {}", EscapeTerminal(name), what)));
  }

  template <typename Nodes>
  void Collect(const Nodes& nodes, Calls& calls) const {
    std::vector<const onnx::GraphProto*> open;
    const auto note = [&](const onnx::NodeProto& node) {
      ++calls.nodes;
      const auto it = index_.find(KeyOf(node, node.op_type()));
      if (it != index_.end()) calls.callees.push_back(it->second);
      for (const auto& attribute : node.attribute()) {
        if (attribute.has_g()) open.push_back(&attribute.g());
        for (const auto& graph : attribute.graphs()) open.push_back(&graph);
      }
    };
    for (const auto& node : nodes) note(node);
    while (!open.empty()) {
      const onnx::GraphProto* graph = open.back();
      open.pop_back();
      for (const auto& node : graph->node()) note(node);
    }
  }

  // The sums of all callees must be done.
  absl::Status Sum(Calls& calls) const {
    calls.inlined = calls.nodes;
    for (const int callee : calls.callees) {
      calls.depth = std::max(calls.depth, calls_[callee].depth + 1);
      calls.inlined += calls_[callee].inlined;
      if (calls.inlined > limits_.nodes) return OverLimit(&Limits::nodes, limits_);
    }
    if (calls.depth > limits_.call_depth) return OverLimit(&Limits::call_depth, limits_);
    return absl::OkStatus();
  }

  absl::Status Visit(int root) {
    if (calls_[root].state == Calls::kDone) return absl::OkStatus();
    struct Step {
      int function;
      size_t next = 0;
    };
    std::vector<Step> path = {{root}};
    calls_[root].state = Calls::kOpen;
    while (!path.empty()) {
      Step& step = path.back();
      Calls& calls = calls_[step.function];
      if (step.next == calls.callees.size()) {
        KV_RETURN_IF_ERROR(Sum(calls));
        calls.state = Calls::kDone;
        path.pop_back();
        continue;
      }
      const int callee = calls.callees[step.next++];
      if (calls_[callee].state == Calls::kOpen) {
        return Wrong("calls itself", model_.functions(callee).name());
      }
      if (calls_[callee].state == Calls::kNew) {
        calls_[callee].state = Calls::kOpen;
        path.push_back({callee});
      }
    }
    return absl::OkStatus();
  }

  const onnx::ModelProto& model_;
  const Limits& limits_;
  absl::flat_hash_map<std::string, int> index_;
  std::vector<Calls> calls_;
};

using Functions = absl::flat_hash_map<std::string, const onnx::FunctionProto*>;

template <typename Nodes>
void AddDefaults(const Functions& functions, Nodes* nodes) {
  for (onnx::NodeProto& node : *nodes) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) AddDefaults(functions, attribute.mutable_g()->mutable_node());
      for (auto& graph : *attribute.mutable_graphs()) {
        AddDefaults(functions, graph.mutable_node());
      }
    }
    const auto called = functions.find(KeyOf(node, node.op_type()));
    if (called == functions.end()) continue;
    for (const onnx::AttributeProto& value : called->second->attribute_proto()) {
      const bool given =
          std::any_of(node.attribute().begin(), node.attribute().end(),
                      [&](const onnx::AttributeProto& a) { return a.name() == value.name(); });
      if (!given) *node.add_attribute() = value;
    }
  }
}

}  // namespace

bool IsBodyOfOperator(const onnx::FunctionProto& function) {
  static constexpr std::string_view kOperators[] = {"SkipLayerNormalization",
                                                    "SkipSimplifiedLayerNormalization",
                                                    "BiasGelu",
                                                    "FastGelu",
                                                    "Gelu",
                                                    "QuickGelu"};
  if (function.domain() != kRuntime || !function.overload().empty() ||
      std::find(std::begin(kOperators), std::end(kOperators), function.name()) ==
          std::end(kOperators)) {
    return false;
  }
  return std::all_of(
      function.node().begin(), function.node().end(),
      [](const onnx::NodeProto& node) { return DomainOf(node).empty() && !HasBody(node); });
}

const onnx::FunctionProto* FindFunction(const onnx::ModelProto& model,
                                        const onnx::NodeProto& node) {
  for (const auto& function : model.functions()) {
    if (IsBodyOfOperator(function)) continue;
    if (function.name() == node.op_type() && DomainOf(function) == DomainOf(node) &&
        function.overload() == node.overload()) {
      return &function;
    }
  }
  return nullptr;
}

void AddDefaultAttributes(onnx::ModelProto* model) {
  Functions functions;
  const auto declared = model->functions();
  for (const auto& function : declared) {
    if (IsBodyOfOperator(function)) continue;
    functions[KeyOf(function, function.name())] = &function;
  }
  AddDefaults(functions, model->mutable_graph()->mutable_node());
  for (auto& function : *model->mutable_functions()) {
    AddDefaults(functions, function.mutable_node());
  }
}

absl::Status CheckCallDepth(const onnx::ModelProto& model, const Limits& limits) {
  return CallGraph(model, limits).Check();
}

}  // namespace kvlift
