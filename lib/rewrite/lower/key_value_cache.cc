#include "rewrite/lower/key_value_cache.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/node_builder.h"
#include "onnxio/model/functional_form.h"
#include "rewrite/lower/dead_nodes.h"
#include "rewrite/lower/joined_sequences.h"
#include "sym/forms/forms.h"

namespace kvlift {
namespace {

using onnx::NodeProto;
using onnx::TensorProto;
using Slots = KeyValueCacheSlots;

constexpr const char* kRoles[] = {"key", "value"};

// The attributes of a KeyValueCache node, with the operator's defaults.
struct Settings {
  int64_t layers, layer, bits, group, repeat, layout, mode;
  bool joins;  // the tokens of all sequences are on one axis

  explicit Settings(const NodeProto& node)
      : layers(IntAttribute(node, "num_layer", 1)),
        layer(IntAttribute(node, "layer_idx", 0)),
        bits(IntAttribute(node, "quant_bit", 0)),
        group(bits == 0 ? 0 : IntAttribute(node, "quant_group", 8)),
        repeat(IntAttribute(node, "num_repeat", 1)),
        layout(IntAttribute(node, "cache_layout", 0)),
        mode(IntAttribute(node, "cache_mode", 0)),
        joins(Slots::Of(node).joins_sequences()) {}

  int64_t layouts() const { return joins ? 4 : 2; }
};

// A packed tensor with the nodes that write into it, in their order.
struct Packed {
  ValueId past = kNoValue, present = kNoValue;
  ValueId scales_past = kNoValue, scales_present = kNoValue;
  std::vector<NodeId> nodes;
};

// Where the axes of a part are in the packed tensor.
struct PackedLayout {
  std::string letters;  // of a part
  // Axes of the packed tensor; negative: it has no such axis.
  int layers, roles, sequences, slots, heads;

  static PackedLayout Of(const Settings& s) {
    if (!s.joins) {
      return s.layout == 0 ? PackedLayout{"BSND", 1, 2, 0, 3, 4}
                           : PackedLayout{"BNSD", 0, 2, 1, 4, 3};
    }
    if (s.layout == 0) return {"BSND", 1, 2, -1, 0, 3};
    if (s.layout == 1) return {"BSND", 0, 2, -1, 1, 3};
    if (s.layout == 2) return {"BSND", 0, 1, -1, 2, 3};
    return {"BNSD", 0, 1, -1, 3, 2};
  }
  size_t rank() const { return sequences < 0 ? 5 : 6; }
  bool heads_first() const { return letters[1] == 'N'; }
  int64_t part_axis() const { return static_cast<int64_t>(letters.find('S')); }
  // Returns the layout of a part inside the packed tensor.
  std::string source_letters() const { return sequences < 0 ? letters.substr(1) : letters; }
  std::vector<Select> Selects(int64_t layer, int64_t role) const {
    return {{layers, layer}, {roles, role}};
  }
};

class Unpacker {
 public:
  Unpacker(const Graph& graph, Normalised* result)
      : graph_(graph), forms_(graph), one_(forms_), builder_(graph), result_(*result) {}

  // Changes the model, or adds refusals, or leaves all as it is if there is nothing to lower.
  absl::Status Run() {
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (IsKeyValueCache(graph_.node(n)) && !Collect(n)) return absl::OkStatus();
    }
    for (const Packed& packed : packed_) {
      if (const auto why = WhyNot(packed)) {
        Refuse(packed, *why);
        return absl::OkStatus();
      }
    }
    if (packed_.empty()) return absl::OkStatus();
    const Settings first(graph_.node(packed_.front().nodes.front()));
    result_.unpacked.group = first.group;
    for (ValueId v = 0; v < graph_.num_values(); ++v) taken_.insert(graph_.name(v));
    for (const Packed& packed : packed_) Declare(packed);
    KV_RETURN_IF_ERROR(one_.Define(builder_, &result_));
    Write();
    return absl::OkStatus();
  }

 private:
  struct Reason {
    NodeId node;
    std::string code, text;
  };

