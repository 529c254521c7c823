#include "rewrite/lower/key_value_cache.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "base/status.h"
#include "fmt/format.h"
#include "ir/subgraphs.h"
#include "rewrite/lower/cache_unpacker.h"
#include "rewrite/lower/dead_nodes.h"

namespace kvlift {
namespace {

using onnx::NodeProto;
using onnx::TensorProto;
using CacheSlots = KeyValueCacheSlots;

constexpr const char* kRoleNames[] = {"key", "value"};

}  // namespace

namespace internal {

absl::Status Unpacker::Run() {
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
  taken_ = NamesIn(graph_.proto());
  for (const Packed& packed : packed_) Declare(packed);
  KV_RETURN_IF_ERROR(one_.Define(builder_, &result_));
  Write();
  return absl::OkStatus();
}

// Adds inputs, outputs and caches for the parts of a packed tensor, by layer and role.
void Unpacker::Declare(const Packed& packed) {
  for (const NodeId n : packed.nodes) {
    const Settings s(graph_.node(n));
    const PackedLayout layout = PackedLayout::Of(s);
    for (int64_t role = 0; role < 2; ++role) {
      const std::string suffix = fmt::format(".{}.{}", s.layer, kRoleNames[role]);
      Part part{FreeName(graph_.name(packed.past) + suffix, &taken_),
                FreeName(graph_.name(packed.present) + suffix, &taken_)};
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

SourceCache Unpacker::SourceOf(ValueId past, ValueId present, const PackedLayout& layout,
                               int64_t layer, int64_t role) const {
  return {graph_.name(past),          graph_.name(present), UpdateKind::kFused,
          layout.source_letters(),    layout.slots,         false,
          layout.Selects(layer, role)};
}

onnx::ValueInfoProto Unpacker::ValueOf(const Packed& packed, NodeId n, const Settings& s,
                                       const std::string& name) {
  onnx::ValueInfoProto value;
  value.set_name(name);
  auto& type = *value.mutable_type()->mutable_tensor_type();
  type.set_elem_type(forms_.ElementType(graph_.inputs(n)[CacheSlots::kKey]));
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
void Unpacker::Emit(NodeId n, int number) {
  const Settings s(graph_.node(n));
  const std::string scope = fmt::format("unpacked.{}", number);
  builder_.set_scope(scope);
  result_.origins.push_back({fmt::format("/kvlift/{}/", scope), graph_.NodeName(n)});
  const auto in = [&](int k) { return graph_.name(graph_.inputs(n)[k]); };
  const std::string start =
      builder_.Add("Reshape", {in(SlotsOf(n).start), builder_.Int64s({1})}, "start");
  const std::string length = builder_.Extent(in(CacheSlots::kKey), s.joins ? 0 : 1, "length");
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

std::string Unpacker::HeadsFirst(const std::string& value, const Settings& s, const char* role) {
  if (!PackedLayout::Of(s).heads_first()) return value;
  return builder_.Add("Transpose", {value}, role,
                      {MakeAttribute("perm", std::vector<int64_t>{0, 2, 1, 3})});
}

// Writes the rows into the part. Returns all rows so far, [B, T, Nk, D].
std::string Unpacker::Written(const Settings& s, const std::string& rows, const Part& part,
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
void Unpacker::Repeated(const std::string& rows, const Settings& s, int64_t heads, int64_t size,
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

void Unpacker::Write() {
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
void Unpacker::DropImports(onnx::ModelProto* model) {
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

// Replaces each packed tensor by its parts, and removes its scales and dropped inputs.
void Unpacker::Replace(const Parts& parts,
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
}  // namespace internal

const UnpackedCache* Unpacked::Find(const std::string& input) const {
  const auto at = std::find_if(caches.begin(), caches.end(),
                               [&](const UnpackedCache& cache) { return cache.input == input; });
  return at == caches.end() ? nullptr : &*at;
}

ValueId PackedPast(const Graph& graph, ValueId present) {
  ValueId v = present;
  for (NodeId n = graph.producer(v); n != kNoNode; n = graph.producer(v)) {
    const int output = graph.output_index(v);
    if (!IsKeyValueCache(graph.node(n)) || output < CacheSlots::kPresentCache) return kNoValue;
    const auto input = static_cast<size_t>(CacheSlots::Of(graph.node(n)).Written(output));
    if (graph.inputs(n).size() <= input || graph.inputs(n)[input] == kNoValue) return kNoValue;
    v = graph.inputs(n)[input];
  }
  return graph.is_graph_input(v) ? v : kNoValue;
}

absl::Status UnpackCaches(Normalised* result) {
  const auto& nodes = result->model.graph().node();
  if (std::none_of(nodes.begin(), nodes.end(), IsKeyValueCache)) return absl::OkStatus();
  KV_RETURN_IF_ERROR(RemoveDeadNodes(&result->model));
  KV_ASSIGN_OR_RETURN(const Graph graph,
                      Graph::Build(std::make_shared<const onnx::ModelProto>(result->model)));
  return internal::Unpacker(graph, result).Run();
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
