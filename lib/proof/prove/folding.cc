#include "proof/prove/folding.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "fmt/format.h"
#include "ir/graph.h"
#include "proof/graphs/pair.h"
#include "proof/layers/layer_pairs.h"
#include "proof/layers/layers.h"
#include "proof/prove/prover.h"

namespace kvlift {
namespace {

using onnx::ModelProto;
using onnx::NodeProto;

// A shape-preserving operator with an opaque form. It stands for arbitrary values.
constexpr char kAnyValues[] = "Softsign";

bool CanBeFolded(const Graph& graph) {
  if (graph.proto().sparse_initializer_size() > 0) return false;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    // Facts are in the order of the file, so the graph must have kept that order.
    if (&graph.node(n) != &graph.proto().node(n) || graph.outputs(n).empty()) return false;
    for (const auto& attribute : graph.node(n).attribute()) {
      if (attribute.has_g() || attribute.graphs_size() > 0) return false;
    }
  }
  return true;
}

// Builds a model with layer 0 only.
class Shortened {
 public:
  Shortened(const LayeredModel& side, const Layers& layers, int number)
      : side_(side), layers_(layers), number_(number) {}

  // `carried` orders the values that enter the layer, as indices into those of `layers`. Constants
  // in `open` lose their data.
  ModelProto Run(const std::vector<size_t>& carried, const absl::flat_hash_set<std::string>& open) {
    const Graph& graph = side_.graph;
    ModelProto model;
    model.set_ir_version(graph.model().ir_version());
    *model.mutable_opset_import() = graph.model().opset_import();
    for (size_t slot = 0; slot < carried.size(); ++slot) {
      const Layers::Carried& value = layers_.carried[carried[slot]];
      inside_[value.in] = {slot, false};
      behind_[value.out.back()] = {slot, true};
      sources_.push_back({graph.name(value.in), graph.name(value.out.front())});
    }
    onnx::GraphProto& result = *model.mutable_graph();
    result.set_name(graph.proto().name());
    absl::flat_hash_set<std::string> used;
    for (NodeId n = 0; n < graph.num_nodes(); ++n) AddNode(n, &result, &used);
    for (const auto& output : graph.proto().output()) {
      if (IsGone(graph.Find(output.name()))) continue;
      *result.add_output() = output;
      used.insert(output.name());
    }
    for (const auto& input : graph.proto().input()) {
      const bool gone = gone_inputs_.contains(input.name()) && !used.contains(input.name());
      if (!gone) *result.add_input() = input;
    }
    for (const auto& tensor : graph.proto().initializer()) {
      if (!used.contains(tensor.name())) continue;
      if (open.contains(tensor.name())) {
        AddWithoutData(tensor, &result);
      } else {
        *result.add_initializer() = tensor;
      }
    }
    for (const auto& info : graph.proto().value_info()) {
      if (used.contains(info.name())) *result.add_value_info() = info;
    }
    return model;
  }

 private:
  struct Slot {
    size_t number;
    bool leaves;
  };

  bool IsGone(ValueId v) const {
    return v != kNoValue && layers_.LayerOf(side_.sequence.place_of(v)) > 0;
  }

  void AddNode(NodeId n, onnx::GraphProto* result, absl::flat_hash_set<std::string>* used) {
    const Graph& graph = side_.graph;
    const int place = side_.sequence.place(n), layer = layers_.LayerOf(place);
    if (layer > 0) {
      for (ValueId v : graph.inputs(n)) {
        if (v != kNoValue && side_.caches.contains(v)) gone_inputs_.insert(graph.name(v));
      }
      return;
    }
    NodeProto node = graph.node(n);
    const auto& renamed = layer == 0 ? inside_ : behind_;
    for (size_t k = 0; k < graph.inputs(n).size(); ++k) {
      const auto it = renamed.find(graph.inputs(n)[k]);
      if (it != renamed.end() && (layer == 0 || place >= layers_.end())) {
        node.set_input(static_cast<int>(k), AnyValues(it->second, result));
      }
    }
    used->insert(node.input().begin(), node.input().end());
    used->insert(node.output().begin(), node.output().end());
    *result->add_node() = std::move(node);
  }

  std::string AnyValues(const Slot& slot, onnx::GraphProto* result) {
    const std::string name = fmt::format("any values/{}/{}/{}", number_, slot.number,
                                         slot.leaves ? "behind" : "in front");
    if (!made_.insert(name).second) return name;
    NodeProto* node = result->add_node();
    node->set_op_type(kAnyValues);
    const auto& [in, out] = sources_[slot.number];
    node->add_input(slot.leaves ? out : in);
    node->add_output(name);
    // The attribute makes this node differ from all others with the same operator.
    onnx::AttributeProto* mark = node->add_attribute();
    mark->set_name("values");
    mark->set_type(onnx::AttributeProto::STRING);
    mark->set_s(name);
    return name;
  }

