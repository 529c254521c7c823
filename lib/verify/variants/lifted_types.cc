#include "verify/variants/lifted_types.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "exec/memory/tensor.h"
#include "ir/graph.h"
#include "ir/spans.h"
#include "ir/tensor_data.h"
#include "ir/types.h"
#include "onnx/onnx_pb.h"
#include "onnxio/model/model.h"
#include "verify/variants/other_weights.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

// Whether an attribute of this name holds an element type.
bool NamesType(std::string_view attribute) {
  constexpr std::array<std::string_view, 5> kNames = {"to", "dtype", "stash_type",
                                                      "softmax_precision", "output_dtype"};
  return std::find(kNames.begin(), kNames.end(), attribute) != kNames.end();
}

bool HasHalf(const onnx::GraphProto& graph);

bool HasHalf(const onnx::ValueInfoProto& value) {
  return IsHalfType(value.type().tensor_type().elem_type());
}

bool HasHalf(const onnx::NodeProto& node) {
  return std::any_of(node.attribute().begin(), node.attribute().end(), [](const auto& a) {
    return (NamesType(a.name()) && IsHalfType(static_cast<int32_t>(a.i()))) ||
           (a.has_t() && IsHalfType(a.t().data_type())) || (a.has_g() && HasHalf(a.g())) ||
           std::any_of(a.graphs().begin(), a.graphs().end(),
                       [](const onnx::GraphProto& g) { return HasHalf(g); });
  });
}

bool HasHalf(const onnx::GraphProto& graph) {
  const auto has = [](const auto& list) {
    return std::any_of(list.begin(), list.end(), [](const auto& x) { return HasHalf(x); });
  };
  return has(graph.input()) || has(graph.output()) || has(graph.node()) ||
         std::any_of(graph.initializer().begin(), graph.initializer().end(),
                     [](const TensorProto& tensor) { return IsHalfType(tensor.data_type()); });
}

std::string Widened(std::string_view bytes, int32_t type) {
  std::string wide(bytes.size() / 2 * sizeof(float), '\0');
  for (size_t k = 0; k + 1 < bytes.size(); k += 2) {
    const auto bits = static_cast<uint16_t>(static_cast<uint8_t>(bytes[k]) |
                                            (static_cast<uint8_t>(bytes[k + 1]) << 8));
    const float value =
        type == TensorProto::FLOAT16 ? exec::HalfToFloat(bits) : exec::BfloatToFloat(bits);
    const auto word = std::bit_cast<std::array<char, sizeof(float)>>(value);
    std::copy(word.begin(), word.end(), wide.begin() + static_cast<std::ptrdiff_t>(2 * k));
  }
  return wide;
}

}  // namespace

// The float32 weights of one or more models. Those that lie in a SpanSource are made once and
// shared by all models that refer to the same range of it; the store keeps the source, so that the
// range stays what it is. Other tensors are converted each time: their memory may be that of
// another tensor later on.
class LiftedWeights::Store {
 public:
  absl::StatusOr<TensorProto> Lift(const TensorProto& tensor, const std::string& base_dir) {
    if (SpanRange span = SpanOf(tensor); span.source != nullptr) {
      const auto key = std::make_tuple(span.source, span.offset, span.length);
      std::shared_ptr<const SpanSource>& source = sources_[key];
      if (source == nullptr) {
        source = SourceOf(Widened(RawDataOf(tensor).bytes, tensor.data_type()));
      }
      return SpanTensor(tensor, TensorProto::FLOAT, *source);
    }
    TensorProto lifted;
    lifted.set_name(tensor.name());
    *lifted.mutable_dims() = tensor.dims();
    lifted.set_data_type(TensorProto::FLOAT);
    KV_ASSIGN_OR_RETURN(const std::string bytes, IsElsewhere(tensor)
                                                     ? ReadTensorBytes(tensor, base_dir)
                                                     : InlineBytes(tensor));
    lifted.set_raw_data(Widened(bytes, tensor.data_type()));
    return lifted;
  }

 private:
  using Range = std::tuple<std::shared_ptr<const SpanSource>, uint64_t, uint64_t>;
  absl::flat_hash_map<Range, std::shared_ptr<const SpanSource>> sources_;
};

namespace {

// Lifts the types of values, attributes and bodies of a graph. Initialisers of the main graph are
// lifted by WithOtherWeights.
class Lifter {
 public:
  using Lift = std::function<absl::StatusOr<TensorProto>(const TensorProto&)>;
  explicit Lifter(Lift lift) : lift_(std::move(lift)) {}

  static void Values(google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>* list) {
    for (onnx::ValueInfoProto& value : *list) {
      if (HasHalf(value)) {
        value.mutable_type()->mutable_tensor_type()->set_elem_type(TensorProto::FLOAT);
      }
    }
  }

