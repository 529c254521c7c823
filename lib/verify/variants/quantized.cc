#include "verify/variants/quantized.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "fmt/format.h"
#include "ir/graph.h"
#include "ir/patch.h"
#include "oracle/ops/rounded_rows.h"
#include "verify/mutants/mutant_maker.h"

namespace kvlift {
namespace {

using onnx::AttributeProto;
using onnx::ModelProto;
using onnx::NodeProto;
using onnx::TensorProto;

absl::Status Unclear(std::string text) { return absl::FailedPreconditionError(std::move(text)); }

int32_t TypeNamed(const std::string& name) {
  for (const int32_t type : {TensorProto::FLOAT, TensorProto::FLOAT16, TensorProto::BFLOAT16,
                             TensorProto::INT8, TensorProto::FLOAT8E4M3FN}) {
    if (ElementTypeName(type) == name) return type;
  }
  return 0;
}

// The nodes and values by which a model quantises, stores and reads one cache.
struct Store {
  const ManifestCache *values = nullptr, *scales = nullptr;
  int64_t group = 0, size = 0;      // elements of a group, and of the last axis
  int32_t type = 0, rows_type = 0;  // element types of the values, and of the rows
  NodeId value_write = kNoNode, scale_write = kNoNode;
  ValueId rows = kNoValue;  // the new rows in their own type
  ValueId wide = kNoValue;  // the new rows in float32
  std::set<NodeId> reads;   // the DequantizeLinear nodes
};

class StoreReader {
 public:
  StoreReader(const Graph& graph, const Manifest& relation) : graph_(graph), relation_(relation) {}

  absl::StatusOr<std::vector<Store>> Run() const {
    std::vector<Store> stores;
    for (const ManifestCache& cache : relation_.caches) {
      if (!cache.quantization) continue;
      KV_ASSIGN_OR_RETURN(Store store, Read(cache));
      stores.push_back(std::move(store));
    }
    return stores;
  }

 private:
  absl::StatusOr<Store> Read(const ManifestCache& cache) const {
    Store store;
    store.values = &cache;
    for (const ManifestCache& other : relation_.caches) {
      if (other.id == cache.quantization->scales) store.scales = &other;
    }
    if (store.scales == nullptr || store.scales->axis != cache.axis) {
      return Unclear(fmt::format("cache {} has no scales", cache.id));
    }
    store.group = cache.quantization->group;
    store.type = TypeNamed(cache.quantization->dtype);
    store.rows_type = TypeNamed(cache.quantization->rows);
    KV_RETURN_IF_ERROR(ReadType(&store));
    KV_ASSIGN_OR_RETURN(store.value_write, WriteOf(cache));
    KV_ASSIGN_OR_RETURN(store.scale_write, WriteOf(*store.scales));
    KV_RETURN_IF_ERROR(ReadRows(&store));
    KV_RETURN_IF_ERROR(ReadReaders(&store));
    return store;
  }

