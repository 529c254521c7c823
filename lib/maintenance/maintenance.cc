#include "maintenance/maintenance.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/coded.h"
#include "base/status.h"
#include "contract/layout.h"
#include "fmt/format.h"
#include "ir/node_builder.h"

namespace kvlift {
namespace {

constexpr char kKeep[] = "keep_indices", kBeam[] = "beam_indices";
constexpr int64_t kOpset = 24, kIrVersion = 12;  // of TensorScatter; IR 12 came with opset 24

absl::Status Refusal(std::string_view text) {
  return Coded("KV234", absl::FailedPreconditionError(std::string(text)));
}

onnx::AttributeProto Axis(int64_t axis) { return MakeAttribute("axis", axis); }

// Letters in comments: B sequences, L the product of the other extents in front of the slots
// (heads), M slots, K kept slots.
class CompanionBuilder {
 public:
  CompanionBuilder(const Graph& source, const Manifest& manifest, const MaintenanceOptions& options)
      : source_(source), manifest_(manifest), options_(options) {}

  absl::StatusOr<Companion> Build() {
    KV_RETURN_IF_ERROR(AddInterface());
    KV_ASSIGN_OR_RETURN(const Graph empty,
                        Graph::Build(std::make_shared<const onnx::ModelProto>(out_.model)));
    nodes_ = std::make_unique<NodeBuilder>(empty);
    for (const ManifestCache& cache : manifest_.caches) AddCache(cache);
    auto* graph = out_.model.mutable_graph();
    for (auto& tensor : nodes_->TakeInitializers()) *graph->add_initializer() = std::move(tensor);
    for (auto& node : nodes_->TakeNodes()) *graph->add_node() = std::move(node);
    for (const ManifestCache& cache : manifest_.caches) {
      *graph->add_output() = Declaration(cache.output, TypeOf(cache));
    }
    FillManifest();
    return std::move(out_);
  }

 private:
  const TensorType& TypeOf(const ManifestCache& cache) const {
    return source_.type(source_.Find(cache.input));
  }

  absl::Status CheckCache(const ManifestCache& cache) const {
    const ValueId v = source_.Find(cache.input);
    const auto axes = AxesOfLayout(cache.layout);
    if (cache.grows || v == kNoValue || !source_.type(v).shape) {
      return Refusal(
          fmt::format("needs a cache of fixed capacity and known shape, found {}", cache.input));
    }
    const auto rank = static_cast<int64_t>(source_.type(v).shape->size());
    const bool fits = static_cast<int64_t>(axes.size()) == rank && rank > 1 && axes[0][0] == 'B';
    if (!fits || cache.axis < 1 || cache.axis >= rank) {
      return Refusal(fmt::format("needs sequences on the first axis, found {} of layout {}",
                                 cache.input, cache.layout));
    }
    return absl::OkStatus();
  }

  absl::Status AddInterface() {
    out_.model.set_ir_version(kIrVersion);
    out_.model.set_producer_name("kvlift");
    out_.model.add_opset_import()->set_version(kOpset);
    auto* graph = out_.model.mutable_graph();
    graph->set_name("maintenance");
    if (manifest_.caches.empty()) return Refusal("needs caches, found none in the manifest");
    Dim batch{std::nullopt, "batch"};
    std::set<std::string> taken = {"batch"};
    for (const ManifestCache& cache : manifest_.caches) {
      KV_RETURN_IF_ERROR(CheckCache(cache));
      if (cache.input == kKeep || cache.input == kBeam || cache.output == kKeep ||
          cache.output == kBeam) {
        return Refusal(fmt::format("{} and {} are names of its own", kKeep, kBeam));
      }
      const TensorType& type = TypeOf(cache);
      if (AxesOfLayout(cache.layout)[0] == "B" && (*type.shape)[0].known())
        batch = (*type.shape)[0];
      for (const Dim& dim : *type.shape) taken.insert(dim.param);
      *graph->add_input() = Declaration(cache.input, type);
    }
    Dim kept{std::nullopt, "kept_slots"};
    while (taken.contains(kept.param)) kept.param += "_";
    const int32_t int64 = onnx::TensorProto::INT64;
    if (options_.keep) *graph->add_input() = Declaration(kKeep, {int64, {{batch, kept}}});
    if (options_.beam) *graph->add_input() = Declaration(kBeam, {int64, {{batch}}});
    return absl::OkStatus();
  }

