#include "rewrite/emit/pack_caches.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "ir/graph.h"
#include "ir/node_builder.h"
#include "ir/patch.h"
#include "ir/subgraphs.h"
#include "rewrite/lower/dead_nodes.h"

namespace kvlift {
namespace {

constexpr int64_t kRoles = 2;  // keys and values

struct Part {
  const ManifestCache* cache = nullptr;
  const EmittedCache* made = nullptr;
  int64_t layer = 0, place = 0;  // place: of the part on the sequence axis
  NodeId scatter = kNoNode;
  ValueId past = kNoValue, present = kNoValue;
};

// The parts of one tensor, in the order in which they are written.
struct Pack {
  std::string past, present;
  std::vector<Part> parts;
  int64_t axis = 0;  // the sequence axis of a part

  const ManifestCache& first() const { return *parts.front().cache; }
  int64_t layers() const { return static_cast<int64_t>(parts.size()) / kRoles; }
};

class Packer {
 public:
  Packer(const Graph& graph, Emission* emission)
      : graph_(graph),
        emission_(*emission),
        manifest_(emission->manifest),
        builder_(graph),
        taken_(NamesIn(graph.proto())) {
    for (size_t k = 0; k < manifest_.caches.size(); ++k) {
      const ManifestCache& cache = manifest_.caches[k];
      const std::vector<Select>& select = cache.source.select;
      if (select.size() != kRoles) continue;
      Part part{&cache, &emission_.caches[k], select[0].index};
      part.place = part.layer * kRoles + select[1].index;
      part.past = graph.Find(cache.input);
      part.present = graph.Find(cache.output);
      part.scatter = graph.producer(part.present);
      Pack& pack = packs_[cache.source.input];
      pack.axis = cache.axis;
      pack.parts.push_back(part);
    }
    for (auto& [source, pack] : packs_) {
      std::sort(pack.parts.begin(), pack.parts.end(),
                [](const Part& a, const Part& b) { return a.scatter < b.scatter; });
    }
  }

  absl::StatusOr<onnx::ModelProto> Rewrite() {
    for (auto& [source, pack] : packs_) Emit(source, &pack);
    patch_.remove_dead = false;
    patch_.new_nodes = builder_.TakeNodes();
    patch_.new_initializers = builder_.TakeInitializers();
    KV_ASSIGN_OR_RETURN(onnx::ModelProto model, Apply(graph_, patch_));
    ReplaceOutputs(model.mutable_graph());
    KV_RETURN_IF_ERROR(RemoveDeadNodes(&model));
    Describe();
    return model;
  }

 private:
  // A number of rows as an int64 [1] value; `known` is set if the capacity is a constant.
  struct Rows {
    std::optional<int64_t> known;
    std::string name;
  };

  Rows Times(const Rows& rows, int64_t factor, const char* role) {
    if (rows.known || factor == 0) {
      const int64_t value = factor * rows.known.value_or(0);
      return {value, builder_.Int64s({value})};
    }
    if (factor == 1) return rows;
    return {std::nullopt, builder_.Add("Mul", {rows.name, builder_.Int64s({factor})}, role)};
  }

  void Emit(const std::string& source, Pack* pack) {
    pack->past = FreeName(source, &taken_);
    pack->present = FreeName(pack->first().source.output, &taken_);
    builder_.set_scope("packed");
    Declare(*pack);
    capacity_ = CapacityOf(*pack);
    const auto count = static_cast<int64_t>(pack->parts.size());
    std::string rows = builder_.Add("Reshape", {pack->past, FlatShape(*pack)}, "buffer");
    const std::string before = rows;
    std::vector<std::string> after;  // the buffer behind each part's write
    for (const Part& part : pack->parts) {
      builder_.set_scope(fmt::format("layers.{}/{}", part.cache->layer, WordOf(part.cache->role)));
      const std::string index = Index(*pack, part, count);
      rows = builder_.Add("TensorScatter", {rows, part.made->update, index}, "TensorScatter",
                          {MakeAttribute("axis", pack->axis)});
      after.push_back(rows);
      patch_.remove_nodes.insert(part.scatter);
      patch_.remove_inputs.insert(graph_.name(part.past));
    }
    for (size_t k = 0; k < pack->parts.size(); ++k) {
      const Part& part = pack->parts[k];
      builder_.set_scope(fmt::format("layers.{}/{}", part.cache->layer, WordOf(part.cache->role)));
      const std::string& buffer = after[LastOfLayer(*pack, k)];
      Read(part, buffer);
      patch_.replace_uses[graph_.name(part.past)] = View(*pack, part, before, "past");
      builder_.AddNamed("Identity", {View(*pack, part, buffer, "rows")}, "present",
                        graph_.name(part.present));
    }
    builder_.set_scope("packed");
    builder_.AddNamed("Reshape", {rows, PackedShape(*pack)}, "present", pack->present);
  }

