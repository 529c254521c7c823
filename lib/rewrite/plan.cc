#include "rewrite/plan.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "base/status.h"
#include "fmt/format.h"
#include "rewrite/manifest_of.h"
#include "rewrite/rederive.h"
#include "rewrite/visibility.h"

namespace kvlift {
namespace {

using onnx::TensorProto;
using sym::Expr;
using sym::Kind;

constexpr char kPastSymbol[] = "kvlift.P";
constexpr char kKeysSymbol[] = "kvlift.W";

// One attempt to plan, with positions per sequence or one for all.
class Planner {
 public:
  Planner(Analysis& a, const ConvertOptions& options, bool uniform)
      : a_(a),
        graph_(*a.graph),
        forms_(*a.forms),
        pool_(forms_.pool()),
        options_(options),
        nodes_(graph_),
        emitter_(forms_, nodes_),
        derived_(options.control == Control::kDerived ||
                 (options.control == Control::kAuto && options.target == Target::kGenai)),
        uniform_(uniform || derived_) {}

  // Set by Run if positions cannot differ between sequences.
  const std::optional<std::string>& needs_uniform() const { return needs_uniform_; }

  absl::StatusOr<ConversionPlan> Run() {
    Survey();
    if (plan_.refusal) return std::move(plan_);
    KV_RETURN_IF_ERROR(EmitControl());
    if (plan_.refusal) return std::move(plan_);
    KV_RETURN_IF_ERROR(EmitCaches());
    for (size_t k = 0; k < a_.attention.size() && !plan_.refusal; ++k) {
      KV_RETURN_IF_ERROR(EmitAttention(static_cast<int>(k), *a_.attention[k].site));
    }
    if (plan_.refusal) return std::move(plan_);
    RederiveRest();
    if (plan_.refusal || needs_uniform_) return std::move(plan_);
    Retype();
    plan_.patch.new_nodes = nodes_.TakeNodes();
    plan_.patch.new_initializers = nodes_.TakeInitializers();
    DropPadding();
    FillManifest();
    return std::move(plan_);
  }

 private:
  // The symbols that mean P, those that mean T, the batch, and the inputs that are T wide.
  void Survey() {
    const CacheUpdate& first = a_.updates.front();
    batch_ = forms_.Of(first.pair.past).shape[first.layout.find('B')];
    new_length_ = first.new_length;
    const Expr past = pool_.Dim(kPastSymbol);
    for (const CacheUpdate& update : a_.updates) {
      const std::string& dim = update.past_length->dim();
      if (std::find(lengths_.begin(), lengths_.end(), dim) == lengths_.end()) {
        lengths_.push_back(dim);
      }
      normal_.dims[dim] = past;
    }
    for (const AnalysedAttention& attention : a_.attention) {
      for (Expr part : sym::ConjunctsOf(attention.site->keep)) CollectWide(part);
    }
    for (const auto& [input, axis] : wide_) {
      const Expr width = forms_.Of(input).shape[axis];
      if (width->kind() == Kind::kDim && !normal_.dims.contains(width->dim())) {
        lengths_.push_back(width->dim());
        normal_.dims[width->dim()] = pool_.Add(past, new_length_);
      }
    }
    RefuseOtherWideInputs();
  }

  // Inputs that a mask predicate reads at the key's index are as wide as the keys.
  void CollectWide(Expr e) {
    if (e->kind() == Kind::kLoad && graph_.is_graph_input(e->source())) {
      for (size_t k = 0; k < e->args().size(); ++k) {
        if (e->args()[k] == pool_.Index(3)) wide_.insert({e->source(), static_cast<int>(k)});
      }
    }
    for (Expr arg : e->args()) CollectWide(arg);
    for (const sym::Term& term : e->terms()) {
      for (Expr atom : term.atoms) CollectWide(atom);
    }
  }

  void RefuseOtherWideInputs() {
    for (ValueId v : graph_.graph_inputs()) {
      if (IsCache(v) || IsWide(v)) continue;
      const sym::Form& form = forms_.Of(v);
      if (!form.known_rank) continue;
      for (Expr dim : form.shape) {
        for (const std::string& length : lengths_) {
          if (!sym::ContainsDim(dim, length)) continue;
          if (graph_.uses(v).empty()) continue;
          plan_.refusal = MakeFinding(
              "KV215",
              fmt::format("{} is as long as the past, and no attention reads it as a mask",
                          graph_.name(v)),
              graph_, {}, {v});
          return;
        }
      }
    }
  }