  absl::Status Nodes(google::protobuf::RepeatedPtrField<onnx::NodeProto>* nodes) const {
    for (onnx::NodeProto& node : *nodes) {
      for (onnx::AttributeProto& a : *node.mutable_attribute()) {
        if (NamesType(a.name()) && IsHalfType(static_cast<int32_t>(a.i())))
          a.set_i(TensorProto::FLOAT);
        if (a.has_t()) KV_RETURN_IF_ERROR(Tensor(a.mutable_t()));
        if (a.has_g()) KV_RETURN_IF_ERROR(Body(a.mutable_g()));
        for (onnx::GraphProto& g : *a.mutable_graphs()) KV_RETURN_IF_ERROR(Body(&g));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Tensor(TensorProto* tensor) const {
    if (!IsHalfType(tensor->data_type())) return absl::OkStatus();
    KV_ASSIGN_OR_RETURN(*tensor, lift_(*tensor));
    return absl::OkStatus();
  }

 private:
  absl::Status Body(onnx::GraphProto* graph) const {
    Values(graph->mutable_input());
    Values(graph->mutable_output());
    Values(graph->mutable_value_info());
    for (TensorProto& tensor : *graph->mutable_initializer()) KV_RETURN_IF_ERROR(Tensor(&tensor));
    return Nodes(graph->mutable_node());
  }

  Lift lift_;
};

// A Cast of integers to a half type, by its place among the nodes of the graph.
struct CastOfIntegers {
  int node = 0;
  int64_t type = 0;  // onnx TensorProto::DataType
};

// Returns the Casts of the main graph that take integers whose types are declared or inferred.
std::vector<CastOfIntegers> CastsOfIntegers(const std::shared_ptr<const onnx::ModelProto>& model) {
  std::vector<CastOfIntegers> casts;
  const auto& nodes = model->graph().node();
  for (int k = 0; k < nodes.size(); ++k) {
    const auto to = IntAttribute(nodes[k], "to", 0);
    if (nodes[k].op_type() == "Cast" && nodes[k].domain().empty() &&
        IsHalfType(static_cast<int32_t>(to))) {
      casts.push_back({k, to});
    }
  }
  if (casts.empty()) return casts;
  auto inferred = InferShapes(*model);
  const auto graph = Graph::Build(
      inferred.ok() ? std::make_shared<const onnx::ModelProto>(*std::move(inferred)) : model);
  if (!graph.ok()) return {};
  std::erase_if(casts, [&](const CastOfIntegers& cast) {
    const ValueId v = graph->Find(nodes[cast.node].input(0));
    return v == kNoValue || !IsIntegerType(graph->type(v).elem_type);
  });
  return casts;
}

// Lets lifted Casts round to their half type again, behind which a Cast to float32 follows.
void RoundIntegers(const std::vector<CastOfIntegers>& casts, onnx::GraphProto* graph) {
  if (casts.empty()) return;
  google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
  size_t next = 0;
  for (int k = 0; k < graph->node_size(); ++k) {
    onnx::NodeProto& node = *nodes.Add();
    node = std::move(*graph->mutable_node(k));
    if (next == casts.size() || casts[next].node != k) continue;
    onnx::NodeProto wide = node;
    const std::string rounded = node.output(0) + "/rounded";
    for (onnx::AttributeProto& a : *node.mutable_attribute()) {
      if (a.name() == "to") a.set_i(casts[next].type);
    }
    node.set_output(0, rounded);
    wide.set_input(0, rounded);
    wide.set_name(node.name() + "/wide");
    *nodes.Add() = std::move(wide);
    ++next;
  }
  graph->mutable_node()->Swap(&nodes);
}

}  // namespace

LiftedWeights::LiftedWeights() : store_(std::make_shared<Store>()) {}

bool HasHalfTypes(const onnx::ModelProto& model) { return HasHalf(model.graph()); }

absl::StatusOr<Model> LiftedWeights::WithFloat32(const Model& model) const {
  const auto lift = [&](const TensorProto& tensor) -> absl::StatusOr<std::optional<TensorProto>> {
    if (!IsHalfType(tensor.data_type())) return std::nullopt;
    return store_->Lift(tensor, model.base_dir);
  };
  KV_ASSIGN_OR_RETURN(const std::shared_ptr<onnx::ModelProto> proto,
                      WithOtherWeights(model.proto, store_, lift));
  onnx::GraphProto& graph = *proto->mutable_graph();
  const Lifter lifter(
      [&](const TensorProto& tensor) { return store_->Lift(tensor, model.base_dir); });
  Lifter::Values(graph.mutable_input());
  Lifter::Values(graph.mutable_output());
  Lifter::Values(graph.mutable_value_info());
  KV_RETURN_IF_ERROR(lifter.Nodes(graph.mutable_node()));
  RoundIntegers(CastsOfIntegers(model.proto), &graph);
  for (onnx::FunctionProto& function : *proto->mutable_functions()) {
    KV_RETURN_IF_ERROR(lifter.Nodes(function.mutable_node()));
  }
  for (auto& sparse : *graph.mutable_sparse_initializer()) {
    KV_RETURN_IF_ERROR(lifter.Tensor(sparse.mutable_values()));
  }
  Model lifted = model;
  lifted.proto = proto;
  lifted.digest = nullptr;
  return lifted;
}

Manifest WithFloat32(Manifest relation) {
  const auto lift = [](std::string* type) {
    if (*type == "float16" || *type == "bfloat16") *type = "float32";
  };
  for (ManifestCache& cache : relation.caches) lift(&cache.dtype);
  for (ManifestInput& input : relation.inputs) {
    if (auto* control = std::get_if<ControlInput>(&input.as)) lift(&control->dtype);
  }
  return relation;
}

}  // namespace kvlift
