#include "rewrite/plan/declared_types.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "fmt/format.h"

namespace kvlift {
namespace {

using onnx::TensorProto;
using Dimension = onnx::TensorShapeProto::Dimension;

onnx::TypeProto TypeOfInput(const Graph& graph, ValueId v) {
  for (const auto& info : graph.proto().input()) {
    if (info.name() == graph.name(v)) return info.type();
  }
  return {};
}

void SetDim(onnx::TypeProto* type, int axis, const Dimension& dim) {
  *type->mutable_tensor_type()->mutable_shape()->mutable_dim(axis) = dim;
}

Dimension SizeOrName(std::optional<int64_t> size, std::string name) {
  Dimension dim;
  if (size) {
    dim.set_dim_value(*size);
  } else {
    dim.set_dim_param(std::move(name));
  }
  return dim;
}

// Returns the declared type of a past or present in the layout of the result.
onnx::TypeProto InTargetLayout(sym::Forms& forms, const PlannedCache& cache,
                               const onnx::TypeProto& type) {
  if (!cache.placement.moved) return type;
  onnx::TypeProto result = type;
  auto* shape = result.mutable_tensor_type()->mutable_shape();
  shape->clear_dim();
  const auto dim = [&](char letter) {
    return type.tensor_type().shape().dim(static_cast<int>(cache.layout.find(letter)));
  };
  if (const int64_t heads = cache.placement.split_heads; heads > 0) {
    *shape->add_dim() = dim('B');
    shape->add_dim()->set_dim_value(heads);
    *shape->add_dim() = dim('S');
    shape->add_dim()->set_dim_value(ExtentOf(forms, cache, 'D') / heads);
    return result;
  }
  if (cache.placement.layout == kHeadsFirst) {
    for (char letter : std::string_view(kHeadsFirst)) *shape->add_dim() = dim(letter);
    return result;
  }
  *shape->add_dim() = dim('B');
  *shape->add_dim() = dim('S');
  shape->add_dim()->set_dim_value(ExtentOf(forms, cache, 'N') * ExtentOf(forms, cache, 'D'));
  return result;
}

// Returns an int64 input with one number per sequence.
onnx::ValueInfoProto NumberPerSequence(const Analysis& a, const ConversionPlan& plan,
                                       const std::string& name) {
  onnx::ValueInfoProto input;
  input.set_name(name);
  auto* tensor = input.mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(TensorProto::INT64);
  auto* dim = tensor->mutable_shape()->add_dim();
  const ValueId source = plan.extents.batch_source;
  int axis = 0;
  for (const CacheUpdate& update : a.updates) {
    if (update.pair.past == source) axis = static_cast<int>(update.layout.find('B'));
  }
  *dim = TypeOfInput(*a.graph, source).tensor_type().shape().dim(axis);
  return input;
}

// Returns the input of --tree-mask, bool [B, 1 or N, S, S].
onnx::ValueInfoProto TreeMask(const Analysis& a, const ConversionPlan& plan,
                              const std::string& name) {
  onnx::ValueInfoProto input = NumberPerSequence(a, plan, name);
  auto* tensor = input.mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(TensorProto::BOOL);
  tensor->mutable_shape()->add_dim()->set_dim_param("tree_heads");
  const sym::Expr tokens = plan.extents.new_length;
  for (int k = 0; k < 2; ++k) {
    auto* dim = tensor->mutable_shape()->add_dim();
    if (tokens->kind() == sym::Kind::kInteger) dim->set_dim_value(tokens->value());
    if (tokens->kind() == sym::Kind::kDim) dim->set_dim_param(tokens->dim().name());
  }
  return input;
}

}  // namespace

std::string CapacityDimension(const Graph& graph) {
  const auto is_taken = [&](const std::string& name) {
    const auto declares = [&](ValueId v) {
      const auto& shape = graph.type(v).shape;
      return shape && std::any_of(shape->begin(), shape->end(),
                                  [&](const Dim& dim) { return dim.param == name; });
    };
    return std::any_of(graph.graph_inputs().begin(), graph.graph_inputs().end(), declares) ||
           std::any_of(graph.graph_outputs().begin(), graph.graph_outputs().end(), declares);
  };
  std::string name = "max_sequence_length";
  for (int number = 1; is_taken(name); ++number) {
    name = fmt::format("max_sequence_length_{}", number);
  }
  return name;
}

std::string RingDimension(const ConversionPlan& plan, const WindowRing& ring) {
  const bool one = std::all_of(
      plan.caches.begin(), plan.caches.end(),
      [&](const PlannedCache& other) { return other.ring() == nullptr || *other.ring() == ring; });
  return one ? "window_capacity" : fmt::format("window_capacity_{}", ring.window);
}

absl::flat_hash_map<std::string, onnx::TypeProto> RetypedValues(const Analysis& a,
                                                                const ConversionPlan& plan) {
  const Graph& graph = *a.graph;
  const Dimension capacity = SizeOrName(plan.options.max_seq_len, CapacityDimension(graph));
  absl::flat_hash_map<std::string, onnx::TypeProto> types;
  for (const PlannedCache& cache : plan.caches) {
    onnx::TypeProto type = InTargetLayout(*a.forms, cache, TypeOfInput(graph, cache.pair.past));
    if (cache.grows()) {
      const WindowRing* ring = cache.ring();
      SetDim(&type, cache.placement.axis,
             ring == nullptr
                 ? capacity
                 : SizeOrName(plan.options.window_capacity, RingDimension(plan, *ring)));
    }
    types[graph.name(cache.pair.past)] = type;
    types[graph.name(cache.pair.present)] = type;
  }
  if (plan.mask_width == MaskWidth::kAsSource) return types;
  const bool total = plan.mask_width == MaskWidth::kTotalLength;
  const Dimension width = total ? SizeOrName(std::nullopt, "total_sequence_length") : capacity;
  for (const auto& [input, axis] : plan.extents.key_length_masks) {
    if (plan.dropped.contains(input)) continue;
    onnx::TypeProto type = TypeOfInput(graph, input);
    SetDim(&type, axis, width);
    types[graph.name(input)] = type;
  }
  return types;
}

std::vector<onnx::ValueInfoProto> NewInputs(const Analysis& a, const ConversionPlan& plan) {
  const auto* inputs = std::get_if<IndexInputs>(&plan.index);
  if (inputs == nullptr) return {};
  std::vector<onnx::ValueInfoProto> added;
  for (const std::string& name : {inputs->write_indices, inputs->nonpad_kv_seqlen}) {
    if (!name.empty()) added.push_back(NumberPerSequence(a, plan, name));
  }
  if (!inputs->tree_mask.empty()) added.push_back(TreeMask(a, plan, inputs->tree_mask));
  return added;
}

}  // namespace kvlift
