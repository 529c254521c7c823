#include "rewrite/convert/layer_caches.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "ir/node_builder.h"
#include "ir/subgraphs.h"
#include "rewrite/plan/attended_slices.h"

namespace kvlift::internal {
namespace {

using onnx::ValueInfoProto;
using Values = google::protobuf::RepeatedPtrField<ValueInfoProto>;

// Returns true if a host may leave out the input, because an initialiser of the same name stands
// for it.
bool HasDefault(const Graph& graph, const std::string& input) {
  return absl::c_any_of(graph.proto().initializer(),
                        [&](const onnx::TensorProto& tensor) { return tensor.name() == input; });
}

// Returns the axes with letters of caches in one tensor (K, L and J).
std::vector<int> PackedAxes(const std::string& layout) {
  std::vector<int> axes;
  for (size_t k = 0; k < layout.size(); ++k) {
    if (std::string_view("BNSD").find(layout[k]) == std::string_view::npos) {
      axes.push_back(static_cast<int>(k));
    }
  }
  return axes;
}

class LayerSplitter {
 public:
  explicit LayerSplitter(const Analysis& analysis)
      : model_(analysis.graph->model()),
        builder_(*analysis.graph),
        taken_(NamesIn(analysis.graph->proto())) {
    split_.normalised = analysis.normalised;
  }

  absl::StatusOr<Analysis> Run(const std::vector<LayeredTensor>& tensors) {
    builder_.set_scope("unstacked");
    for (const LayeredTensor& tensor : tensors) Split(tensor);
    onnx::GraphProto& graph = *model_.mutable_graph();
    const auto old = graph.node();
    graph.clear_node();
    for (onnx::NodeProto& node : in_front_) *graph.add_node() = std::move(node);
    graph.mutable_node()->MergeFrom(old);
    for (onnx::NodeProto& node : behind_) *graph.add_node() = std::move(node);
    for (onnx::TensorProto& tensor : builder_.TakeInitializers()) {
      *graph.add_initializer() = std::move(tensor);
    }
    KV_ASSIGN_OR_RETURN(Graph built,
                        Graph::Build(std::make_shared<const onnx::ModelProto>(std::move(model_))));
    split_.graph = std::make_shared<const Graph>(std::move(built));
    split_.forms = std::make_unique<sym::Forms>(*split_.graph);
    return std::move(split_);
  }

 private:
  void Split(const LayeredTensor& tensor) {
    std::vector<int64_t> at(tensor.axes.size(), 0);
    std::vector<ValueInfoProto> pasts, presents;
    do {
      const std::string suffix = fmt::format(".{}", fmt::join(at, "."));
      UnpackedCache cache;
      cache.source = tensor.source;
      cache.source.layout.clear();
      for (size_t k = 0; k < tensor.source.layout.size(); ++k) {
        const auto axis = std::find(tensor.axes.begin(), tensor.axes.end(), static_cast<int>(k));
        if (axis == tensor.axes.end()) {
          cache.source.layout += tensor.source.layout[k];
        } else {
          cache.source.select.push_back(
              {*axis, at[static_cast<size_t>(axis - tensor.axes.begin())]});
        }
      }
      pasts.push_back(PartOf(model_.graph().input(), tensor, tensor.past, suffix));
      presents.push_back(PartOf(model_.graph().output(), tensor, tensor.present, suffix));
      cache.input = pasts.back().name();
      split_.normalised.unpacked.caches.push_back(std::move(cache));
      MakePresent(tensor, at, presents.back().name());
    } while (Next(tensor, &at));
    MakePast(tensor, pasts);
    Replace(tensor.past, pasts, model_.mutable_graph()->mutable_input());
    Replace(tensor.present, presents, model_.mutable_graph()->mutable_output());
  }

  static bool Next(const LayeredTensor& tensor, std::vector<int64_t>* at) {
    for (size_t k = at->size(); k-- > 0;) {
      if (++(*at)[k] < tensor.extents[k]) return true;
      (*at)[k] = 0;
    }
    return false;
  }

  // Returns the tensor's declaration without the axes that count its caches.
  ValueInfoProto PartOf(const Values& values, const LayeredTensor& tensor, const std::string& name,
                        const std::string& suffix) {
    ValueInfoProto part;
    part.set_name(FreeName(name + suffix, &taken_));
    const auto whole = std::find_if(values.begin(), values.end(),
                                    [&](const ValueInfoProto& v) { return v.name() == name; });
    const auto& type = whole->type().tensor_type();
    auto& own = *part.mutable_type()->mutable_tensor_type();
    own.set_elem_type(type.elem_type());
    if (!type.has_shape()) return part;
    own.mutable_shape();
    for (int k = 0; k < type.shape().dim_size(); ++k) {
      if (std::find(tensor.axes.begin(), tensor.axes.end(), k) != tensor.axes.end()) continue;
      *own.mutable_shape()->add_dim() = type.shape().dim(k);
    }
    return part;
  }