  bool IsWide(ValueId v) const {
    return std::any_of(wide_.begin(), wide_.end(), [&](const auto& w) { return w.first == v; });
  }

  bool IsCache(ValueId v) const {
    return std::any_of(a_.updates.begin(), a_.updates.end(), [&](const CacheUpdate& u) {
      return u.pair.past == v || u.pair.present == v;
    });
  }

  // write_indices, nonpad_kv_seqlen and the number of keys to read.
  absl::Status EmitControl() {
    nodes_.set_scope("shared");
    auto length = emitter_.Dim(new_length_);
    if (!length.ok()) {
      plan_.refusal = MakeFinding(
          "KV215",
          fmt::format("the number of new tokens: {}", std::string(length.status().message())),
          graph_, {a_.updates.front().node});
      return absl::OkStatus();
    }
    KV_ASSIGN_OR_RETURN(std::string batch, emitter_.Dim(batch_));
    std::string past;  // [1], when uniform
    if (derived_) {
      const auto source = LengthSource();
      if (!source) {
        plan_.refusal = MakeFinding(
            "KV219", "needs a mask input as wide as the keys to derive the past's length from",
            graph_, {a_.updates.front().node});
        return absl::OkStatus();
      }
      const auto [input, axis] = *source;
      const std::string total = nodes_.Add(
          "Shape", {graph_.name(input)}, "total_length",
          {MakeAttribute("start", int64_t{axis}), MakeAttribute("end", int64_t{axis + 1})});
      past = nodes_.Add("Sub", {total, *length}, "past_length");
      write_ = nodes_.Add("Expand", {past, batch}, "write_indices");
      valid_ = nodes_.Add("Expand", {total, batch}, "nonpad_kv_seqlen");
      keys_ = total;
    } else {
      write_ = FreeName("write_indices");
      valid_ = nodes_.Add("Add", {write_, *length}, "nonpad_kv_seqlen");
      keys_ = nodes_.Add("ReduceMax", {valid_, nodes_.Int64s({0})}, "visible_length");
      if (uniform_) {
        past = nodes_.Add("Slice", {write_, nodes_.Int64s({0}), nodes_.Int64s({1})}, "past_length");
      }
    }
    emitter_.BindDim(kPastSymbol,
                     uniform_ ? sym::DimBinding{past, false} : sym::DimBinding{write_, true});
    emitter_.BindDim(kKeysSymbol, {PrefixRead() ? keys_ : Capacity(), false});
    for (const auto& [input, axis] : wide_) WideSource(input, axis);
    return absl::OkStatus();
  }

  // int64 [1]: the extent of the buffers.
  std::string Capacity() {
    if (options_.max_seq_len) return nodes_.Int64s({*options_.max_seq_len});
    const CacheUpdate& first = a_.updates.front();
    return nodes_.Add("Shape", {graph_.name(first.pair.present)}, "capacity",
                      {MakeAttribute("start", int64_t{first.axis}),
                       MakeAttribute("end", int64_t{first.axis + 1})});
  }

  void WideSource(ValueId input, int axis) {
    // A derived length is the mask's own width, and a whole buffer is as wide as its mask.
    std::vector<int> cut;
    if (!derived_ && PrefixRead()) cut.push_back(axis);
    emitter_.BindSource(input, {graph_.name(input), cut});
  }

  std::optional<std::pair<ValueId, int>> LengthSource() const {
    if (wide_.empty()) return std::nullopt;
    return *wide_.begin();
  }

  std::string FreeName(std::string name) const {
    while (graph_.Find(name) != kNoValue) name += "_";
    return name;
  }

  bool PrefixRead() const { return options_.read != ReadForm::kFull; }

  std::string Scope(int layer, std::string_view role) const {
    return fmt::format("layers.{}/{}", layer, role);
  }

