#include "ir/operators/operator_changes.h"

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace kvlift {
namespace {

std::string FirstChanged(const onnx::GraphProto& graph, int64_t from, int64_t to) {
  for (const onnx::NodeProto& node : graph.node()) {
    if (IsDefaultDomain(node.domain()) && ChangedMeaning(node.op_type(), from, to)) {
      return node.op_type();
    }
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (attribute.has_g()) {
        if (std::string op = FirstChanged(attribute.g(), from, to); !op.empty()) return op;
      }
      for (const onnx::GraphProto& body : attribute.graphs()) {
        if (std::string op = FirstChanged(body, from, to); !op.empty()) return op;
      }
    }
  }
  return {};
}

}  // namespace

bool IsDefaultDomain(const std::string& domain) { return domain.empty() || domain == "ai.onnx"; }

bool ChangedMeaning(const std::string& op_type, int64_t from, int64_t to) {
  static const auto* const kChanges =
      new absl::flat_hash_map<std::string, std::vector<int64_t>>{{"RoiAlign", {16}},
                                                                 {"GroupNormalization", {21}},
                                                                 {"GridSample", {20}},
                                                                 {"DFT", {20}},
                                                                 {"Resize", {11, 13, 18, 19}},
                                                                 {"OneHot", {11}},
                                                                 {"Scan", {9}},
                                                                 {"Upsample", {9}}};
  const auto it = kChanges->find(op_type);
  if (it == kChanges->end()) return false;
  return std::any_of(it->second.begin(), it->second.end(),
                     [&](int64_t version) { return from < version && version <= to; });
}

std::string OperatorWithOtherMeaning(const onnx::ModelProto& model, int64_t version) {
  const int64_t own = DefaultOpset(model);
  return FirstChanged(model.graph(), std::min(own, version), std::max(own, version));
}

int64_t DefaultOpset(const onnx::ModelProto& model) {
  int64_t version = 0;
  for (const auto& import : model.opset_import()) {
    if (IsDefaultDomain(import.domain())) version = std::max(version, import.version());
  }
  return version;
}

}  // namespace kvlift
