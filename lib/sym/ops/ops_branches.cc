// The sizes of an If's outputs: those that both branches have. Elements are opaque.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "fmt/format.h"
#include "ir/graph.h"
#include "ir/tensor_data.h"
#include "ir/types.h"
#include "sym/forms/forms_engine.h"

namespace kvlift::sym::internal {
namespace {

// Captured integers with up to this many elements are part of a branch, since they may be shapes.
constexpr int kMostNumbers = 64;

// Finds the sizes of the results of one branch in terms of the outer graph. The branch is read as a
// graph of its own, in which captured values are inputs and their sizes are symbols.
class BranchSizes {
 public:
  BranchSizes(OpContext& c, const onnx::GraphProto& body) : c_(c) {
    const Graph& outer = c.engine().graph();
    auto model = std::make_shared<onnx::ModelProto>();
    *model->mutable_opset_import() = outer.model().opset_import();
    *model->mutable_graph() = body;
    for (ValueId v : outer.captures(c.node())) Capture(v, model->mutable_graph());
    if (auto graph = Graph::Build(std::move(model)); graph.ok()) {
      graph_.emplace(*std::move(graph));
      engine_.emplace(*graph_, c.engine().options());
    }
  }

  // Returns the sizes of result k, null where the outer graph has no name for one. Returns nullopt
  // if the rank is not known, or if the sizes rest on assumptions.
  std::optional<Shape> Of(int k) {
    if (!engine_) return std::nullopt;
    const Form& form = engine_->Of(graph_->graph_outputs()[k]).form;
    if (!form.known_rank || !engine_->assumptions().empty()) return std::nullopt;
    Shape shape;
    for (Expr extent : form.shape) shape.push_back(ToOuter(extent));
    return shape;
  }

 private:
  void Capture(ValueId v, onnx::GraphProto* body) {
    const Graph& outer = c_.engine().graph();
    if (const onnx::TensorProto* tensor = outer.constant(v)) {
      const auto count = NumElements(*tensor);
      if (IsIntegerType(tensor->data_type()) && count.ok() && *count <= kMostNumbers) {
        onnx::TensorProto& own = *body->add_initializer();
        own = *tensor;
        own.set_name(outer.name(v));
        return;
      }
    }
    onnx::ValueInfoProto& input = *body->add_input();
    input.set_name(outer.name(v));
    const Value& value = c_.engine().Of(v);
    auto& type = *input.mutable_type()->mutable_tensor_type();
    type.set_elem_type(value.type);
    if (!value.form.known_rank) return;
    type.mutable_shape();  // of rank 0, perhaps
    for (Expr extent : value.form.shape) {
      auto& dim = *type.mutable_shape()->add_dim();
      if (extent->kind() == Kind::kInteger) {
        dim.set_dim_value(extent->value());
      } else {
        dim.set_dim_param(NameOf(extent));
      }
    }
  }

  // Equal sizes have one name.
  std::string NameOf(Expr extent) {
    const auto [it, fresh] = names_.try_emplace(extent);
    if (fresh) {
      it->second = fmt::format("size{}", names_.size());
      sizes_.emplace(DimSymbol::Declared(it->second), extent);
    }
    return it->second;
  }

  Expr ToOuter(Expr extent) {
    if (extent->kind() == Kind::kInteger) return c_.pool().Integer(extent->value());
    if (extent->kind() != Kind::kDim) return nullptr;
    const auto it = sizes_.find(extent->dim());
    return it == sizes_.end() ? nullptr : it->second;
  }

  OpContext& c_;
  absl::flat_hash_map<Expr, std::string> names_;
  absl::flat_hash_map<DimSymbol, Expr> sizes_;
  std::optional<Graph> graph_;
  std::optional<Engine> engine_;
};

}  // namespace

void OpIf(OpContext& c) {
  const onnx::AttributeProto* then = FindAttribute(c.proto(), "then_branch");
  const onnx::AttributeProto* otherwise = FindAttribute(c.proto(), "else_branch");
  if (then == nullptr || otherwise == nullptr || then->g().output_size() < c.num_outputs() ||
      otherwise->g().output_size() < c.num_outputs()) {
    return;
  }
  BranchSizes of_then(c, then->g()), of_otherwise(c, otherwise->g());
  for (int k = 0; k < c.num_outputs(); ++k) {
    const std::optional<Shape> a = of_then.Of(k), b = of_otherwise.Of(k);
    if (!a || !b || a->size() != b->size() || c.output(k) == kNoValue) continue;
    Shape shape;
    for (size_t axis = 0; axis < a->size(); ++axis) {
      // SetOpaque gives an axis without a size a symbol of its own.
      shape.push_back((*a)[axis] == (*b)[axis] ? (*a)[axis] : nullptr);
    }
    c.SetOpaque(k, std::move(shape));
  }
}

}  // namespace kvlift::sym::internal
