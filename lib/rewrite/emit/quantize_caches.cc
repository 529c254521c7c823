#include "rewrite/emit/quantize_caches.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "ir/graph.h"
#include "ir/node_builder.h"
#include "ir/subgraphs.h"

namespace kvlift {
namespace {

using onnx::NodeProto;
using onnx::TensorProto;

// The largest magnitudes of codes.
constexpr double kLargestInt8 = 127, kLargestFloat8 = 448;

struct ScaleRules {
  float smallest = 0x1p-126F;  // the least scale
  bool of_rows = false;        // scales have the type of the rows; false: float32
};

// One cache, as the converted model has it.
struct Store {
  const ManifestCache* cache = nullptr;
  const EmittedCache* made = nullptr;
  NodeId scatter = kNoNode;
  int64_t size = 0, group = 0;
  int32_t type = 0;  // onnx TensorProto::DataType of the rows
  std::string scales_past, scales_present;
  EmittedCache values, scales;  // what the cache becomes
  std::vector<NodeId> slices;   // Slices of rows that read the present
  bool read_whole = false;      // some other node reads the present
};

class Quantizer {
 public:
  Quantizer(const CacheQuantization& how, const ScaleRules& rules, const Graph& graph,
            Emission* emission)
      : how_(how),
        rules_(rules),
        graph_(graph),
        emission_(*emission),
        builder_(graph),
        taken_(NamesIn(graph.proto())) {
    for (size_t k = 0; k < emission_.caches.size(); ++k) {
      Store& store = stores_.emplace_back();
      store.cache = &emission_.manifest.caches[k];
      store.made = &emission_.caches[k];
      Read(&store);
    }
  }

  void Rewrite() {
    // Equal rows are quantised once, where they are written first.
    std::sort(stores_.begin(), stores_.end(),
              [](const Store& a, const Store& b) { return a.scatter < b.scatter; });
    for (Store& store : stores_) Emit(store);
    onnx::ModelProto model = graph_.model();
    onnx::GraphProto& graph = *model.mutable_graph();
    graph.clear_node();
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (const auto it = instead_.find(n); it != instead_.end()) {
        for (NodeProto& node : it->second) *graph.add_node() = std::move(node);
        continue;
      }
      NodeProto& node = *graph.add_node();
      node = graph_.node(n);
      for (std::string& input : *node.mutable_input()) {
        const auto whole = whole_.find(input);
        if (whole != whole_.end() && node.op_type() != "Shape") input = whole->second;
      }
    }
    for (TensorProto& tensor : builder_.TakeInitializers()) {
      *graph.add_initializer() = std::move(tensor);
    }
    for (const Store& store : stores_) Declare(store, &graph);
    emission_.model = std::move(model);
    Describe();
  }

 private:
  bool float8() const { return how_.scheme == CacheQuantization::Scheme::kFloat8; }

  // Fills in how a cache is stored and which nodes read its present.
  void Read(Store* store) {
    const ManifestCache& cache = *store->cache;
    const TensorType& type = graph_.type(graph_.Find(cache.input));
    store->type = type.elem_type;
    store->size = *type.shape->back().value;
    store->group = how_.group > 0 ? how_.group : store->size;
    const ValueId present = graph_.Find(cache.output);
    store->scatter = graph_.producer(present);
    for (const Use& use : graph_.uses(present)) {
      if (use.kind == Use::Kind::kGraphOutput || graph_.Is(use.node, "Shape")) continue;
      // ONNX's Slice does not take float8.
      if (!float8() && store->made->View(graph_.node(use.node).output(0)) != nullptr) {
        store->slices.push_back(use.node);
      } else {
        store->read_whole = true;
      }
    }
  }

  std::string Unique(const std::string& wish) {
    std::string name = wish;
    for (int k = 1; !taken_.insert(name).second; ++k) name = fmt::format("{}_{}", wish, k);
    return name;
  }