  Rows CapacityOf(const Pack& pack) {
    const ManifestCache& first = pack.first();
    const Dim& dim = (*graph_.type(pack.parts.front().past).shape)[first.axis];
    if (dim.value) return {dim.value, builder_.Int64s({*dim.value})};
    return {std::nullopt, builder_.Extent(pack.past, pack.axis + 2, "capacity")};
  }

  // Return shapes for Reshape that copy the extents in front of the rows.
  std::string FlatShape(const Pack& pack) { return Shape(pack, {-1}); }
  std::string PackedShape(const Pack& pack) { return Shape(pack, {pack.layers(), kRoles, -1}); }

  std::string Shape(const Pack& pack, const std::vector<int64_t>& rows) {
    std::vector<int64_t> shape(static_cast<size_t>(pack.axis), 0);
    shape.insert(shape.end(), rows.begin(), rows.end());
    const auto& dims = *graph_.type(pack.parts.front().past).shape;
    for (size_t k = static_cast<size_t>(pack.axis) + 1; k < dims.size(); ++k) {
      shape.push_back(*dims[k].value);
    }
    return builder_.Int64s(shape);
  }

  // Returns a slot behind the buffer at which no write fits, not even one of 0 rows.
  std::string Behind(int64_t count) {
    const Rows total = Times(capacity_, count, "total");
    if (total.known) return builder_.Int64s({*total.known + 1});
    return builder_.Add("Add", {total.name, builder_.Int64s({1})}, "behind");
  }

  // Returns the part's write index in the buffer. An index out of the part becomes one out of the
  // buffer, since it would write into another part.
  std::string Index(const Pack& pack, const Part& part, int64_t count) {
    const std::string& write = part.made->write_indices;
    std::string& inside = inside_[{write, capacity_.name, count}];
    if (inside.empty()) {
      builder_.set_scope("packed");
      const std::string length = builder_.Extent(part.made->update, pack.axis, "length");
      const std::string end = builder_.Add("Add", {write, length}, "end");
      const std::string fits = builder_.Add(
          "And",
          {builder_.Add("GreaterOrEqual", {write, builder_.Int64s({0})}, "not_negative"),
           builder_.Add("LessOrEqual", {end, capacity_.name}, "not_behind")},
          "fits");
      inside = builder_.Add("Where", {fits, write, Behind(count)}, "write_indices");
      builder_.set_scope(fmt::format("layers.{}/{}", part.cache->layer, WordOf(part.cache->role)));
    }
    if (part.place == 0) return inside;
    return builder_.Add("Add", {inside, Times(capacity_, part.place, "offset").name},
                        "write_indices");
  }

  // Returns the last part of the same layer. A reader of one part may run after the write of the
  // layer's other part: one node of the source needs the rows of both before it gives either, and
  // neither write changes the other's rows.
  static size_t LastOfLayer(const Pack& pack, size_t part) {
    size_t last = part;
    while (last + 1 < pack.parts.size() && pack.parts[last + 1].layer == pack.parts[part].layer) {
      ++last;
    }
    return last;
  }

  // Makes the views of the first rows of a part read the buffer from the part's offset on.
  void Read(const Part& part, const std::string& buffer) {
    const Rows offset = Times(capacity_, part.place, "offset");
    for (const Use& use : graph_.uses(part.present)) {
      if (use.kind != Use::Kind::kNodeInput) continue;
      const RowsView* view = part.made->View(graph_.node(use.node).output(0));
      if (view == nullptr || !view->counted) continue;
      const std::string& end = graph_.name(graph_.inputs(use.node)[2]);
      const std::string inside = builder_.Add("Min", {end, capacity_.name}, "visible_length");
      const std::string stop =
          part.place == 0 ? inside : builder_.Add("Add", {inside, offset.name}, "stop");
      patch_.replace_inputs[{use.node, 0}] = buffer;
      patch_.replace_inputs[{use.node, 1}] = offset.name;
      patch_.replace_inputs[{use.node, 2}] = stop;
    }
  }

  std::string View(const Pack& pack, const Part& part, const std::string& buffer,
                   const char* role) {
    const Rows begin = Times(capacity_, part.place, "offset");
    const Rows end = Times(capacity_, part.place + 1, "offset");
    return builder_.Add("Slice", {buffer, begin.name, end.name, builder_.Int64s({pack.axis})},
                        role);
  }