  // Returns a key that only caches of one shape have; empty if an extent is not known.
  std::string KeyOf(const ManifestCache& cache) const {
    std::string key = fmt::format("{}", cache.axis);
    for (const Dim& dim : *TypeOf(cache).shape) {
      if (!dim.known()) return {};
      key += dim.value ? fmt::format(",{}", *dim.value) : fmt::format(",'{}'", dim.param);
    }
    return key;
  }

  // Names of the int64 values that caches of one shape share.
  struct Shared {
    std::string front;   // [axis]: extents in front of the slots
    std::string behind;  // [rank - axis - 1]; empty if the slots are last
    std::string zeros;   // [first extent]: write indices
    std::string rows;    // [B, L, K]: places among the B*L*M rows of all sequences
    std::string kept;    // [..]: the shape of the rows that are kept
  };

  void AddCache(const ManifestCache& cache) {
    const std::string key = KeyOf(cache);
    const auto known = shared_.find(key);
    Shared own;
    if (key.empty() || known == shared_.end()) own = Share(cache);
    if (!key.empty()) shared_.try_emplace(key, own);
    const Shared& shared = key.empty() ? own : shared_.at(key);
    nodes_->set_scope(fmt::format("caches.{}", cache.id));
    const std::string moved = options_.keep ? Kept(cache, shared) : Reordered(cache);
    nodes_->AddNamed("TensorScatter", {cache.input, moved, shared.zeros}, "write", cache.output,
                     {Axis(cache.axis)});
  }

  std::string Extents(const std::string& value, int64_t start, int64_t end, std::string_view role) {
    return nodes_->Add("Shape", {value}, role,
                       {MakeAttribute("start", start), MakeAttribute("end", end)});
  }

  // Returns the scalar of a vector with one element.
  std::string Single(const std::string& value, std::string_view role) {
    return nodes_->Add("Squeeze", {value, nodes_->Int64s({0})}, role);
  }

  // Returns 0 .. n-1 for a scalar n.
  std::string UpTo(const std::string& n, std::string_view role) {
    return nodes_->Add("Range", {nodes_->Int64(0), n, nodes_->Int64(1)}, role);
  }

  std::string Batch() { return Extents(options_.beam ? kBeam : kKeep, 0, 1, "batch"); }

  // Returns, as int64 [B], the sequence that each one gets its rows from. The Gather makes an index
  // outside the batch an error.
  std::string Sequences() {
    const std::string all = UpTo(Single(Batch(), "sequences"), "each");
    return options_.beam ? nodes_->Add("Gather", {all, kBeam}, "chosen", {Axis(0)}) : all;
  }

  Shared Share(const ManifestCache& cache) {
    nodes_->set_scope("shared");
    const auto rank = static_cast<int64_t>(TypeOf(cache).shape->size());
    Shared s;
    s.zeros = nodes_->Add("ConstantOfShape", {Extents(cache.input, 0, 1, "first")}, "zeros",
                          {ZeroOfInt64()});
    if (!options_.keep) return s;
    s.front = Extents(cache.input, 0, cache.axis, "front");
    if (cache.axis + 1 < rank) s.behind = Extents(cache.input, cache.axis + 1, rank, "behind");
    const std::string count = Extents(kKeep, 1, 2, "count");
    NodeBuilder::Inputs kept = {s.front, count};
    if (!s.behind.empty()) kept.push_back(s.behind);
    s.kept = nodes_->Add("Concat", kept, "kept", {Axis(0)});
    s.rows = Rows(cache, s.front);
    return s;
  }

  static onnx::AttributeProto ZeroOfInt64() {
    onnx::AttributeProto attribute;
    attribute.set_name("value");
    attribute.set_type(onnx::AttributeProto::TENSOR);
    attribute.mutable_t()->set_data_type(onnx::TensorProto::INT64);
    attribute.mutable_t()->add_dims(1);
    attribute.mutable_t()->add_int64_data(0);
    return attribute;
  }