  static void AddWithoutData(const onnx::TensorProto& tensor, onnx::GraphProto* result) {
    auto* input = result->add_input();
    input->set_name(tensor.name());
    auto* type = input->mutable_type()->mutable_tensor_type();
    type->set_elem_type(tensor.data_type());
    auto* shape = type->mutable_shape();
    for (int64_t dim : tensor.dims()) shape->add_dim()->set_dim_value(dim);
  }

  const LayeredModel& side_;
  const Layers& layers_;
  int number_;
  absl::flat_hash_map<ValueId, Slot> inside_, behind_;
  // The names of the value that enters layer 0 and of the one that leaves it, by Slot::number.
  std::vector<std::pair<std::string, std::string>> sources_;
  absl::flat_hash_set<std::string> made_, gone_inputs_;
};

// Builds both shortened models, if what they share is the same in all layers.
class Folder {
 public:
  Folder(const LayeredModel& before, const LayeredModel& after, const LayerPair& found,
         const Manifest& relation)
      : before_(before), after_(after), found_(found), relation_(relation) {}

  std::optional<FoldedPair> Run(int number) {
    if (!PairCarried() || !PairWeights() || !PairCaches()) return std::nullopt;
    std::vector<size_t> order(found_.after.carried.size());
    for (size_t k = 0; k < order.size(); ++k) order[k] = k;
    folded_.after = Shortened(after_, found_.after, number).Run(order, open_);
    folded_.before = Shortened(before_, found_.before, number).Run(carried_, open_);
    for (const std::string& name : same_) {
      ManifestInput& input = folded_.relation.inputs.emplace_back();
      input.name = name;
      input.as = SameInput{};
    }
    AddPlaces();
    if (!AddNames(after_, found_.after) || !AddNames(before_, found_.before)) return std::nullopt;
    for (const auto& [name, others] : folded_.copies) {
      if (!folded_.names.Add(name, others)) return std::nullopt;
    }
    return std::move(folded_);
  }

 private:
  const std::string& MyName(ValueId v) const { return after_.graph.name(v); }
  const std::string& TheirName(ValueId v) const { return before_.graph.name(v); }

  // Pairs carried values that have the same names in every layer.
  bool PairCarried() {
    const auto& theirs = found_.before.carried;
    for (const Layers::Carried& mine : found_.after.carried) {
      size_t k = 0;
      while (k < theirs.size() && TheirName(theirs[k].out[0]) != MyName(mine.out[0])) ++k;
      if (k == theirs.size()) return false;
      for (int i = 0; i < found_.after.count; ++i) {
        if (TheirName(theirs[k].out[i]) != MyName(mine.out[i])) return false;
      }
      carried_.push_back(k);
      folded_.boundaries.push_back({MyName(mine.in), TheirName(theirs[k].in), MyName(mine.out[0]),
                                    TheirName(theirs[k].out[0])});
    }
    return true;
  }

  // Pairs constants that differ between layers. Both models' constants of one name have to hold the
  // same bytes in layer 0, and then in each other layer as well.
  bool PairWeights() {
    for (ValueId v : found_.after.open) open_.insert(MyName(v));
    for (ValueId v : found_.before.open) open_.insert(TheirName(v));
    for (const std::string& name : open_) {
      const ValueId mine = after_.graph.Find(name), theirs = before_.graph.Find(name);
      if (mine == kNoValue || theirs == kNoValue) continue;
      if (!SameBytes(mine, theirs)) return false;
      for (int i = 1; i < found_.after.count; ++i) {
        const auto x = found_.after.own[i].find(mine), y = found_.before.own[i].find(theirs);
        if (x == found_.after.own[i].end() || y == found_.before.own[i].end()) return false;
        if (!SameBytes(x->second, y->second)) return false;
      }
      same_.push_back(name);
    }
    std::sort(same_.begin(), same_.end());
    return true;
  }

  bool SameBytes(ValueId mine, ValueId theirs) const {
    const auto* a = after_.graph.constant(mine);
    const auto* b = before_.graph.constant(theirs);
    return a != nullptr && b != nullptr && SameData(*a, *b);
  }