  absl::Status EmitCaches() {
    for (const AnalysedCache& cache : a_.caches) {
      if (cache.update_index < 0) continue;
      const CacheUpdate& update = a_.updates[cache.update_index];
      nodes_.set_scope(Scope(cache.layer, cache.role));
      KV_ASSIGN_OR_RETURN(std::string rows, UpdateValue(update));
      const NodeId producer = graph_.producer(update.pair.present);
      plan_.patch.remove_nodes.insert(producer);
      nodes_.AddNamed("TensorScatter", {graph_.name(update.pair.past), rows, write_},
                      "TensorScatter", graph_.name(update.pair.present),
                      {MakeAttribute("axis", int64_t{update.axis})});
      if (graph_.outputs(producer).size() != 1) {
        plan_.refusal = MakeFinding("KV217", "the present is one of several outputs of a node",
                                    graph_, {producer}, {update.pair.present});
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> UpdateValue(const CacheUpdate& update) {
    if (update.update != kNoValue) {
      roots_.push_back(update.update);
      return graph_.name(update.update);
    }
    sym::Emitter::Request request;
    request.element = update.update_element;
    request.shape = forms_.Of(update.pair.past).shape;
    request.shape[update.axis] = update.new_length;
    request.elem_type = forms_.ElementType(update.pair.past);
    request.role = "update";
    for (ValueId source : sym::SourcesOf(request.element)) roots_.push_back(source);
    auto value = emitter_.Tensor(request);
    if (!value.ok()) {
      plan_.refusal =
          MakeFinding("KV202", std::string(value.status().message()), graph_, {update.node});
      return std::string();
    }
    return value;
  }

  // The cache as Attention reads it: [B, Nk, W, D].
  std::string ReadCache(int layer, std::string_view role, const CacheUpdate& update) {
    nodes_.set_scope(Scope(layer, role));
    std::string value = graph_.name(update.pair.present);
    if (PrefixRead()) {
      value = nodes_.Add("Slice", {value, nodes_.Int64s({0}), keys_, nodes_.Int64s({update.axis})},
                         "visible");
    }
    if (update.layout == "BNSD") return value;
    std::vector<int64_t> perm;
    for (char letter : std::string_view("BNSD")) {
      perm.push_back(static_cast<int64_t>(update.layout.find(letter)));
    }
    return nodes_.Add("Transpose", {value}, "heads_first", {MakeAttribute("perm", perm)});
  }

  absl::Status EmitAttention(int number, const AttentionSite& site) {
    const CacheUpdate& key = a_.updates[site.key_cache];
    const CacheUpdate& value = a_.updates[site.value_cache];
    const int layer = LayerOf(site.key_cache);
    const int32_t type = forms_.ElementType(key.pair.past);
    if (!OneType(site, type)) {
      plan_.refusal = MakeFinding(
          "KV210",
          fmt::format("queries and values need the type of the keys, {}", ElementTypeName(type)),
          graph_, {site.node});
      return absl::OkStatus();
    }
    Visibility visible = ReadVisibility(forms_, site, key.past_length);
    // ONNX Runtime 1.31 runs a causal Attention of doubles top-left, without a word.
    const bool drawn = options_.mask == MaskForm::kExplicit || type == TensorProto::DOUBLE;
    if (drawn && visible.causal) {
      visible.rest = site.keep;
      visible.causal = false;
    }
    if (options_.padding == Padding::kNone) visible.rest = WithoutPadding(visible.rest);
    const bool draws = !visible.rest->is_integer(1);
    if (draws && options_.mask == MaskForm::kCausal) {
      plan_.refusal = MakeFinding("KV224",
                                  fmt::format("--mask causal, but the mask also says {}",
                                              sym::ToString(visible.rest, &graph_)),
                                  graph_, {site.node});
      return absl::OkStatus();
    }
    const std::string k = ReadCache(layer, "key", key);
    const std::string v = ReadCache(layer, "value", value);
    std::string mask;
    if (draws) {
      KV_ASSIGN_OR_RETURN(mask, DrawMask(site, visible.rest));
      if (plan_.refusal) return absl::OkStatus();
    }
    nodes_.set_scope(fmt::format("layers.{}", layer));
    NodeBuilder::Attributes attributes;
    if (visible.causal) attributes.push_back(MakeAttribute("is_causal", int64_t{1}));
    const auto scale = static_cast<float>(site.scale);
    const auto usual = static_cast<float>(1.0 / std::sqrt(static_cast<double>(site.head_dim)));
    if (std::abs(scale - usual) > 1e-6f * usual) {
      attributes.push_back(MakeAttribute("scale", scale));
    }
    if (site.softcap != 0) {
      attributes.push_back(MakeAttribute("softcap", static_cast<float>(site.softcap)));
    }
    if (site.softmax_type != 0 && site.softmax_type != type) {
      attributes.push_back(MakeAttribute("softmax_precision", int64_t{site.softmax_type}));
    }
    plan_.patch.remove_nodes.insert(site.node);
    nodes_.AddNamed("Attention", {graph_.name(site.query), k, v, mask, "", "", valid_},
                    number == layer ? "Attention" : fmt::format("Attention_{}", number),
                    graph_.name(graph_.outputs(site.node)[0]), std::move(attributes));
    roots_.push_back(site.query);
    return absl::OkStatus();
  }

  // Attention has one type for queries and keys, and here also for values and the result.
  bool OneType(const AttentionSite& site, int32_t type) {
    return forms_.ElementType(site.query) == type &&
           forms_.ElementType(a_.updates[site.value_cache].pair.past) == type &&
           forms_.ElementType(graph_.outputs(site.node)[0]) == type;
  }

  int LayerOf(int update_index) const {
    for (const AnalysedCache& cache : a_.caches) {
      if (cache.update_index == update_index) return cache.layer;
    }
    return 0;
  }

  // The predicate with every read of a padding mask taken as true.
  Expr WithoutPadding(Expr rest) {
    Expr kept = pool_.True();
    for (Expr part : sym::ConjunctsOf(rest)) {
      std::set<std::pair<ValueId, int>> all;
      std::swap(all, wide_);
      CollectWide(part);
      const bool padding = !wide_.empty();
      std::swap(all, wide_);
      if (!padding) kept = pool_.And(kept, part);
    }
    return kept;
  }

  bool ReadAtKeys(Expr e, ValueId source) const {
    const auto at_keys = [&](Expr part) { return ReadAtKeys(part, source); };
    if (e->kind() == Kind::kLoad && e->source() == source && sym::ContainsIndex(e, 3)) return true;
    if (std::any_of(e->args().begin(), e->args().end(), at_keys)) return true;
    return std::any_of(e->terms().begin(), e->terms().end(), [&](const sym::Term& term) {
      return std::any_of(term.atoms.begin(), term.atoms.end(), at_keys);
    });
  }

  // [B or 1, N or 1, S, W] bool. ONNX Runtime 1.31 wants the query dimension drawn.
  absl::StatusOr<std::string> DrawMask(const AttentionSite& site, Expr rest) {
    nodes_.set_scope("shared");
    sym::Emitter::Request request;
    const Expr keys = pool_.Dim(kKeysSymbol);
    request.shape = {pool_.Integer(1), pool_.Integer(1), new_length_, keys};
    request.element = pool_.Substitute(rest, normal_, sym::Facts{});
    request.elem_type = TensorProto::BOOL;
    request.batch_axis = 0;
    request.role = "mask";
    if (sym::ContainsIndex(request.element, 0) || emitter_.IsPerSequence(request.element)) {
      request.shape[0] = batch_;
    }
    if (sym::ContainsIndex(request.element, 1)) request.shape[1] = pool_.Integer(site.q_heads);
    for (ValueId source : sym::SourcesOf(request.element)) {
      const bool input = graph_.is_graph_input(source);
      if (!input) roots_.push_back(source);
      if (PrefixRead() || graph_.constant(source) != nullptr || (input && !derived_)) continue;
      if (!ReadAtKeys(request.element, source)) continue;
      plan_.refusal = MakeFinding(
          "KV216",
          fmt::format("needs a mask as wide as the buffer, found {}, as wide as the keys",
                      graph_.name(source)),
          graph_, {site.node}, {source});
      return std::string();
    }
    auto mask = emitter_.Tensor(request);
    if (!mask.ok()) {
      plan_.refusal = MakeFinding(
          "KV216",
          fmt::format("the mask cannot be drawn: {}", std::string(mask.status().message())), graph_,
          {site.node});
      return std::string();
    }
    return mask;
  }

  void RederiveRest() {
    RederiveInput in;
    for (const CacheUpdate& update : a_.updates) {
      in.caches.insert(update.pair.past);
      in.caches.insert(update.pair.present);
      in.provided.insert(update.pair.present);
    }
    for (const AnalysedAttention& attention : a_.attention) {
      in.provided.insert(graph_.outputs(attention.node)[0]);
    }
    for (const auto& [input, axis] : wide_) in.wide_inputs.insert(input);
    in.roots = roots_;
    for (ValueId output : graph_.graph_outputs()) {
      if (!in.caches.contains(output)) in.roots.push_back(output);
    }
    in.lengths = lengths_;
    in.normal = normal_;
    in.batch = batch_;
    in.per_sequence = !uniform_;
    nodes_.set_scope("shared");
    Rederived result = Rederive(forms_, emitter_, in);
    plan_.refusal = std::move(result.refusal);
    needs_uniform_ = std::move(result.needs_uniform);
    plan_.patch.replace_inputs = std::move(result.operands);
  }

  void Retype() {
    for (const CacheUpdate& update : a_.updates) {
      onnx::TypeProto type = TypeOfInput(update.pair.past);
      SetDim(&type, update.axis, CapacityDim());
      plan_.patch.retype[graph_.name(update.pair.past)] = type;
      plan_.patch.retype[graph_.name(update.pair.present)] = type;
    }
    for (const auto& [input, axis] : wide_) {
      onnx::TypeProto type = TypeOfInput(input);
      onnx::TensorShapeProto::Dimension total;
      total.set_dim_param("total_sequence_length");
      SetDim(&type, axis, derived_ ? total : CapacityDim());
      plan_.patch.retype[graph_.name(input)] = type;
    }
    if (derived_) return;
    onnx::ValueInfoProto control;
    control.set_name(write_);
    auto* tensor = control.mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(TensorProto::INT64);
    auto* dim = tensor->mutable_shape()->add_dim();
    const onnx::TypeProto past = TypeOfInput(a_.updates.front().pair.past);
    *dim = past.tensor_type().shape().dim(static_cast<int>(a_.updates.front().layout.find('B')));
    plan_.patch.new_inputs.push_back(std::move(control));
  }

  onnx::TypeProto TypeOfInput(ValueId v) const {
    for (const auto& info : graph_.proto().input()) {
      if (info.name() == graph_.name(v)) return info.type();
    }
    return {};
  }

  static void SetDim(onnx::TypeProto* type, int axis,
                     const onnx::TensorShapeProto::Dimension& dim) {
    *type->mutable_tensor_type()->mutable_shape()->mutable_dim(axis) = dim;
  }

  onnx::TensorShapeProto::Dimension CapacityDim() const {
    onnx::TensorShapeProto::Dimension dim;
    if (options_.max_seq_len) {
      dim.set_dim_value(*options_.max_seq_len);
    } else {
      dim.set_dim_param("max_sequence_length");
    }
    return dim;
  }

  // With --padding none the inputs that only told pads go, unless the length is derived from them.
  void DropPadding() {
    if (options_.padding != Padding::kNone || derived_) return;
    for (const auto& [input, axis] : wide_) {
      const std::string& name = graph_.name(input);
      const auto& nodes = plan_.patch.new_nodes;
      const bool read = std::any_of(nodes.begin(), nodes.end(), [&](const onnx::NodeProto& node) {
        return std::find(node.input().begin(), node.input().end(), name) != node.input().end();
      });
      if (read) continue;
      plan_.patch.remove_inputs.insert(name);
      plan_.patch.retype.erase(name);
    }
  }

  void FillManifest() {
    ManifestFacts facts;
    facts.write_indices = derived_ ? "" : write_;
    facts.uniform = uniform_;
    facts.prefix = PrefixRead();
    facts.keeps_padding = options_.padding != Padding::kNone;
    for (const auto& [input, axis] : wide_) facts.wide_inputs[graph_.name(input)] = axis;
    facts.dropped = plan_.patch.remove_inputs;
    plan_.manifest = MakeManifest(a_, options_, facts);
  }

  Analysis& a_;
  const Graph& graph_;
  sym::Forms& forms_;
  sym::Pool& pool_;
  const ConvertOptions& options_;
  NodeBuilder nodes_;
  sym::Emitter emitter_;
  bool derived_;
  bool uniform_;
  Expr batch_ = nullptr, new_length_ = nullptr;
  sym::Pool::Substitution normal_;
  std::vector<std::string> lengths_;
  std::set<std::pair<ValueId, int>> wide_;
  std::string write_, valid_, keys_;
  std::vector<ValueId> roots_;
  std::optional<std::string> needs_uniform_;
  ConversionPlan plan_;
};

}  // namespace

absl::StatusOr<ConversionPlan> MakePlan(Analysis& analysis, const ConvertOptions& options) {
  Planner per_sequence(analysis, options, false);
  KV_ASSIGN_OR_RETURN(ConversionPlan plan, per_sequence.Run());
  if (!per_sequence.needs_uniform()) return plan;
  Planner uniform(analysis, options, true);
  KV_ASSIGN_OR_RETURN(plan, uniform.Run());
  plan.manifest.uniform_reason = *per_sequence.needs_uniform();
  return plan;
}

}  // namespace kvlift