  absl::Status ReadType(Store* store) const {
    const ManifestCache& cache = *store->values;
    const ValueId past = graph_.Find(cache.input), scales = graph_.Find(store->scales->input);
    const auto known = [&](ValueId v) {
      return v != kNoValue && graph_.type(v).shape && !graph_.type(v).shape->empty() &&
             graph_.type(v).shape->back().value;
    };
    if (!known(past) || !known(scales)) {
      return Unclear(fmt::format("cache {} does not declare its last axis", cache.id));
    }
    store->size = *graph_.type(past).shape->back().value;
    const bool types =
        (store->type == TensorProto::INT8 || store->type == TensorProto::FLOAT8E4M3FN) &&
        store->rows_type != 0 && graph_.type(past).elem_type == store->type &&
        graph_.type(scales).elem_type == TensorProto::FLOAT;
    const bool sizes = store->group > 0 && store->size % store->group == 0 &&
                       *graph_.type(scales).shape->back().value == store->size / store->group &&
                       graph_.type(scales).shape->size() == graph_.type(past).shape->size();
    if (!types || !sizes) {
      return Unclear(
          fmt::format("cache {} and its scales have other types or sizes than the "
                      "relation says",
                      cache.id));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<NodeId> WriteOf(const ManifestCache& cache) const {
    const ValueId past = graph_.Find(cache.input), present = graph_.Find(cache.output);
    const NodeId n = present == kNoValue ? kNoNode : graph_.producer(present);
    if (n == kNoNode || !graph_.Is(n, "TensorScatter") || graph_.inputs(n)[0] != past) {
      return Unclear(
          fmt::format("{} is not written into {} by a TensorScatter", cache.output, cache.input));
    }
    for (const Use& use : graph_.uses(past)) {
      if (use.kind == Use::Kind::kNodeInput && (use.node == n || graph_.Is(use.node, "Shape"))) {
        continue;
      }
      return Unclear(fmt::format("{} has another reader than its TensorScatter", cache.input));
    }
    return n;
  }

  absl::Status ReadRows(Store* store) const {
    const ValueId update = graph_.inputs(store->value_write)[1];
    const NodeId maker = graph_.producer(update);
    if (maker == kNoNode || !graph_.Is(maker, "QuantizeLinear")) {
      return Unclear(fmt::format("{} is no result of a QuantizeLinear", graph_.name(update)));
    }
    store->wide = store->rows = graph_.inputs(maker)[0];
    if (store->rows_type == TensorProto::FLOAT) return absl::OkStatus();
    const NodeId cast = graph_.producer(store->wide);
    if (cast == kNoNode || !graph_.Is(cast, "Cast")) {
      return Unclear(fmt::format("{} is not widened by a Cast", graph_.name(store->wide)));
    }
    store->rows = graph_.inputs(cast)[0];
    return absl::OkStatus();
  }

  absl::Status ReadReaders(Store* store) const {
    const ValueId present = graph_.Find(store->values->output);
    for (const Use& use : graph_.uses(present)) {
      if (use.kind == Use::Kind::kGraphOutput) continue;
      if (use.kind == Use::Kind::kNodeInput && graph_.Is(use.node, "Shape")) continue;
      if (IsRead(use)) {
        store->reads.insert(use.node);
        continue;
      }
      if (use.kind != Use::Kind::kNodeInput || !graph_.Is(use.node, "Slice")) {
        return Unclear(fmt::format("{} is read by something else than a DequantizeLinear",
                                   store->values->output));
      }
      for (const Use& inner : graph_.uses(graph_.outputs(use.node)[0])) {
        if (!IsRead(inner)) {
          return Unclear(fmt::format("{} is read by something else than a DequantizeLinear",
                                     graph_.name(graph_.outputs(use.node)[0])));
        }
        store->reads.insert(inner.node);
      }
    }
    return absl::OkStatus();
  }

  bool IsRead(const Use& use) const {
    return use.kind == Use::Kind::kNodeInput && graph_.Is(use.node, "DequantizeLinear") &&
           use.index == 0;
  }

  const Graph& graph_;
  const Manifest& relation_;
};

// Makes one of the models of QuantizedParts.
class Variant {
 public:
  enum class Form { kPlain, kRounded, kRoundedBounds, kDefined, kDefinedOperators };

  Variant(const Model& after, const Graph& graph, const std::vector<Store>& stores, Form form)
      : after_(after), graph_(graph), stores_(stores), form_(form) {}

  absl::StatusOr<Model> Make() {
    auto proto = std::shared_ptr<ModelProto>(new ModelProto(*after_.proto),
                                             [keep = after_.proto](ModelProto* p) { delete p; });
    proto_ = proto.get();
    proto_->mutable_graph()->clear_node();
    if (form_ == Form::kRoundedBounds) {
      auto* import = proto_->add_opset_import();
      import->set_domain(std::string(oracle::kRoundedRowsDomain));
      import->set_version(1);
    }
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (!Replace(n)) *proto_->mutable_graph()->add_node() = graph_.node(n);
    }
    if (!stored()) {
      for (const Store& store : stores_) Undeclare(store);
    }
    KV_ASSIGN_OR_RETURN(const Graph whole, Graph::Build(proto));
    KV_ASSIGN_OR_RETURN(ModelProto live, Apply(whole, Patch()));
    Model model;
    model.proto = std::shared_ptr<const ModelProto>(
        new ModelProto(std::move(live)), [keep = after_.proto](const ModelProto* p) { delete p; });
    model.path = after_.path;
    model.base_dir = after_.base_dir;
    return model;
  }

 private:
  bool stored() const { return form_ == Form::kDefined || form_ == Form::kDefinedOperators; }
  static bool float8(const Store& store) { return store.type == TensorProto::FLOAT8E4M3FN; }

  bool Replace(NodeId n) {
    for (const Store& store : stores_) {
      if (n == store.value_write) return stored() ? WriteDefined(store) : WritePlain(store);
      if (n == store.scale_write) return true;
      if (!stored() && ReadsScales(store, n)) return true;
      if (store.reads.count(n) == 0) continue;
      if (!stored()) {
        Node("Identity", {graph_.name(graph_.inputs(n)[0])}, graph_.name(graph_.outputs(n)[0]));
      } else {
        ReadDefined(store, n);
      }
      return true;
    }
    return false;
  }

  bool ReadsScales(const Store& store, NodeId n) const {
    const auto inputs = graph_.inputs(n);
    return store.reads.count(n) == 0 &&
           std::find(inputs.begin(), inputs.end(), graph_.Find(store.scales->output)) !=
               inputs.end();
  }

  std::string Fresh() { return fmt::format("kvlift quantized {}", ++count_); }

  std::string Node(const std::string& op, const std::vector<std::string>& inputs,
                   const std::string& output = "", const std::vector<AttributeProto>& with = {}) {
    NodeProto& node = *proto_->mutable_graph()->add_node();
    node = MutantMaker::Make(op, inputs, output.empty() ? Fresh() : output, with);
    node.clear_name();
    return node.output(0);
  }

  std::string Constant(TensorProto tensor) {
    tensor.set_name(Fresh());
    *proto_->mutable_graph()->add_initializer() = tensor;
    return tensor.name();
  }
  std::string Number(float value) {
    return Constant(MutantMaker::Scalar("", TensorProto::FLOAT, value));
  }
  std::string Integers(const std::vector<int64_t>& values) {
    return Constant(MutantMaker::Ints("", values));
  }

  static int64_t Rank(const Store& store) {
    return static_cast<int64_t>(store.values->layout.size());
  }
  // Appends a Reshape that keeps all axes but the last, which becomes `last`.
  std::string Reshape(const Store& store, const std::string& x, const std::vector<int64_t>& last,
                      const std::string& name = "") {
    std::vector<int64_t> shape(static_cast<size_t>(Rank(store) - 1), 0);
    shape.insert(shape.end(), last.begin(), last.end());
    return Node("Reshape", {x, Integers(shape)}, name);
  }
  std::string Grouped(const Store& store, const std::string& x, const std::string& name = "") {
    return Reshape(store, x, {store.size / store.group, store.group}, name);
  }
  // Appends nodes that compute the scales of groups from their largest magnitudes.
  std::string ScaleOf(const Store& store, const std::string& largest, const std::string& quotient,
                      const std::string& name) {
    const std::string reach = Number(float8(store) ? 448.0f : 127.0f);
    return Node("Max", {Node("Div", {largest, reach}, quotient), Number(0x1p-126f)}, name);
  }
  std::string Cast(const std::string& x, int32_t type) {
    return Node("Cast", {x}, "", {MutantMaker::IntAttr("to", type)});
  }

  // The scales [.., D / group, 1] of grouped rows, and their values [.., D / group, group] in
  // float32.
  struct Quantized {
    std::string scale, value;
  };
  Quantized Quantize(const Store& store, const std::string& groups) {
    const std::string largest = Node("ReduceMax", {Node("Abs", {groups}), Integers({-1})}, "",
                                     {MutantMaker::IntAttr("keepdims", 1)});
    const std::string scale = ScaleOf(store, largest, "", "");
    const std::string quotient = Node("Div", {groups, scale});
    if (float8(store)) return {scale, Cast(Cast(quotient, store.type), TensorProto::FLOAT)};
    return {scale, Node("Clip", {Node("Round", {quotient}), Number(-127.0f), Number(127.0f)})};
  }

  bool WritePlain(const Store& store) {
    NodeProto write = graph_.node(store.value_write);
    std::string rows = graph_.name(store.rows);
    if (form_ != Form::kPlain) {
      std::string wide = graph_.name(store.wide);
      if (form_ == Form::kRounded) {
        const Quantized q = Quantize(store, Grouped(store, wide));
        wide = Reshape(store, Node("Mul", {q.value, q.scale}), {store.size});
      } else {
        wide = Node(
            std::string(oracle::kRoundedRows), {wide}, "",
            {MutantMaker::IntAttr("group", store.group), MutantMaker::IntAttr("to", store.type)});
        auto& nodes = *proto_->mutable_graph()->mutable_node();
        nodes.rbegin()->set_domain(std::string(oracle::kRoundedRowsDomain));
      }
      rows = store.rows_type == TensorProto::FLOAT ? wide : Cast(wide, store.rows_type);
    }
    write.set_input(1, rows);
    *proto_->mutable_graph()->add_node() = write;
    return true;
  }

  bool WriteDefined(const Store& store) {
    const std::string wide = graph_.name(store.wide);
    NodeProto values = graph_.node(store.value_write), scales = values;
    if (form_ == Form::kDefined) {
      const Quantized q = Quantize(store, Grouped(store, wide));
      scales.set_input(1, Reshape(store, q.scale, {store.size / store.group}));
      values.set_input(1, Cast(Reshape(store, q.value, {store.size}), store.type));
    } else {
      scales.set_input(1, OperatorScale(store, wide));
      const std::string name = Free(graph_.name(graph_.inputs(store.value_write)[1]));
      values.set_input(1, Node("QuantizeLinear", {wide, scales.input(1)}, name,
                               {MutantMaker::IntAttr("axis", Rank(store) - 1),
                                MutantMaker::IntAttr("block_size", store.group),
                                MutantMaker::IntAttr("output_dtype", store.type)}));
    }
    scales.set_name("");
    scales.set_input(0, store.scales->input);
    scales.set_output(0, store.scales->output);
    *proto_->mutable_graph()->add_node() = values;
    *proto_->mutable_graph()->add_node() = scales;
    return true;
  }

  // Appends nodes that compute the scales as [.., D / group], and returns their name. Values have
  // the names of the model's where it computes them in the same way, as the proof first compares
  // values of one name.
  std::string OperatorScale(const Store& store, const std::string& wide) {
    std::string& known = scale_of_[wide];
    if (!known.empty()) return known;
    const NodeId quantize = graph_.producer(graph_.inputs(store.value_write)[1]);
    std::vector<std::string> names(5);
    ValueId v = graph_.inputs(quantize)[1];
    const char* const operators[] = {"Max", "Div", "ReduceMax", "Abs", "Reshape"};
    for (size_t k = 0; k < names.size(); ++k) {
      const NodeId n = v == kNoValue ? kNoNode : graph_.producer(v);
      if (n == kNoNode || !graph_.Is(n, operators[k])) break;
      names[k] = Free(graph_.name(v));
      v = graph_.inputs(n)[0];
    }
    const std::string groups = Grouped(store, wide, names[4]);
    const std::string largest = Node("ReduceMax", {Node("Abs", {groups}, names[3]), Integers({-1})},
                                     names[2], {MutantMaker::IntAttr("keepdims", 0)});
    return known = ScaleOf(store, largest, names[1], names[0]);
  }

  // Frees a name for a new value and returns it: the value that has it so far is renamed. Nodes
  // that nothing reads are removed in the end.
  std::string Free(const std::string& name) {
    const std::string other = Fresh();
    for (NodeProto& node : *proto_->mutable_graph()->mutable_node()) {
      for (auto* values : {node.mutable_input(), node.mutable_output()}) {
        for (std::string& value : *values) {
          if (value == name) value = other;
        }
      }
    }
    return name;
  }

  void ReadDefined(const Store& store, NodeId n) {
    const ValueId from = graph_.inputs(n)[0];
    std::string scales = store.scales->output;
    if (graph_.name(from) != store.values->output) {
      NodeProto slice = graph_.node(graph_.producer(from));
      const ValueId theirs = graph_.inputs(n)[1];
      const bool sliced =
          graph_.producer(theirs) != kNoNode && graph_.Is(graph_.producer(theirs), "Slice");
      slice.set_name("");
      slice.set_input(0, scales);
      slice.set_output(0, sliced ? Free(graph_.name(theirs)) : Fresh());
      *proto_->mutable_graph()->add_node() = slice;
      scales = slice.output(0);
    }
    const std::string values = graph_.name(from), to = graph_.name(graph_.outputs(n)[0]);
    if (form_ == Form::kDefinedOperators) {
      Node("DequantizeLinear", {values, scales}, to,
           {MutantMaker::IntAttr("axis", Rank(store) - 1),
            MutantMaker::IntAttr("block_size", store.group)});
      return;
    }
    const std::string rows = Node("Mul", {Grouped(store, Cast(values, TensorProto::FLOAT)),
                                          Reshape(store, scales, {store.size / store.group, 1})});
    const std::string flat = Reshape(store, rows, {store.size});
    Node("Identity", {flat}, to);
  }

  // Declares the cache with the type of its rows, and removes the cache of scales.
  void Undeclare(const Store& store) {
    const auto change = [&](auto* values, const std::string& name, const std::string& scales) {
      for (auto& value : *values) {
        if (value.name() == name) {
          value.mutable_type()->mutable_tensor_type()->set_elem_type(store.rows_type);
        }
      }
      for (int k = values->size() - 1; k >= 0; --k) {
        if (values->Get(k).name() == scales) values->DeleteSubrange(k, 1);
      }
    };
    onnx::GraphProto& graph = *proto_->mutable_graph();
    change(graph.mutable_input(), store.values->input, store.scales->input);
    change(graph.mutable_output(), store.values->output, store.scales->output);
  }

  const Model& after_;
  const Graph& graph_;
  const std::vector<Store>& stores_;
  const Form form_;
  ModelProto* proto_ = nullptr;
  std::map<std::string, std::string> scale_of_;
  int count_ = 0;
};

Manifest PlainRelation(const Manifest& relation) {
  Manifest plain = relation;
  std::set<std::string> scales;
  for (const ManifestCache& cache : relation.caches) {
    if (cache.quantization) scales.insert(cache.quantization->scales);
  }
  std::erase_if(plain.caches, [&](const ManifestCache& c) { return scales.count(c.id) > 0; });
  const auto holds_scales = [&](const auto& entry) {
    const auto* cache = AsCache(entry);
    return cache != nullptr && scales.count(cache->id) > 0;
  };
  std::erase_if(plain.inputs, holds_scales);
  std::erase_if(plain.outputs, holds_scales);
  for (ManifestCache& cache : plain.caches) {
    if (cache.quantization) cache.dtype = cache.quantization->rows;
    cache.quantization.reset();
  }
  plain.quantization.reset();
  return plain;
}

// Returns the relation of two models that both have the interface of the converted model.
Manifest StoredRelation(const Manifest& relation) {
  Manifest stored = relation;
  for (ManifestCache& cache : stored.caches) {
    cache.quantization.reset();
    cache.source = {
        cache.input, cache.output, UpdateKind::kTensorScatter, cache.layout, cache.axis, false, {}};
  }
  for (ManifestInput& input : stored.inputs) {
    if (!IsCache(input)) input.as = SameInput{};
  }
  for (ManifestOutput& output : stored.outputs) {
    if (!IsCache(output)) output.as = SameOutput{};
  }
  stored.dropped.clear();
  stored.quantization.reset();
  return stored;
}

}  // namespace

bool HasQuantizedCaches(const Manifest& relation) {
  return std::any_of(relation.caches.begin(), relation.caches.end(),
                     [](const ManifestCache& cache) { return cache.quantization.has_value(); });
}

absl::StatusOr<QuantizedParts> TakeApart(const Model& after, const Manifest& relation) {
  KV_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(after.proto));
  KV_ASSIGN_OR_RETURN(const std::vector<Store> stores, StoreReader(graph, relation).Run());
  const auto make = [&](Variant::Form form) { return Variant(after, graph, stores, form).Make(); };
  QuantizedParts parts;
  KV_ASSIGN_OR_RETURN(parts.plain, make(Variant::Form::kPlain));
  KV_ASSIGN_OR_RETURN(parts.rounded, make(Variant::Form::kRounded));
  KV_ASSIGN_OR_RETURN(parts.rounded_bounds, make(Variant::Form::kRoundedBounds));
  KV_ASSIGN_OR_RETURN(parts.defined, make(Variant::Form::kDefined));
  KV_ASSIGN_OR_RETURN(parts.defined_operators, make(Variant::Form::kDefinedOperators));
  parts.plain_relation = PlainRelation(relation);
  parts.stored_relation = StoredRelation(relation);
  return parts;
}

}  // namespace kvlift
