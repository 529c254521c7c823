#include "soundness/shown_attentions.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "fmt/format.h"
#include "soundness/edits.h"

namespace kvlift::soundness {
namespace {

using onnx::TensorProto;
using oracle::Value;

constexpr int kMask = 3;
// A number that hides a key when added to its score (lemma finite-minimum).
constexpr float kHidden = -1e4F;
constexpr double kBeyondAll = 1e30;

const Value* RealIn(const oracle::Values& values, const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() || !found->second.real() ? nullptr : &found->second;
}

std::string Constant(const std::string& name, float value, onnx::GraphProto* graph) {
  TensorProto* tensor = graph->add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(TensorProto::FLOAT);
  tensor->add_float_data(value);
  return name;
}

onnx::NodeProto* AddNode(const std::string& op, const std::vector<std::string>& inputs,
                         const std::string& output, onnx::GraphProto* graph) {
  onnx::NodeProto* node = graph->add_node();
  node->set_op_type(op);
  for (const std::string& input : inputs) node->add_input(input);
  node->add_output(output);
  return node;
}

using Makers = std::map<std::string, const onnx::NodeProto*>;

Makers MakersOf(const onnx::GraphProto& graph) {
  Makers makers;
  for (const onnx::NodeProto& node : graph.node()) {
    for (const std::string& output : node.output()) makers[output] = &node;
  }
  return makers;
}

// Returns true if the value comes from a Softmax, with no product in between.
bool AreWeights(const Makers& makers, const std::string& value) {
  std::vector<std::string> open = {value};
  for (std::set<std::string> seen; !open.empty();) {
    const std::string next = open.back();
    open.pop_back();
    const auto maker = makers.find(next);
    if (maker == makers.end() || !seen.insert(next).second) continue;
    const onnx::NodeProto& node = *maker->second;
    if (node.op_type() == "Softmax") return true;
    if (node.op_type() == "MatMul") continue;
    open.insert(open.end(), node.input().begin(), node.input().end());
  }
  return false;
}

bool HasRowOfZeros(const Value& value) {
  const int64_t size = value.dims().empty() ? 0 : value.dims().back();
  for (int64_t row = 0; size > 0 && row < value.size() / size; ++row) {
    const auto begin = value.reals().value.begin() + row * size;
    if (std::all_of(begin, begin + size, [](double x) { return x == 0; })) return true;
  }
  return false;
}

template <typename Fn>
bool AnyValue(const oracle::Values& values, const std::vector<std::string>& names, const Fn& fn) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const Value* value = RealIn(values, name);
    return value != nullptr && fn(*value);
  });
}

template <typename Fn>
bool AnyElement(const Value& value, const Fn& fn) {
  const auto& all = value.reals().value;
  return std::any_of(all.begin(), all.end(), fn);
}

}  // namespace

ShownAttentions::ShownAttentions(const Assumptions& ledger, onnx::ModelProto* before,
                                 onnx::ModelProto* after) {
  onnx::GraphProto* source = before->mutable_graph();
  const int nodes = source->node_size();
  const bool finite = ledger.Has(AssumptionKind::kFinite, "numbers");
  const Makers makers = MakersOf(*source);
  for (int n = 0; finite && n < nodes; ++n) {
    const onnx::NodeProto node = source->node(n);
    const bool attends = node.op_type() == "Attention";
    if (!attends && node.op_type() != "MatMul" && node.op_type() != "Add") continue;
    for (int k = 0; k < node.input_size() && !(attends && k >= kMask); ++k) {
      const std::string& input = node.input(k);
      const std::string shown = Show(input, source);
      if (node.op_type() == "Add") {
        summands_.push_back(shown);
      } else {
        operands_.push_back(shown);
        if (!AreWeights(makers, input)) numbers_.push_back(shown);
      }
    }
  }
  const Types types = InferredTypes(*after);
  onnx::GraphProto* graph = after->mutable_graph();
  const int count = graph->node_size();
  for (int n = 0; n < count; ++n) {
    const onnx::NodeProto node = graph->node(n);
    if (node.op_type() != "Attention") continue;
    const bool masked = node.input_size() > kMask && !node.input(kMask).empty();
    const auto type = masked ? types.find(node.input(kMask)) : types.end();
    const bool adds = type != types.end() && type->second.type == TensorProto::FLOAT;
    if (adds) added_.push_back(Show(node.input(kMask), graph));
    const auto& all = ledger.all();
    const bool sees = std::any_of(all.begin(), all.end(), [&](const Assumption& a) {
      return a.kind == AssumptionKind::kVisibleKey && a.subject == node.output(0);
    });
    if (!sees) continue;
    results_.push_back(Show(node.output(0), graph));
    if (adds) ShowHidden(node, graph);
  }
}

std::string ShownAttentions::Show(const std::string& value, onnx::GraphProto* graph) {
  const std::string name = fmt::format("shown {} {}", graph->node_size(), value);
  AddNode("Identity", {value}, name, graph);
  graph->add_output()->set_name(name);
  return name;
}

// Adds the same attention with -inf in place of numbers that hide a key: a query that sees no key
// gets zeros.
void ShownAttentions::ShowHidden(const onnx::NodeProto& attention, onnx::GraphProto* graph) {
  const std::string prefix = fmt::format("hidden {} ", graph->node_size());
  const std::string& mask = attention.input(kMask);
  const std::string low = Constant(prefix + "low", kHidden, graph);
  const std::string nothing =
      Constant(prefix + "nothing", -std::numeric_limits<float>::infinity(), graph);
  AddNode("LessOrEqual", {mask, low}, prefix + "where", graph);
  AddNode("Where", {prefix + "where", nothing, mask}, prefix + "mask", graph);
  onnx::NodeProto* copy = graph->add_node();
  *copy = attention;
  copy->set_input(kMask, prefix + "mask");
  for (int k = 0; k < copy->output_size(); ++k) {
    if (!copy->output(k).empty()) copy->set_output(k, fmt::format("{}{}", prefix, k));
  }
  results_.push_back(Show(copy->output(0), graph));
}

// Weights of a query without keys are NaN, which another entry of the ledger covers.
bool ShownAttentions::ExcludeSource(const oracle::Values& given) const {
  const auto any = [&](const std::vector<std::string>& names, const auto& excludes) {
    return AnyValue(given, names, [&](const Value& value) { return AnyElement(value, excludes); });
  };
  return any(operands_, [](double x) { return std::isinf(x); }) ||
         any(numbers_, [](double x) { return std::isnan(x); }) ||
         any(summands_, [](double x) { return x > kBeyondAll; });
}

bool ShownAttentions::ExcludeConverted(const oracle::Values& given) const {
  const auto adds_much = [](const Value& value) {
    return AnyElement(value, [](double x) { return std::isnan(x) || x > kBeyondAll; });
  };
  return AnyValue(given, added_, adds_much) || AnyValue(given, results_, HasRowOfZeros);
}

}  // namespace kvlift::soundness