  // Adds the node to its packed tensor. Returns false if the node has no presents, or scales that
  // do not belong to one packed tensor; nothing is lowered then.
  bool Collect(NodeId n) {
    const auto outputs = graph_.outputs(n);
    if (outputs.size() <= Slots::kPresentCache || outputs[Slots::kPresentCache] == kNoValue) {
      return false;
    }
    const ValueId past = PackedPast(graph_, outputs[Slots::kPresentCache]);
    if (past == kNoValue) return false;
    auto at = std::find_if(packed_.begin(), packed_.end(),
                           [&](const Packed& packed) { return packed.past == past; });
    if (at == packed_.end())
      at = packed_.insert(at, Packed{past, kNoValue, kNoValue, kNoValue, {}});
    at->nodes.push_back(n);
    at->present = outputs[Slots::kPresentCache];
    if (outputs.size() <= Slots::kPresentScale || outputs[Slots::kPresentScale] == kNoValue) {
      return true;
    }
    const ValueId scales = PackedPast(graph_, outputs[Slots::kPresentScale]);
    for (const Packed& packed : packed_) {
      const bool own = &packed == &*at;
      if (own ? at->nodes.size() > 1 && packed.scales_past != scales
              : packed.scales_past == scales) {
        return false;  // scales that do not go with one tensor
      }
    }
    at->scales_past = scales;
    at->scales_present = outputs[Slots::kPresentScale];
    return scales != kNoValue;
  }

  std::optional<Reason> WhyNot(const Packed& packed) {
    const Settings all(graph_.node(packed.nodes.front()));
    const Settings first(graph_.node(packed_.front().nodes.front()));
    std::map<int64_t, NodeId> layers;
    for (const NodeId n : packed.nodes) {
      const Settings s(graph_.node(n));
      const auto no = [&](const char* code, std::string text) { return Reason{n, code, text}; };
      if (s.layers != all.layers || s.joins != first.joins || s.layout != all.layout ||
          s.bits != all.bits || s.group != first.group) {
        return no("KV237",
                  "needs the same num_layer, cache_layout, quant_bit and quant_group in "
                  "all layers");
      }
      if (s.layer < 0 || s.layer >= s.layers) {
        return no("KV237", fmt::format("needs a layer_idx below num_layer, found {} of {}", s.layer,
                                       s.layers));
      }
      if (!layers.emplace(s.layer, n).second) {
        return no("KV237",
                  fmt::format("needs each layer written once, found layer {} twice", s.layer));
      }
      if (!ReadOnce(n)) return no("KV237", "needs tensors that the next layer alone reads");
      if (!SameStart(n, packed_.front().nodes.front())) {
        return no("KV237", "needs one start_pos for all layers");
      }
      if (s.layout < 0 || s.layout >= s.layouts()) {
        return no("KV237", fmt::format("needs a cache_layout from 0 to {}, found {}",
                                       s.layouts() - 1, s.layout));
      }
      if (s.joins) {
        if (auto text = one_.Misfit(n); !text.empty()) return no("KV249", text);
      }
      if (auto text = ShapeMisfit(packed, n, s); !text.empty()) return no("KV237", text);
      if (auto text = TypeMisfit(packed, n, s); !text.empty()) return no("KV239", text);
    }
    if (static_cast<int64_t>(layers.size()) != all.layers) {
      return Reason{packed.nodes.back(), "KV237",
                    fmt::format("needs all {} layers of {} written, found {}", all.layers,
                                graph_.name(packed.past), layers.size())};
    }
    return std::nullopt;
  }

  bool SameStart(NodeId a, NodeId b) {
    const ValueId x = graph_.inputs(a)[SlotsOf(a).start], y = graph_.inputs(b)[SlotsOf(b).start];
    if (x == y) return true;
    const auto one = forms_.Elements(x), other = forms_.Elements(y);
    return one && other && *one == *other;
  }

  // Returns true if the chain of layers is the only reader of the node's tensors and presents.
  bool ReadOnce(NodeId n) const {
    for (const int output : {Slots::kPresentCache, Slots::kPresentScale}) {
      const auto outputs = graph_.outputs(n);
      if (static_cast<int>(outputs.size()) <= output || outputs[output] == kNoValue) continue;
      if (graph_.uses(outputs[output]).size() != 1) return false;
    }
    for (const int input : {SlotsOf(n).cache, SlotsOf(n).scale}) {
      const auto inputs = graph_.inputs(n);
      if (static_cast<int>(inputs.size()) <= input || inputs[input] == kNoValue) continue;
      if (graph_.uses(inputs[input]).size() != 1) return false;
    }
    return true;
  }