  // Joins the pasts, for whatever reads the tensor as a whole.
  void MakePast(const LayeredTensor& tensor, const std::vector<ValueInfoProto>& pasts) {
    const std::vector<int64_t> axes(tensor.axes.begin(), tensor.axes.end());
    NodeBuilder::Inputs parts;
    for (const ValueInfoProto& past : pasts) {
      parts.push_back(
          builder_.Add("Unsqueeze", {past.name(), builder_.Int64s(axes)}, tensor.past + "/part"));
    }
    for (size_t k = tensor.axes.size(); k-- > 0;) {
      const auto count = static_cast<size_t>(tensor.extents[k]);
      const std::vector<onnx::AttributeProto> axis = {
          MakeAttribute("axis", static_cast<int64_t>(tensor.axes[k]))};
      NodeBuilder::Inputs joined;
      for (size_t from = 0; from < parts.size(); from += count) {
        const auto first = parts.begin() + static_cast<std::ptrdiff_t>(from);
        const NodeBuilder::Inputs some(first, first + static_cast<std::ptrdiff_t>(count));
        if (k == 0) {
          builder_.AddNamed("Concat", some, tensor.past, tensor.past, axis);
        } else {
          joined.push_back(builder_.Add("Concat", some, tensor.past + "/parts", axis));
        }
      }
      parts = std::move(joined);
    }
    for (onnx::NodeProto& node : builder_.TakeNodes()) {
      // Nodes that read a present come behind the graph's own nodes.
      (node.op_type() == "Gather" ? behind_ : in_front_).push_back(std::move(node));
    }
  }

  void MakePresent(const LayeredTensor& tensor, const std::vector<int64_t>& at,
                   const std::string& name) {
    std::string part = tensor.present;
    for (size_t k = at.size(); k-- > 0;) {
      const NodeBuilder::Inputs inputs = {part, builder_.Int64(at[k])};
      const std::vector<onnx::AttributeProto> axis = {
          MakeAttribute("axis", static_cast<int64_t>(tensor.axes[k]))};
      if (k == 0) {
        builder_.AddNamed("Gather", inputs, tensor.present, name, axis);
      } else {
        part = builder_.Add("Gather", inputs, tensor.present + "/part", axis);
      }
    }
  }

  static void Replace(const std::string& name, const std::vector<ValueInfoProto>& parts,
                      Values* values) {
    Values kept;
    for (ValueInfoProto& value : *values) {
      if (value.name() != name) {
        *kept.Add() = std::move(value);
        continue;
      }
      for (const ValueInfoProto& part : parts) *kept.Add() = part;
    }
    values->Swap(&kept);
  }

  onnx::ModelProto model_;
  NodeBuilder builder_;
  Analysis split_;
  std::vector<onnx::NodeProto> in_front_, behind_;
  absl::flat_hash_set<std::string> taken_;
};

// A tensor of more caches than any model has layers is not taken apart.
constexpr int64_t kMostCaches = 4096;

bool IsOfFewCaches(const LayeredTensor& tensor) {
  int64_t caches = 1;
  for (const int64_t extent : tensor.extents) {
    if (extent < 1 || extent > kMostCaches / caches) return false;
    caches *= extent;
  }
  return true;
}

}  // namespace

std::vector<LayeredTensor> LayeredTensors(const Analysis& a) {
  std::vector<LayeredTensor> found;
  for (size_t k = 0; k < a.updates.size(); ++k) {
    const CacheUpdate& update = a.updates[k];
    const std::vector<int> axes = PackedAxes(update.layout);
    if (axes.empty() || HasDefault(*a.graph, a.graph->name(update.pair.past))) continue;
    const auto waits = [&](const AnalysedAttention& attention) {
      const auto index = static_cast<int>(k);
      if (!attention.site) return true;  // it may read a layer before the others are written
      return (attention.site->key.cache == index || attention.site->value.cache == index) &&
             UpdateDependsOn(*a.graph, update, attention.site->node);
    };
    const bool splits = update.has_indices_behind_front(a.forms->pool());
    if (!splits && absl::c_none_of(a.attention, waits)) continue;
    const std::string &past = a.graph->name(update.pair.past),
                      &present = a.graph->name(update.pair.present);
    LayeredTensor tensor{
        past,
        present,
        {past, present, update.kind(), update.layout, update.axis, update.grows(), {}},
        axes,
        {}};
    const sym::Form form = a.forms->Of(update.pair.past);
    for (const int axis : axes) {
      const sym::Expr extent = form.shape[static_cast<size_t>(axis)];
      if (extent->kind() == sym::Kind::kInteger) tensor.extents.push_back(extent->value());
    }
    if (tensor.extents.size() == axes.size() && IsOfFewCaches(tensor)) {
      found.push_back(std::move(tensor));
    }
  }
  return found;
}

absl::StatusOr<Analysis> TakeLayersApart(const Analysis& analysis,
                                         const std::vector<LayeredTensor>& tensors) {
  return LayerSplitter(analysis).Run(tensors);
}

}  // namespace kvlift::internal
