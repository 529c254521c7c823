#include "freeze/fold.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/constant_node.h"
#include "ir/graph.h"
#include "ir/patch.h"
#include "ir/tensor_data.h"
#include "sym/forms/forms.h"

namespace kvlift {
namespace {

using onnx::TensorProto;
using sym::Expr;
using sym::Facts;

constexpr int64_t kMostElements = 4096;
// Constant nodes of at least this many bytes become initialisers.
constexpr size_t kLargeConstant = 1024;

class Folder {
 public:
  explicit Folder(const Graph& graph) : graph_(graph), forms_(graph) {}

  Patch Run() {
    for (ValueId v = 0; v < graph_.num_values(); ++v) {
      const NodeId producer = graph_.producer(v);
      if (producer == kNoNode || graph_.constant(v) != nullptr || graph_.uses(v).empty()) continue;
      if (auto tensor = ConstantOf(v)) {
        patch_.replace_uses[graph_.name(v)] = Add(*std::move(tensor));
      }
    }
    return std::move(patch_);
  }

 private:
  // Returns the elements of a value if they follow from sizes and constants alone; nullopt
  // otherwise.
  std::optional<TensorProto> ConstantOf(ValueId v) {
    const int32_t type = forms_.ElementType(v);
    if (type != TensorProto::INT64 && type != TensorProto::INT32 && type != TensorProto::BOOL) {
      return std::nullopt;
    }
    const sym::Form form = forms_.Of(v);
    if (!form.known_rank) return std::nullopt;
    const auto elements = forms_.Elements(v);
    const bool open =
        form.opaque || !sym::LoadsOf(form.element).empty() || !sym::DimsOf(form.element).empty();
    if (open && !elements) return std::nullopt;
    TensorProto tensor;
    tensor.set_data_type(type);
    int64_t count = 1;
    for (Expr extent : form.shape) {
      if (extent->kind() != sym::Kind::kInteger || extent->value() < 0) return std::nullopt;
      tensor.add_dims(extent->value());
      count *= std::min<int64_t>(extent->value(), kMostElements + 1);
      if (count > kMostElements) return std::nullopt;
    }
    std::vector<Expr> at(form.shape.size());
    for (int64_t i = 0; i < count; ++i) {
      int64_t left = i;
      for (size_t k = at.size(); k-- > 0;) {
        at[k] = forms_.pool().Integer(left % form.shape[k]->value());
        left /= form.shape[k]->value();
      }
      const Expr element = forms_.At(v, at, Facts{});
      if (element == nullptr || !AddElement(element, type, &tensor)) return std::nullopt;
    }
    return tensor;
  }

  // Returns false if the element is not a constant of the type.
  static bool AddElement(Expr element, int32_t type, TensorProto* tensor) {
    if (element->kind() != sym::Kind::kInteger) return false;
    const int64_t value = element->value();
    if (type == TensorProto::INT64) {
      tensor->add_int64_data(value);
      return true;
    }
    if (value != static_cast<int32_t>(value)) return false;
    if (type == TensorProto::BOOL && value != 0 && value != 1) return false;
    tensor->add_int32_data(static_cast<int32_t>(value));
    return true;
  }

  // Returns the name of the constant. Equal constants are one.
  std::string Add(TensorProto tensor) {
    const auto [it, added] = names_.try_emplace(tensor.SerializeAsString(), "");
    if (!added) return it->second;
    do {
      it->second = fmt::format("/kvlift/frozen/constant_{}", next_++);
    } while (graph_.Find(it->second) != kNoValue);
    tensor.set_name(it->second);
    patch_.new_initializers.push_back(std::move(tensor));
    return it->second;
  }

  const Graph& graph_;
  sym::Forms forms_;
  Patch patch_;
  absl::flat_hash_map<std::string, std::string> names_;  // by content
  int next_ = 0;
};

bool IsLargeConstant(const onnx::NodeProto& node) {
  if (node.op_type() != "Constant" || (!node.domain().empty() && node.domain() != "ai.onnx")) {
    return false;
  }
  const onnx::AttributeProto* value = FindAttribute(node, "value");
  return node.attribute_size() == 1 && value != nullptr && value->has_t() &&
         value->t().ByteSizeLong() >= kLargeConstant;
}

void LiftLargeConstants(onnx::GraphProto* graph) {
  for (const onnx::NodeProto& node : graph->node()) {
    if (!IsLargeConstant(node)) continue;
    TensorProto* tensor = graph->add_initializer();
    *tensor = node.attribute(0).t();
    tensor->set_name(node.output(0));
  }
  auto& nodes = *graph->mutable_node();
  nodes.erase(std::remove_if(nodes.begin(), nodes.end(), IsLargeConstant), nodes.end());
}

}  // namespace

absl::StatusOr<onnx::ModelProto> FoldConstants(const onnx::ModelProto& model) {
  auto plain = std::make_shared<onnx::ModelProto>(model);
  plain->mutable_graph()->clear_value_info();
  LiftLargeConstants(plain->mutable_graph());
  KV_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(plain));
  const Patch patch = Folder(graph).Run();
  return Apply(graph, patch);
}

}  // namespace kvlift