  // Returns the shape of the new rows, [B, S, Nk, D]; B is 1 where sequences are joined on one
  // axis.
  std::vector<sym::Expr> RowsShape(NodeId n) {
    std::vector<sym::Expr> shape = forms_.Of(graph_.inputs(n)[Slots::kKey]).shape;
    if (SlotsOf(n).joins_sequences()) shape.insert(shape.begin(), forms_.pool().Integer(1));
    return shape;
  }

  // Returns why the tensors do not fit the rows; empty if they do.
  std::string ShapeMisfit(const Packed& packed, NodeId n, const Settings& s) {
    for (const int rows : {Slots::kKey, Slots::kValue}) {
      const sym::Form& form = forms_.Of(graph_.inputs(n)[rows]);
      const size_t rank = s.joins ? 3 : 4;
      const bool known = form.known_rank && form.shape.size() == rank &&
                         form.shape[rank - 2]->kind() == sym::Kind::kInteger &&
                         form.shape[rank - 1]->kind() == sym::Kind::kInteger;
      if (!known || form.shape != forms_.Of(graph_.inputs(n)[Slots::kKey]).shape) {
        return fmt::format("needs rows [{}, Nk, D] with constant Nk and D, keys and values alike",
                           s.joins ? "S" : "B, S");
      }
    }
    const sym::Expr batch = RowsShape(n)[0];
    const bool plain = batch->kind() == sym::Kind::kInteger || batch->kind() == sym::Kind::kDim;
    if (!plain || batch != RowsShape(packed_.front().nodes.front())[0]) {
      return "needs as many sequences in all layers";
    }
    const int64_t heads = RowsShape(n)[2]->value(), size = RowsShape(n)[3]->value();
    if (s.repeat < 1 || s.repeat > std::numeric_limits<int32_t>::max()) return "needs a num_repeat";
    if (s.group < 0 || (s.group > 0 && size % s.group != 0)) {
      return fmt::format("needs groups that divide a head, found {} elements and groups of {}",
                         size, s.group);
    }
    std::string text = PackedMisfit(packed.past, n, s, size, heads);
    if (text.empty() && s.group > 0 && packed.scales_past != kNoValue) {
      text = PackedMisfit(packed.scales_past, n, s, size / s.group, heads);
      if (text.empty() && CapacityOf(packed.scales_past, s) != CapacityOf(packed.past, s)) {
        text = "needs as many slots of scales as of rows";
      }
    }
    return text;
  }

  Slots SlotsOf(NodeId n) const { return Slots::Of(graph_.node(n)); }

  Dim CapacityOf(ValueId packed, const Settings& s) const {
    return (*graph_.type(packed).shape)[PackedLayout::Of(s).slots];
  }

  std::string PackedMisfit(ValueId packed, NodeId n, const Settings& s, int64_t width,
                           int64_t heads) {
    const auto& shape = graph_.type(packed).shape;
    const PackedLayout layout = PackedLayout::Of(s);
    std::vector<std::string> sizes(layout.rank(), "B");
    sizes[layout.layers] = fmt::format("{}", s.layers);
    sizes[layout.roles] = "2";
    sizes[layout.slots] = "M";
    sizes[layout.heads] = fmt::format("{}", heads);
    sizes.back() = fmt::format("{}", width);
    const std::string needs =
        fmt::format("needs {} declared as [{}]", graph_.name(packed), fmt::join(sizes, ", "));
    if (!shape || shape->size() != layout.rank()) return needs;
    const auto is = [&](int axis, int64_t size) { return (*shape)[axis].value == size; };
    if (!is(layout.layers, s.layers) || !is(layout.roles, 2) || !is(layout.heads, heads) ||
        shape->back().value != width || !(*shape)[layout.slots].known()) {
      return needs;
    }
    if (layout.sequences < 0) return {};
    // There must be as many sequences as in a step. If the extent is a symbol, the host ensures
    // that.
    const sym::Expr batch = RowsShape(n)[0];
    const Dim& sequences = (*shape)[layout.sequences];
    const bool fits = !sequences.value ||
                      (batch->kind() == sym::Kind::kInteger && batch->value() == *sequences.value);
    return fits ? std::string() : fmt::format("{}, with the sequences of a step", needs);
  }

