#include "verify/lifted_types.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "exec/tensor.h"
#include "fmt/format.h"
#include "ir/spans.h"
#include "ir/tensor_data.h"
#include "onnx/onnx_pb.h"
#include "verify/mutant_maker.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

bool IsHalf(int64_t type) { return type == TensorProto::FLOAT16 || type == TensorProto::BFLOAT16; }

// Attributes that hold an element type.
bool NamesType(std::string_view attribute) {
  constexpr std::array<std::string_view, 5> kNames = {"to", "dtype", "stash_type",
                                                      "softmax_precision", "output_dtype"};
  return std::find(kNames.begin(), kNames.end(), attribute) != kNames.end();
}

bool HasHalf(const onnx::GraphProto& graph);

bool HasHalf(const onnx::ValueInfoProto& value) {
  return IsHalf(value.type().tensor_type().elem_type());
}

bool HasHalf(const onnx::NodeProto& node) {
  return std::any_of(node.attribute().begin(), node.attribute().end(), [](const auto& a) {
    return (NamesType(a.name()) && IsHalf(a.i())) || (a.has_t() && IsHalf(a.t().data_type())) ||
           (a.has_g() && HasHalf(a.g())) ||
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
                     [](const TensorProto& tensor) { return IsHalf(tensor.data_type()); });
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

// The float32 weights of one or more models, each made once and shared by all that have its bytes.
class LiftedWeights::Store {
 public:
  absl::StatusOr<TensorProto> Lift(const TensorProto& tensor, const std::string& base_dir) {
    TensorProto lifted;
    lifted.set_name(tensor.name());
    *lifted.mutable_dims() = tensor.dims();
    lifted.set_data_type(TensorProto::FLOAT);
    const RawData raw = RawDataOf(tensor);
    if (raw.bytes.empty()) {
      KV_ASSIGN_OR_RETURN(const std::string bytes, IsElsewhere(tensor)
                                                       ? ReadTensorBytes(tensor, base_dir)
                                                       : InlineBytes(tensor));
      lifted.set_raw_data(Widened(bytes, tensor.data_type()));
      return lifted;
    }
    const auto key = std::make_pair(raw.bytes.data(), raw.bytes.size());
    std::shared_ptr<const SpanSource>& source = sources_[key];
    if (source == nullptr) {
      auto bytes = std::make_shared<const std::string>(Widened(raw.bytes, tensor.data_type()));
      SpanSource::Content content;
      content.bytes = *bytes;
      content.owner = std::move(bytes);
      source = SpanSource::Register(std::move(content));
    }
    lifted.set_data_location(TensorProto::EXTERNAL);
    const auto add = [&](const char* name, const std::string& value) {
      auto* entry = lifted.add_external_data();
      entry->set_key(name);
      entry->set_value(value);
    };
    add("location", source->name());
    add("offset", "0");
    add("length", fmt::format("{}", source->content().bytes.size()));
    return lifted;
  }

 private:
  absl::flat_hash_map<std::pair<const char*, size_t>, std::shared_ptr<const SpanSource>> sources_;
};

namespace {

// Edits the types of a graph that has no initialisers yet.
class Lifter {
 public:
  using Lift = std::function<absl::StatusOr<TensorProto>(const TensorProto&)>;
  explicit Lifter(Lift lift) : lift_(std::move(lift)) {}

  absl::Status Values(google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>* list) const {
    for (onnx::ValueInfoProto& value : *list) {
      if (HasHalf(value)) {
        value.mutable_type()->mutable_tensor_type()->set_elem_type(TensorProto::FLOAT);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Nodes(google::protobuf::RepeatedPtrField<onnx::NodeProto>* nodes) const {
    for (onnx::NodeProto& node : *nodes) {
      for (onnx::AttributeProto& a : *node.mutable_attribute()) {
        if (NamesType(a.name()) && IsHalf(a.i())) a.set_i(TensorProto::FLOAT);
        if (a.has_t()) KV_RETURN_IF_ERROR(Tensor(a.mutable_t()));
        if (a.has_g()) KV_RETURN_IF_ERROR(Body(a.mutable_g()));
        for (onnx::GraphProto& g : *a.mutable_graphs()) KV_RETURN_IF_ERROR(Body(&g));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Tensor(TensorProto* tensor) const {
    if (!IsHalf(tensor->data_type())) return absl::OkStatus();
    KV_ASSIGN_OR_RETURN(*tensor, lift_(*tensor));
    return absl::OkStatus();
  }

 private:
  absl::Status Body(onnx::GraphProto* graph) const {
    KV_RETURN_IF_ERROR(Values(graph->mutable_input()));
    KV_RETURN_IF_ERROR(Values(graph->mutable_output()));
    KV_RETURN_IF_ERROR(Values(graph->mutable_value_info()));
    for (TensorProto& tensor : *graph->mutable_initializer()) KV_RETURN_IF_ERROR(Tensor(&tensor));
    return Nodes(graph->mutable_node());
  }

  Lift lift_;
};

}  // namespace

LiftedWeights::LiftedWeights() : store_(std::make_shared<Store>()) {}

bool HasHalfTypes(const onnx::ModelProto& model) { return HasHalf(model.graph()); }

absl::StatusOr<Model> LiftedWeights::WithFloat32(const Model& model) const {
  const onnx::ModelProto& from = *model.proto;
  // The lifted model keeps the source's weights and the wide copies.
  const auto owner = std::make_shared<std::pair<std::shared_ptr<const onnx::ModelProto>,
                                                std::shared_ptr<Store>>>(model.proto, store_);
  auto wide_weights = std::make_shared<std::vector<std::unique_ptr<TensorProto>>>();
  const std::shared_ptr<onnx::ModelProto> proto =
      BorrowingModel(std::make_shared<std::pair<decltype(owner), decltype(wide_weights)>>(
          owner, wide_weights));
  proto->set_ir_version(from.ir_version());
  *proto->mutable_opset_import() = from.opset_import();
  *proto->mutable_functions() = from.functions();
  onnx::GraphProto& graph = *proto->mutable_graph();
  graph.set_name(from.graph().name());
  *graph.mutable_node() = from.graph().node();
  *graph.mutable_input() = from.graph().input();
  *graph.mutable_output() = from.graph().output();
  *graph.mutable_value_info() = from.graph().value_info();
  *graph.mutable_sparse_initializer() = from.graph().sparse_initializer();
  const Lifter lifter(
      [&](const TensorProto& tensor) { return store_->Lift(tensor, model.base_dir); });
  KV_RETURN_IF_ERROR(lifter.Values(graph.mutable_input()));
  KV_RETURN_IF_ERROR(lifter.Values(graph.mutable_output()));
  KV_RETURN_IF_ERROR(lifter.Values(graph.mutable_value_info()));
  KV_RETURN_IF_ERROR(lifter.Nodes(graph.mutable_node()));
  for (onnx::FunctionProto& function : *proto->mutable_functions()) {
    KV_RETURN_IF_ERROR(lifter.Nodes(function.mutable_node()));
  }
  for (auto& sparse : *graph.mutable_sparse_initializer()) {
    KV_RETURN_IF_ERROR(lifter.Tensor(sparse.mutable_values()));
  }
  for (const TensorProto& tensor : from.graph().initializer()) {
    const TensorProto* weight = &tensor;
    if (IsHalf(tensor.data_type())) {
      KV_ASSIGN_OR_RETURN(TensorProto lifted, store_->Lift(tensor, model.base_dir));
      weight = wide_weights->emplace_back(std::make_unique<TensorProto>(std::move(lifted))).get();
    }
    graph.mutable_initializer()->UnsafeArenaAddAllocated(const_cast<TensorProto*>(weight));
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
  for (ManifestInput& input : relation.inputs) lift(&input.dtype);
  return relation;
}

}  // namespace kvlift