  // Checks that each cache of layer 0 has a copy in each other layer, and that other caches are
  // shared.
  bool PairCaches() {
    absl::flat_hash_map<std::string, const ManifestCache*> by_input;
    absl::flat_hash_set<const ManifestCache*> gone;
    for (const ManifestCache& cache : relation_.caches) by_input[cache.input] = &cache;
    for (const ManifestCache& cache : relation_.caches) {
      if (LayerOfCache(cache) != 0) {
        if (IsOwn(after_, found_.after, cache.input)) return false;
        if (IsOwn(before_, found_.before, cache.source.input)) return false;
        continue;
      }
      for (int i = 1; i < found_.after.count; ++i) {
        const ManifestCache* copy = CopyOf(cache, i, by_input);
        if (copy == nullptr) return false;
        gone.insert(copy);
        folded_.copies[cache.id].push_back(copy->id);
      }
    }
    folded_.relation = relation_;
    folded_.relation.caches.clear();
    for (const ManifestCache& cache : relation_.caches) {
      if (!gone.contains(&cache)) folded_.relation.caches.push_back(cache);
    }
    return AllOutputsAre(gone);
  }

  int LayerOfCache(const ManifestCache& cache) const {
    const ValueId present = after_.graph.Find(cache.output);
    return present == kNoValue ? -1 : found_.after.LayerOf(after_.sequence.place_of(present));
  }

  // Returns true if layer 0 reads the value and another layer reads another value in its place.
  static bool IsOwn(const LayeredModel& side, const Layers& layers, const std::string& name) {
    const ValueId v = side.graph.Find(name);
    return std::any_of(layers.own.begin(), layers.own.end(), [&](const auto& own) {
      const auto it = own.find(v);
      return it != own.end() && it->second != v;
    });
  }

  static ValueId InLayer(const LayeredModel& side, const Layers& layers, const std::string& name,
                         int i) {
    const ValueId v = side.graph.Find(name);
    const int place = v == kNoValue ? -1 : side.sequence.place_of(v);
    if (layers.LayerOf(place) != 0) return kNoValue;
    return side.graph.outputs(
        side.sequence.node(place + i * layers.length))[side.graph.output_index(v)];
  }

  static std::string OwnName(const LayeredModel& side, const Layers& layers,
                             const std::string& name, int i) {
    const auto it = layers.own[i].find(side.graph.Find(name));
    return it == layers.own[i].end() ? "" : side.graph.name(it->second);
  }

  const ManifestCache* CopyOf(
      const ManifestCache& cache, int i,
      const absl::flat_hash_map<std::string, const ManifestCache*>& by_input) const {
    const auto it = by_input.find(OwnName(after_, found_.after, cache.input, i));
    if (it == by_input.end() || it->second == &cache) return nullptr;
    const ManifestCache& copy = *it->second;
    const ValueId mine = InLayer(after_, found_.after, cache.output, i);
    const ValueId theirs = InLayer(before_, found_.before, cache.source.output, i);
    const bool same =
        mine != kNoValue && MyName(mine) == copy.output && theirs != kNoValue &&
        TheirName(theirs) == copy.source.output &&
        OwnName(before_, found_.before, cache.source.input, i) == copy.source.input &&
        copy.role == cache.role && copy.dtype == cache.dtype && copy.layout == cache.layout &&
        copy.axis == cache.axis && copy.grows == cache.grows && !copy.quantization &&
        !cache.quantization && copy.source.kind == cache.source.kind &&
        copy.source.layout == cache.source.layout && copy.source.axis == cache.source.axis &&
        copy.source.growing == cache.source.growing && cache.source.select.empty() &&
        copy.source.select.empty();
    return same ? &copy : nullptr;
  }

  // Returns true if the graph outputs of the layers that are left out are caches only.
  bool AllOutputsAre(const absl::flat_hash_set<const ManifestCache*>& gone) const {
    absl::flat_hash_set<std::string> mine, theirs;
    for (const ManifestCache* cache : gone) {
      mine.insert(cache->output);
      theirs.insert(cache->source.output);
    }
    const auto covers = [](const LayeredModel& side, const Layers& layers,
                           const absl::flat_hash_set<std::string>& names) {
      return std::all_of(side.graph.graph_outputs().begin(), side.graph.graph_outputs().end(),
                         [&](ValueId v) {
                           return layers.LayerOf(side.sequence.place_of(v)) < 1 ||
                                  names.contains(side.graph.name(v));
                         });
    };
    return covers(after_, found_.after, mine) && covers(before_, found_.before, theirs);
  }

  void AddPlaces() {
    for (NodeId n = 0; n < after_.graph.num_nodes(); ++n) {
      if (!after_.graph.Is(n, "Attention") || after_.graph.outputs(n)[0] == kNoValue) continue;
      const std::string& name = MyName(after_.graph.outputs(n)[0]);
      folded_.places[name] = n;
      for (int i = 1; i < found_.after.count; ++i) {
        const ValueId copy = InLayer(after_, found_.after, name, i);
        if (copy != kNoValue) folded_.copies[name].push_back(MyName(copy));
      }
    }
    for (const ManifestCache& cache : relation_.caches) {
      const ValueId present = after_.graph.Find(cache.output);
      if (present == kNoValue || after_.graph.producer(present) == kNoNode) continue;
      folded_.places[cache.id] = after_.graph.producer(present);
    }
  }