  std::string TypeMisfit(const Packed& packed, NodeId n, const Settings& s) {
    const int32_t rows = forms_.ElementType(graph_.inputs(n)[Slots::kKey]);
    const int32_t values = forms_.ElementType(graph_.inputs(n)[Slots::kValue]);
    const int32_t kept = graph_.type(packed.past).elem_type;
    if (s.bits == 0) {
      if (packed.scales_past != kNoValue) return "needs no scales where quant_bit is 0";
      return rows == kept && rows == values ? "" : "needs a cache of the type of its rows";
    }
    if (s.bits != 8) return fmt::format("needs quant_bit 0 or 8, found {}", s.bits);
    const bool all = packed.scales_past != kNoValue && kept == TensorProto::INT8 &&
                     (rows == TensorProto::FLOAT || rows == TensorProto::FLOAT16) &&
                     values == rows && graph_.type(packed.scales_past).elem_type == rows;
    return all ? ""
               : "needs rows and scales of float32, or of float16, and a cache of int8 where it is "
                 "quantised";
  }

  // Adds the refusal at the node that gives a present, where caches are searched, for every tensor.
  void Refuse(const Packed& packed, const Reason& reason) {
    for (const Packed& each : packed_) {
      Finding finding = {reason.code,
                         fmt::format("KeyValueCache: {}", reason.text),
                         {graph_.NodeName(each.nodes.back())},
                         {graph_.name(packed.past)}};
      if (reason.node != each.nodes.back()) {
        finding.nodes.push_back(graph_.NodeName(reason.node));
      }
      result_.refusals.push_back(std::move(finding));
    }
  }

  std::string Free(std::string name) {
    while (!taken_.insert(name).second) name += "_";
    return name;
  }

  struct Part {
    std::string past, present;
  };

  // Adds inputs, outputs and caches for the parts of a packed tensor, by layer and role.
  void Declare(const Packed& packed) {
    for (const NodeId n : packed.nodes) {
      const Settings s(graph_.node(n));
      const PackedLayout layout = PackedLayout::Of(s);
      for (int64_t role = 0; role < 2; ++role) {
        const std::string suffix = fmt::format(".{}.{}", s.layer, kRoles[role]);
        Part part{Free(graph_.name(packed.past) + suffix),
                  Free(graph_.name(packed.present) + suffix)};
        UnpackedCache cache;
        cache.input = part.past;
        cache.source = SourceOf(packed.past, packed.present, layout, s.layer, role);
        if (s.group > 0) {
          cache.scales = SourceOf(packed.scales_past, packed.scales_present, layout, s.layer, role);
        }
        result_.unpacked.caches.push_back(std::move(cache));
        inputs_[packed.past].push_back(ValueOf(packed, n, s, part.past));
        outputs_[packed.present].push_back(ValueOf(packed, n, s, part.present));
        parts_[n].push_back(std::move(part));
      }
    }
  }

  SourceCache SourceOf(ValueId past, ValueId present, const PackedLayout& layout, int64_t layer,
                       int64_t role) const {
    return {graph_.name(past),          graph_.name(present), UpdateKind::kFused,
            layout.source_letters(),    layout.slots,         false,
            layout.Selects(layer, role)};
  }

  onnx::ValueInfoProto ValueOf(const Packed& packed, NodeId n, const Settings& s,
                               const std::string& name) {
    onnx::ValueInfoProto value;
    value.set_name(name);
    auto& type = *value.mutable_type()->mutable_tensor_type();
    type.set_elem_type(forms_.ElementType(graph_.inputs(n)[Slots::kKey]));
    for (const char letter : PackedLayout::Of(s).letters) {
      auto& dim = *type.mutable_shape()->add_dim();
      const sym::Expr rows = RowsShape(n)[letter == 'B' ? 0 : letter == 'N' ? 2 : 3];
      if (letter == 'S') {
        const Dim slots = CapacityOf(packed.past, s);
        if (slots.value) dim.set_dim_value(*slots.value);
        if (!slots.param.empty()) dim.set_dim_param(slots.param);
      } else if (rows->kind() == sym::Kind::kInteger) {
        dim.set_dim_value(rows->value());
      } else {
        dim.set_dim_param(rows->dim().name());
      }
    }
    return value;
  }