  void Emit(Store& store) {
    const ManifestCache& cache = *store.cache;
    store.scales_past = Unique(cache.input + "_scale");
    store.scales_present = Unique(cache.output + "_scale");
    builder_.set_scope(fmt::format("layers.{}/{}", cache.layer, WordOf(cache.role)));
    const NodeProto& scatter = graph_.node(store.scatter);
    std::string rows = store.made->update;
    if (store.type != ScaleType(store)) rows = Cast(rows, TensorProto::FLOAT, "rows");
    const std::string scale = Scale(rows, store);
    const std::string values = builder_.Add("QuantizeLinear", {rows, scale}, "quantized",
                                            Blocks(store, /*quantize=*/true));
    NodeProto of_values = scatter, of_scales = scatter;
    of_values.set_input(1, values);
    of_scales.set_input(0, store.scales_past);
    of_scales.set_input(1, scale);
    of_scales.set_output(0, store.scales_present);
    of_scales.set_name(scatter.name().empty() ? "" : Unique(scatter.name() + "/scale"));
    std::vector<NodeProto> nodes = builder_.TakeNodes();
    nodes.push_back(of_values);
    nodes.push_back(of_scales);
    if (store.read_whole) {
      whole_[cache.output] = Dequantized(cache.output, store.scales_present, store, nullptr);
      for (NodeProto& node : builder_.TakeNodes()) nodes.push_back(std::move(node));
    }
    instead_[store.scatter] = std::move(nodes);
    store.values = {cache.output, values, store.made->write_indices, {}};
    store.scales = {store.scales_present, scale, store.made->write_indices, {}};
    for (const NodeId n : store.slices) {
      const NodeProto& slice = graph_.node(n);
      NodeProto of_rows = slice, with_scales = slice;
      of_rows.set_output(0, Unique(slice.output(0) + "_quantized"));
      with_scales.set_input(0, store.scales_present);
      with_scales.set_output(0, Unique(slice.output(0) + "_scale"));
      with_scales.set_name(slice.name().empty() ? "" : Unique(slice.name() + "/scale"));
      const bool counted = store.made->View(slice.output(0))->counted;
      store.values.views.push_back({of_rows.output(0), counted});
      store.scales.views.push_back({with_scales.output(0), counted});
      Dequantized(of_rows.output(0), with_scales.output(0), store, &slice.output(0));
      nodes = {of_rows, with_scales};
      for (NodeProto& node : builder_.TakeNodes()) nodes.push_back(std::move(node));
      instead_[n] = std::move(nodes);
    }
  }

  std::string Cast(const std::string& value, int32_t type, const char* role) {
    return builder_.Add("Cast", {value}, role, {MakeAttribute("to", int64_t{type})});
  }

  // Returns the scales of the rows, [.., D / G].
  std::string Scale(const std::string& rows, const Store& store) {
    std::vector<int64_t> shape(store.cache->layout.size() - 1, 0);
    shape.push_back(store.size / store.group);
    shape.push_back(store.group);
    const std::string groups = builder_.Add("Reshape", {rows, builder_.Int64s(shape)}, "groups");
    const std::string sizes = builder_.Add("Abs", {groups}, "sizes");
    const std::string largest = builder_.Add("ReduceMax", {sizes, builder_.Int64s({-1})}, "largest",
                                             {MakeAttribute("keepdims", int64_t{0})});
    const double reach = float8() ? kLargestFloat8 : kLargestInt8;
    const std::string scale = builder_.Add(
        "Div", {largest, builder_.Scalar(reach, ScaleType(store))}, "scale_of_largest");
    return builder_.Add("Max", {scale, builder_.Scalar(rules_.smallest, ScaleType(store))},
                        "scale");
  }

  NodeBuilder::Attributes Blocks(const Store& store, bool quantize) const {
    const auto last = static_cast<int64_t>(store.cache->layout.size()) - 1;
    NodeBuilder::Attributes attributes = {MakeAttribute("axis", last),
                                          MakeAttribute("block_size", store.group)};
    if (quantize) attributes.push_back(MakeAttribute("output_dtype", int64_t{TypeOfValues()}));
    return attributes;
  }

  int32_t ScaleType(const Store& store) const {
    return rules_.of_rows ? store.type : int32_t{TensorProto::FLOAT};
  }
  int32_t TypeOfValues() const { return float8() ? TensorProto::FLOAT8E4M3FN : TensorProto::INT8; }

  // Returns the dequantised rows. to: the name of the result; null: it gets a new name.
  std::string Dequantized(const std::string& values, const std::string& scales, const Store& store,
                          const std::string* to) {
    const auto add = [&](const char* op, const NodeBuilder::Inputs& inputs,
                         NodeBuilder::Attributes attributes, bool last) {
      if (to == nullptr || !last) {
        return builder_.Add(op, inputs, "dequantized", std::move(attributes));
      }
      builder_.AddNamed(op, inputs, "dequantized", *to, std::move(attributes));
      return *to;
    };
    const bool narrow = store.type != ScaleType(store);
    const std::string rows =
        add("DequantizeLinear", {values, scales}, Blocks(store, /*quantize=*/false), !narrow);
    if (!narrow) return rows;
    return add("Cast", {rows}, {MakeAttribute("to", int64_t{store.type})}, true);
  }