  // Records the names that the values of layer 0 have in the other layers. Returns false if one
  // name of both models would have two meanings.
  bool AddNames(const LayeredModel& side, const Layers& layers) {
    const auto add = [&](ValueId v, const auto& in_layer) {
      std::vector<std::string> others;
      for (int i = 1; i < layers.count; ++i) others.push_back(side.graph.name(in_layer(i)));
      return folded_.names.Add(side.graph.name(v), std::move(others));
    };
    for (int place = layers.begin; place < layers.begin + layers.length; ++place) {
      for (ValueId v : side.graph.outputs(side.sequence.node(place))) {
        if (v == kNoValue) continue;
        const auto in_layer = [&](int i) {
          const NodeId n = side.sequence.node(place + i * layers.length);
          return side.graph.outputs(n)[side.graph.output_index(v)];
        };
        if (!add(v, in_layer)) return false;
      }
    }
    for (const auto& [x, y] : layers.own[1]) {
      if (x == y || side.graph.producer(y) != kNoNode) continue;
      const ValueId v = x;
      if (!add(v, [&](int i) { return layers.own[i].at(v); })) return false;
    }
    return true;
  }

  const LayeredModel& before_;
  const LayeredModel& after_;
  const LayerPair& found_;
  const Manifest& relation_;
  FoldedPair folded_;
  std::vector<size_t> carried_;  // the position in the source's `carried`, by the converted model's
  absl::flat_hash_set<std::string> open_;
  std::vector<std::string> same_;
};

}  // namespace

std::optional<FoldedPair> FoldLayers(const ModelProto& before, const ModelProto& after,
                                     const Manifest& relation) {
  // The graphs do not own the models.
  const auto theirs = Graph::Build(std::shared_ptr<const ModelProto>(&before, [](const void*) {}));
  const auto mine = Graph::Build(std::shared_ptr<const ModelProto>(&after, [](const void*) {}));
  if (!theirs.ok() || !mine.ok() || !CanBeFolded(*theirs) || !CanBeFolded(*mine)) {
    return std::nullopt;
  }
  const LayeredModel source(*theirs, relation, true), result(*mine, relation, false);
  const auto found = FindLayers(source, result, relation);
  if (!found) return std::nullopt;
  return Folder(source, result, *found, relation).Run(static_cast<int>(relation.caches.size()));
}

std::optional<Proof> Unfold(const FoldedPair& folded, const Manifest& relation, size_t boundaries,
                            const Proof& proof) {
  const size_t behind = NumberOfOutputFacts(relation) + boundaries + folded.boundaries.size();
  if (!proof.not_tried.empty() || proof.facts.size() < behind) return std::nullopt;
  const bool all_hold = std::all_of(proof.facts.begin(), proof.facts.end(),
                                    [](const ProofFact& fact) { return fact.holds(); });
  if (!all_hold) return std::nullopt;
  const LayerNames& names = folded.names;
  const size_t layers = names.size() + 1;
  const auto first_behind = proof.facts.end() - static_cast<std::ptrdiff_t>(behind);
  const auto last_behind =
      proof.facts.end() - static_cast<std::ptrdiff_t>(folded.boundaries.size());
  Proof whole;
  // Facts about later layers rest on everything that the values leaving a layer rest on.
  for (auto fact = first_behind; fact != proof.facts.end(); ++fact) {
    for (const Assumption& given : fact->given)
      names.AddForFirst(layers, given, &whole.assumptions);
  }
  whole.lengths = proof.lengths;
  whole.fed = proof.fed;
  whole.slot_outputs = proof.slot_outputs;
  for (const Assumption& assumption : proof.assumptions.all()) {
    names.AddForFirst(layers, assumption, &whole.assumptions);
  }
  std::vector<std::pair<int, ProofFact>> facts;
  for (auto fact = proof.facts.begin(); fact != first_behind; ++fact) {
    const auto copies = folded.copies.find(fact->about);
    const bool is_copied = copies != folded.copies.end();
    for (size_t k = 0; k < (is_copied ? layers : 1); ++k) {
      const std::string& name = k == 0 ? fact->about : copies->second[k - 1];
      const auto place = folded.places.find(name);
      if (place == folded.places.end()) return std::nullopt;
      facts.emplace_back(place->second, *fact);
      ProofFact& copy = facts.back().second;
      copy.about = name;
      for (Assumption& given : copy.given) given = names.InLayer(given, k);
    }
  }
  std::stable_sort(facts.begin(), facts.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& fact : facts) whole.facts.push_back(std::move(fact.second));
  whole.facts.insert(whole.facts.end(), first_behind, last_behind);
  return whole;
}

}  // namespace kvlift