  // Adds the nodes that replace a node.
  void Emit(NodeId n, int number) {
    const Settings s(graph_.node(n));
    const std::string scope = fmt::format("unpacked.{}", number);
    builder_.set_scope(scope);
    result_.origins.push_back({fmt::format("/kvlift/{}/", scope), graph_.NodeName(n)});
    const auto in = [&](int k) { return graph_.name(graph_.inputs(n)[k]); };
    const std::string start =
        builder_.Add("Reshape", {in(SlotsOf(n).start), builder_.Int64s({1})}, "start");
    const std::string length = builder_.Extent(in(Slots::kKey), s.joins ? 0 : 1, "length");
    const std::string end = builder_.Add("Add", {start, length}, "end");
    for (int role = 0; role < 2; ++role) {
      const auto outputs = graph_.outputs(n);
      std::string rows = in(role);
      if (s.joins) rows = builder_.Add("Unsqueeze", {rows, builder_.Int64s({0})}, "sequence");
      rows = Written(s, rows, parts_.at(n)[static_cast<size_t>(role)], start, end);
      if (outputs[role] == kNoValue) continue;
      Repeated(rows, s, RowsShape(n)[2]->value(), RowsShape(n)[3]->value(),
               graph_.name(outputs[role]));
    }
  }

  std::string HeadsFirst(const std::string& value, const Settings& s, const char* role) {
    if (!PackedLayout::Of(s).heads_first()) return value;
    return builder_.Add("Transpose", {value}, role,
                        {MakeAttribute("perm", std::vector<int64_t>{0, 2, 1, 3})});
  }

  // Writes the rows into the part. Returns all rows so far, [B, T, Nk, D].
  std::string Written(const Settings& s, const std::string& rows, const Part& part,
                      const std::string& start, const std::string& end) {
    const int64_t axis = PackedLayout::Of(s).part_axis();
    const std::string axes = builder_.Int64s({axis}), zero = builder_.Int64s({0});
    const std::string last = builder_.Int64s({std::numeric_limits<int64_t>::max()});
    const std::string head = builder_.Add("Slice", {part.past, zero, start, axes}, "before");
    const std::string tail = builder_.Add("Slice", {part.past, end, last, axes}, "behind");
    builder_.AddNamed("Concat", {head, HeadsFirst(rows, s, "rows"), tail}, "present", part.present,
                      {MakeAttribute("axis", axis)});
    return HeadsFirst(builder_.Add("Slice", {part.present, zero, end, axes}, "all"), s, "all_rows");
  }

  // Makes the value of a result: each head `repeat` times, without the batch axis where sequences
  // are joined.
  void Repeated(const std::string& rows, const Settings& s, int64_t heads, int64_t size,
                const std::string& output) {
    if (s.repeat == 1 && s.joins) {
      return builder_.AddNamed("Squeeze", {rows, builder_.Int64s({0})}, "heads", output);
    }
    if (s.repeat == 1) return builder_.AddNamed("Identity", {rows}, "heads", output);
    const std::string apart = builder_.Add("Unsqueeze", {rows, builder_.Int64s({3})}, "apart");
    const std::string copies =
        builder_.Add("Expand", {apart, builder_.Int64s({1, 1, 1, s.repeat, 1})}, "copies");
    std::vector<int64_t> shape = {0, 0, heads * s.repeat, size};
    if (s.joins) shape = {-1, heads * s.repeat, size};
    builder_.AddNamed("Reshape", {copies, builder_.Int64s(shape)}, "heads", output);
  }

  void Write() {
    onnx::ModelProto model = graph_.model();
    onnx::GraphProto& graph = *model.mutable_graph();
    graph.clear_node();
    for (NodeProto& node : builder_.TakeNodes()) *graph.add_node() = std::move(node);
    int number = 0;
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (parts_.count(n) == 0) {
        *graph.add_node() = graph_.node(n);
        continue;
      }
      Emit(n, number++);
      for (NodeProto& node : builder_.TakeNodes()) *graph.add_node() = std::move(node);
    }
    for (TensorProto& tensor : builder_.TakeInitializers()) {
      *graph.add_initializer() = std::move(tensor);
    }
    DropImports(&model);
    Replace(inputs_, graph.mutable_input());
    Replace(outputs_, graph.mutable_output());
    result_.model = std::move(model);
  }