  // Returns (sequence * L + l) * M + slot, int64 [B, L, K].
  std::string Rows(const ManifestCache& cache, const std::string& front) {
    const std::string slots =
        Single(Extents(cache.input, cache.axis, cache.axis + 1, "slots"), "M");
    const std::string kept =
        nodes_->Add("Gather", {UpTo(slots, "each_slot"), kKeep}, "slot", {Axis(0)});
    const std::string total =
        nodes_->Add("ReduceProd", {front}, "rows", {MakeAttribute("keepdims", int64_t{0})});
    const std::string heads = nodes_->Add("Div", {total, Single(Batch(), "sequences")}, "L");
    const std::string first = nodes_->Add(
        "Unsqueeze", {nodes_->Add("Mul", {Sequences(), heads}, "first_row"), nodes_->Int64s({1})},
        "first_row");
    const std::string row = nodes_->Add("Add", {first, UpTo(heads, "each_row")}, "row");
    const std::string start = nodes_->Add(
        "Unsqueeze", {nodes_->Add("Mul", {row, slots}, "start"), nodes_->Int64s({2})}, "start");
    return nodes_->Add(
        "Add", {start, nodes_->Add("Unsqueeze", {kept, nodes_->Int64s({1})}, "slot")}, "place");
  }

  std::string Kept(const ManifestCache& cache, const Shared& s) {
    std::string shape = nodes_->Int64s({-1});
    if (!s.behind.empty()) {
      shape = nodes_->Add("Concat", {shape, s.behind}, "rows", {Axis(0)});
    }
    const std::string rows = nodes_->Add("Reshape", {cache.input, shape}, "rows");
    const std::string kept = nodes_->Add("Gather", {rows, s.rows}, "kept_rows", {Axis(0)});
    return nodes_->Add("Reshape", {kept, s.kept}, "kept");
  }

  std::string Reordered(const ManifestCache& cache) {
    if (AxesOfLayout(cache.layout)[0] == "B") {
      return nodes_->Add("Gather", {cache.input, Sequences()}, "reordered", {Axis(0)});
    }
    const std::string shape =
        nodes_->Add("Concat", {Batch(), nodes_->Int64s({-1})}, "sequences", {Axis(0)});
    const std::string flat = nodes_->Add("Reshape", {cache.input, shape}, "sequences");
    const std::string moved = nodes_->Add("Gather", {flat, Sequences()}, "chosen", {Axis(0)});
    return nodes_->Add("Reshape", {moved, nodes_->Add("Shape", {cache.input}, "shape")},
                       "reordered");
  }

  void FillManifest() {
    Manifest& m = out_.manifest;
    m.target = manifest_.target;
    m.capacity_dim = manifest_.capacity_dim;
    m.capacity_value = manifest_.capacity_value;
    m.read = manifest_.read;
    m.caches = manifest_.caches;
    for (ManifestCache& cache : m.caches) {
      cache.dtype = ElementTypeName(TypeOf(cache).elem_type);
      cache.alias = CacheAlias::kSafe;
      cache.readers.clear();
      cache.source = {cache.input,
                      cache.output,
                      UpdateKind::kTensorScatter,
                      PlainLayout(cache.layout),
                      cache.axis,
                      false,
                      {}};
      m.inputs.push_back({cache.input, CacheInput{cache.id}});
      m.outputs.push_back({cache.output, CacheOutput{cache.id}});
    }
    if (options_.keep) {
      m.inputs.push_back({kKeep, ControlInput{ControlValue::kSlots, "int64", {"B", "K"}}});
    }
    if (options_.beam) {
      m.inputs.push_back({kBeam, ControlInput{ControlValue::kSequences, "int64", {"B"}}});
    }
  }

  const Graph& source_;
  const Manifest& manifest_;
  const MaintenanceOptions options_;
  Companion out_;
  std::unique_ptr<NodeBuilder> nodes_;
  std::map<std::string, Shared> shared_;
};

}  // namespace

absl::StatusOr<Companion> MakeCompanion(const Graph& model, const Manifest& manifest,
                                        const MaintenanceOptions& options) {
  return CompanionBuilder(model, manifest, options).Build();
}

}  // namespace kvlift