  void Declare(const Store& store, onnx::GraphProto* graph) const {
    const auto declare = [&](auto* values, const std::string& name, const std::string& scales) {
      for (onnx::ValueInfoProto& value : *values) {
        if (value.name() != name) continue;
        onnx::ValueInfoProto of_scales = value;
        of_scales.set_name(scales);
        auto& type = *of_scales.mutable_type()->mutable_tensor_type();
        type.set_elem_type(ScaleType(store));
        auto& shape = *type.mutable_shape();
        shape.mutable_dim(shape.dim_size() - 1)->set_dim_value(store.size / store.group);
        value.mutable_type()->mutable_tensor_type()->set_elem_type(TypeOfValues());
        *values->Add() = std::move(of_scales);
        return;
      }
    };
    declare(graph->mutable_input(), store.cache->input, store.scales_past);
    declare(graph->mutable_output(), store.cache->output, store.scales_present);
  }

  // Returns the number of elements of one token in a cache; nullopt if an extent is not a constant.
  std::optional<int64_t> ElementsPerToken(const Store& store) const {
    const auto& shape = *graph_.type(graph_.Find(store.cache->input)).shape;
    int64_t elements = 1;
    for (size_t k = 0; k < shape.size(); ++k) {
      if (store.cache->layout[k] == 'B' || store.cache->layout[k] == 'S') continue;
      if (!shape[k].value) return std::nullopt;
      elements *= *shape[k].value;
    }
    return elements;
  }

  void Describe() {
    QuantizationSummary summary;
    summary.scheme = how_.text;
    std::optional<int64_t> before = 0, after = 0;
    Manifest& manifest = emission_.manifest;
    std::vector<ManifestCache> caches;
    std::vector<EmittedCache> made;
    std::sort(stores_.begin(), stores_.end(),
              [](const Store& a, const Store& b) { return a.cache < b.cache; });
    for (const Store& store : stores_) {
      const auto elements = ElementsPerToken(store);
      if (!elements) before = after = std::nullopt;
      if (before) {
        *before += *elements * ElementBits(store.type) / 8;
        *after += *elements + *elements / store.group * ElementBits(ScaleType(store)) / 8;
      }
      ManifestCache values = *store.cache;
      ManifestCache scales = values;
      scales.id += ".scale";
      scales.role = ScalesOf(scales.role);
      scales.input = store.scales_past;
      scales.output = store.scales_present;
      scales.dtype = ElementTypeName(ScaleType(store));
      values.quantization = {ElementTypeName(TypeOfValues()), store.group, scales.id, values.dtype};
      values.dtype = ElementTypeName(TypeOfValues());
      manifest.inputs.push_back({scales.input, CacheInput{scales.id}});
      manifest.outputs.push_back({scales.output, CacheOutput{scales.id}});
      caches.push_back(std::move(values));
      caches.push_back(std::move(scales));
      made.push_back(store.values);
      made.push_back(store.scales);
    }
    summary.bytes_before = before;
    summary.bytes_after = after;
    manifest.caches = std::move(caches);
    manifest.quantization = std::move(summary);
    emission_.caches = std::move(made);
    stores_.clear();
  }

  const CacheQuantization& how_;
  const ScaleRules& rules_;
  const Graph& graph_;
  Emission& emission_;
  NodeBuilder builder_;
  absl::flat_hash_set<std::string> taken_;
  std::vector<Store> stores_;
  absl::flat_hash_map<NodeId, std::vector<NodeProto>> instead_;
  absl::flat_hash_map<std::string, std::string> whole_;  // presents, with their dequantised rows
};

}  // namespace

std::optional<CacheQuantization> ReadCacheQuantization(const std::string& text) {
  CacheQuantization how;
  how.text = text;
  if (text == "fp8") how.scheme = CacheQuantization::Scheme::kFloat8;
  if (text == "fp8" || text == "int8:channel") return how;
  const std::string head = "int8:";
  if (text.rfind(head, 0) != 0) return std::nullopt;
  const char *begin = text.data() + head.size(), *end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, how.group);
  if (error != std::errc() || stop != end || how.group <= 0) return std::nullopt;
  return how;
}

absl::Status QuantizeCaches(const PlannedQuantization& planned, Emission* emission) {
  KV_ASSIGN_OR_RETURN(const Graph graph,
                      Graph::Build(std::make_shared<const onnx::ModelProto>(emission->model)));
  const ScaleRules rules = planned.as_source ? ScaleRules{1e-5F, /*of_rows=*/true} : ScaleRules{};
  Quantizer(planned.how, rules, graph, emission).Rewrite();
  return absl::OkStatus();
}

}  // namespace kvlift