  // Removes imports of operator sets that no node needs.
  static void DropImports(onnx::ModelProto* model) {
    const auto& nodes = model->graph().node();
    auto& imports = *model->mutable_opset_import();
    const auto unused = [&](const onnx::OperatorSetIdProto& import) {
      if (!HasKeyValueCache(import.domain())) return false;
      return std::none_of(nodes.begin(), nodes.end(), [&](const NodeProto& node) {
        const bool has_body = std::any_of(node.attribute().begin(), node.attribute().end(),
                                          [](const auto& a) { return a.has_g(); });
        return has_body || node.domain() == import.domain();
      });
    };
    imports.erase(std::remove_if(imports.begin(), imports.end(), unused), imports.end());
  }

  using Parts = std::map<ValueId, std::vector<onnx::ValueInfoProto>>;

  // Replaces each packed tensor by its parts, and removes its scales and dropped inputs.
  void Replace(const Parts& parts,
               google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>* values) {
    google::protobuf::RepeatedPtrField<onnx::ValueInfoProto> kept;
    for (onnx::ValueInfoProto& value : *values) {
      const ValueId v = graph_.Find(value.name());
      if (const auto at = parts.find(v); at != parts.end()) {
        for (const onnx::ValueInfoProto& part : at->second) *kept.Add() = part;
        continue;
      }
      const bool scales = std::any_of(packed_.begin(), packed_.end(), [&](const Packed& packed) {
        return v != kNoValue && (v == packed.scales_past || v == packed.scales_present);
      });
      if (!scales && !one_.IsDropped(v)) *kept.Add() = std::move(value);
    }
    values->Swap(&kept);
  }

  const Graph& graph_;
  sym::Forms forms_;
  OneSequence one_;
  NodeBuilder builder_;
  Normalised& result_;
  std::vector<Packed> packed_;
  Parts inputs_, outputs_;  // by packed tensor
  std::map<NodeId, std::vector<Part>> parts_;
  absl::flat_hash_set<std::string> taken_;
};

}  // namespace

const UnpackedCache* Unpacked::Find(const std::string& input) const {
  const auto at = std::find_if(caches.begin(), caches.end(),
                               [&](const UnpackedCache& cache) { return cache.input == input; });
  return at == caches.end() ? nullptr : &*at;
}

ValueId PackedPast(const Graph& graph, ValueId present) {
  ValueId v = present;
  for (NodeId n = graph.producer(v); n != kNoNode; n = graph.producer(v)) {
    const int output = graph.output_index(v);
    if (!IsKeyValueCache(graph.node(n)) || output < Slots::kPresentCache) return kNoValue;
    const auto input = static_cast<size_t>(Slots::Of(graph.node(n)).Written(output));
    if (graph.inputs(n).size() <= input || graph.inputs(n)[input] == kNoValue) return kNoValue;
    v = graph.inputs(n)[input];
  }
  return graph.is_graph_input(v) ? v : kNoValue;
}

absl::Status UnpackCaches(Normalised* result) {
  const auto& nodes = result->model.graph().node();
  if (std::none_of(nodes.begin(), nodes.end(), IsKeyValueCache)) return absl::OkStatus();
  KV_RETURN_IF_ERROR(RemoveIdleNodes(&result->model));
  KV_ASSIGN_OR_RETURN(const Graph graph,
                      Graph::Build(std::make_shared<const onnx::ModelProto>(result->model)));
  return Unpacker(graph, result).Run();
}

void NamePackedScales(const Unpacked& unpacked, Manifest* manifest) {
  for (ManifestCache& values : manifest->caches) {
    const UnpackedCache* packed = unpacked.Find(values.input);
    if (packed == nullptr || !values.quantization) continue;
    for (ManifestCache& scales : manifest->caches) {
      if (scales.id != values.quantization->scales) continue;
      const UpdateKind kind = scales.source.kind;
      scales.source = packed->scales;
      scales.source.kind = kind;
    }
    values.quantization.reset();
  }
  manifest->quantization.reset();
}

}  // namespace kvlift