  onnx::ValueInfoProto Packed(const Pack& pack, const std::string& of,
                              const std::string& name) const {
    const auto& graph = graph_.proto();
    onnx::ValueInfoProto value;
    for (const auto* list : {&graph.input(), &graph.output()}) {
      for (const onnx::ValueInfoProto& info : *list) {
        if (info.name() == of) value = info;
      }
    }
    value.set_name(name);
    auto& shape = *value.mutable_type()->mutable_tensor_type()->mutable_shape();
    const onnx::TensorShapeProto part = shape;
    shape.clear_dim();
    for (int k = 0; k < part.dim_size(); ++k) {
      if (k == pack.axis) {
        shape.add_dim()->set_dim_value(pack.layers());
        shape.add_dim()->set_dim_value(kRoles);
      }
      *shape.add_dim() = part.dim(k);
    }
    return value;
  }

  void Declare(const Pack& pack) {
    patch_.new_inputs.push_back(Packed(pack, pack.first().input, pack.past));
    outputs_.push_back(Packed(pack, pack.first().output, pack.present));
  }

  void ReplaceOutputs(onnx::GraphProto* graph) const {
    absl::flat_hash_set<std::string> parts;
    for (const auto& [source, pack] : packs_) {
      for (const Part& part : pack.parts) parts.insert(part.cache->output);
    }
    auto& outputs = *graph->mutable_output();
    outputs.erase(std::remove_if(outputs.begin(), outputs.end(),
                                 [&](const auto& value) { return parts.contains(value.name()); }),
                  outputs.end());
    for (const onnx::ValueInfoProto& value : outputs_) *graph->add_output() = value;
  }

  // Returns the layout with L (layers) and K (keys and values) inserted at these axes.
  static std::string Letters(std::string layout, size_t layers, size_t roles) {
    for (const auto& [at, letter] : std::map<size_t, char>{{layers, 'L'}, {roles, 'K'}}) {
      layout.insert(std::min(at, layout.size()), 1, letter);
    }
    return layout;
  }

  ManifestCache Whole(const Pack& pack) const {
    ManifestCache whole = pack.first();
    const std::vector<Select> select = std::move(whole.source.select);
    whole.source.select.clear();
    whole.id = pack.past;
    whole.layer = 0;
    whole.role = HoldsScales(whole.role) ? CacheRole::kKeyValueScale : CacheRole::kKeyValue;
    whole.input = pack.past;
    whole.output = pack.present;
    const auto rows = static_cast<size_t>(pack.axis);
    whole.layout = Letters(whole.layout, rows, rows + 1);
    whole.axis = pack.axis + 2;
    whole.source.layout = Letters(whole.source.layout, static_cast<size_t>(select[0].axis),
                                  static_cast<size_t>(select[1].axis));
    for (const Part& part : pack.parts) {
      if (part.cache->alias != CacheAlias::kSafe) whole.alias = part.cache->alias;
      for (const std::string& reader : part.cache->readers) {
        if (part.cache != &pack.first()) whole.readers.push_back(reader);
      }
    }
    return whole;
  }

  void Describe() {
    std::vector<ManifestCache> caches;
    absl::flat_hash_set<std::string> gone;
    for (const auto& [source, pack] : packs_) {
      for (const Part& part : pack.parts) gone.insert(part.cache->id);
      caches.push_back(Whole(pack));
    }
    std::vector<EmittedCache> made(caches.size());  // other nodes than a TensorScatter write them
    const auto is_gone = [&](const auto& entry) {
      const auto* cache = AsCache(entry);
      return cache != nullptr && gone.contains(cache->id);
    };
    std::erase_if(manifest_.inputs, is_gone);
    std::erase_if(manifest_.outputs, is_gone);
    for (const ManifestCache& cache : caches) {
      manifest_.inputs.push_back({cache.input, CacheInput{cache.id}});
      manifest_.outputs.push_back({cache.output, CacheOutput{cache.id}});
    }
    for (size_t k = 0; k < manifest_.caches.size(); ++k) {
      if (gone.contains(manifest_.caches[k].id)) continue;
      caches.push_back(manifest_.caches[k]);
      made.push_back(emission_.caches[k]);
    }
    packs_.clear();
    manifest_.caches = std::move(caches);
    emission_.caches = std::move(made);
  }

  const Graph& graph_;
  Emission& emission_;
  Manifest& manifest_;
  NodeBuilder builder_;
  Patch patch_;
  absl::flat_hash_set<std::string> taken_;
  std::map<std::string, Pack> packs_;  // by the name of the source's tensor
  std::vector<onnx::ValueInfoProto> outputs_;
  Rows capacity_;  // of the tensor that Emit makes
  // Write indices inside a part, by the source's index, the capacity and the number of parts.
  std::map<std::tuple<std::string, std::string, int64_t>, std::string> inside_;
};

}  // namespace

absl::Status PackCaches(Emission* emission) {
  KV_ASSIGN_OR_RETURN(const Graph graph,
                      Graph::Build(std::make_shared<const onnx::ModelProto>(emission->model)));
  Packer packer(graph, emission);
  KV_ASSIGN_OR_RETURN(emission->model, packer.Rewrite());
  return absl::OkStatus();
}

}  // namespace kvlift
