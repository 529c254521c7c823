#include "verify/layers/layer_pieces.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/status.h"
#include "fmt/format.h"
#include "proof/graphs/value_types.h"
#include "verify/layers/cuts.h"
#include "verify/layers/same_text.h"
#include "verify/layers/slice.h"

namespace kvlift {
namespace {

// One of the two models, with the values that it is cut at.
struct Side {
  const Model& model;
  const Graph& graph;
  std::vector<std::vector<ValueId>> cuts;  // the values of each cut
  absl::flat_hash_set<ValueId> stops;      // the values of all cuts
  // The types of the stops that the pieces so far compute.
  absl::flat_hash_map<ValueId, TensorType> types = {};
};

Side MakeSide(const Model& model, const Graph& graph, const std::vector<Cut>& cuts) {
  Side side{model, graph, {}, {}};
  for (const Cut& cut : cuts) {
    std::vector<ValueId>& values = side.cuts.emplace_back();
    for (const std::string& name : cut) {
      values.push_back(side.graph.Find(name));
      side.stops.insert(values.back());
    }
  }
  return side;
}

// The values that one piece computes: those of the cut behind it, and outputs of the models.
struct Ends {
  std::vector<ValueId> before, after;
};

// A piece, and what its two models are made of.
struct CutPiece {
  ModelPiece piece;
  Ends ends;
  GraphSlice theirs, mine;
  absl::flat_hash_map<ValueId, ValueId> their_names, my_names;  // of inputs that are renamed
};

// The types of the stops that a piece computes, in the order of its ends.
struct TypesOfEnds {
  std::vector<TensorType> before, after;
};

class Cutter {
 public:
  Cutter(const Manifest& relation, Side before, Side after)
      : relation_(relation), before_(std::move(before)), after_(std::move(after)) {}

  absl::StatusOr<std::vector<PieceClass>> Run() {
    FindEnds();
    std::vector<PieceClass> classes;
    std::vector<std::string> keys;
    std::vector<TypesOfEnds> types;          // by class
    absl::flat_hash_set<std::string> taken;  // ids of caches
    int layers = 0;
    for (size_t k = 0; k < ends_.size(); ++k) {
      KV_ASSIGN_OR_RETURN(CutPiece cut, MakePiece(k));
      ModelPiece& piece = cut.piece;
      for (const ManifestCache& cache : piece.relation.caches) {
        if (taken.insert(cache.id).second) continue;
        return absl::FailedPreconditionError(
            fmt::format("several layers read the cache {}", cache.id));
      }
      std::string key;
      if (!piece.relation.caches.empty()) {
        piece.name = NameOf(piece, &layers);
        key = TextOfPair(piece);
        const auto same = std::find(keys.begin(), keys.end(), key);
        if (same != keys.end()) {
          const auto number = static_cast<size_t>(same - keys.begin());
          classes[number].others.push_back(piece.name);
          KeepTypes(cut.ends, types[number]);
          continue;
        }
      }
      KV_RETURN_IF_ERROR(DeclareEnds(&cut, &types.emplace_back()));
      keys.push_back(std::move(key));
      PieceClass& found = classes.emplace_back();
      if (piece.relation.caches.empty()) {
        piece.name = k == 0 ? "front" : "rest";
        found.same_nodes = HasSameNodes(piece);
      }
      found.piece = std::move(piece);
    }
    return classes;
  }

 private:
  // Returns the name of a piece with caches, and counts its layers: ManifestCache::layer says which
  // caches belong to one layer.
  std::string NameOf(const ModelPiece& piece, int* layers) const {
    absl::flat_hash_set<int64_t> numbers;
    for (const ManifestCache& cache : piece.relation.caches) numbers.insert(cache.layer);
    const int first = *layers, count = static_cast<int>(numbers.size());
    *layers += count;
    return count == 1 ? fmt::format("layer {}", first)
                      : fmt::format("layers {} to {}", first, first + count - 1);
  }

  // Returns, by value, the number of the last cut that the value depends on, counted from 1; 0 if
  // it does not depend on a cut.
  static std::vector<size_t> NumberOfLastCut(const Side& side) {
    std::vector<size_t> number(static_cast<size_t>(side.graph.num_values()), 0);
    absl::flat_hash_map<ValueId, size_t> of_cut;
    for (size_t k = 0; k < side.cuts.size(); ++k) {
      for (ValueId v : side.cuts[k]) of_cut[v] = k + 1;
    }
    const auto entered = [&](ValueId v) {
      const auto cut = of_cut.find(v);
      return cut != of_cut.end() ? cut->second : number[v];
    };
    for (NodeId n = 0; n < side.graph.num_nodes(); ++n) {
      size_t last = 0;
      for (ValueId v : side.graph.inputs(n)) {
        if (v != kNoValue) last = std::max(last, entered(v));
      }
      for (ValueId v : side.graph.outputs(n)) {
        if (v != kNoValue) number[v] = last;
      }
    }
    return number;
  }

  void FindEnds() {
    ends_.resize(after_.cuts.size() + 1);
    for (size_t k = 0; k < after_.cuts.size(); ++k) {
      ends_[k].after = after_.cuts[k];
      ends_[k].before = before_.cuts[k];
    }
    const std::vector<size_t> number = NumberOfLastCut(after_);
    const auto add = [&](const std::string& mine, const std::string& theirs) {
      const ValueId v = after_.graph.Find(mine), w = before_.graph.Find(theirs);
      if (v == kNoValue || w == kNoValue) return;
      ends_[number[v]].after.push_back(v);
      ends_[number[v]].before.push_back(w);
    };
    for (const ManifestCache& cache : relation_.caches) add(cache.output, cache.source.output);
    for (const ManifestOutput& output : relation_.outputs) {
      if (!IsCache(output)) add(output.name, NameInSource(output));
    }
  }

  // Makes a piece whose outputs have the types that the whole models declare.
  absl::StatusOr<CutPiece> MakePiece(size_t k) {
    CutPiece cut;
    cut.ends = ends_[k];
    Ends& ends = cut.ends;
    GraphSlice &mine = cut.mine, &theirs = cut.theirs;
    std::vector<const ManifestCache*> caches;
    // A piece has to write each cache that it reads. Adding its output may add nodes that read
    // more.
    for (bool again = true; again;) {
      mine = SliceOf(after_.graph, ends.after, after_.stops);
      theirs = SliceOf(before_.graph, ends.before, before_.stops);
      caches = CachesOf(ends);
      again = AddWriters(mine, theirs, &caches, &ends);
    }
    ModelPiece& piece = cut.piece;
    piece.relation = relation_;
    piece.relation.caches.clear();
    for (const ManifestCache* cache : caches) piece.relation.caches.push_back(*cache);
    KV_RETURN_IF_ERROR(NameShapes(mine, theirs, caches, &cut.my_names, &cut.their_names));
    KV_RETURN_IF_ERROR(RelateInputs(mine, theirs, &piece.relation));
    RelateOutputs(ends, &piece.relation);
    for (ValueId v : mine.entering) piece.entering.push_back(after_.graph.name(v));
    KV_RETURN_IF_ERROR(MakeModels(&cut));
    return cut;
  }

  absl::Status MakeModels(CutPiece* cut) const {
    for (const auto& [side, slice] : {std::pair(&before_, &cut->theirs), {&after_, &cut->mine}}) {
      for (ValueId v : slice->entering) {
        if (side->types.contains(v)) continue;
        return absl::FailedPreconditionError(
            fmt::format("a layer reads {}, which a later one computes", side->graph.name(v)));
      }
    }
    cut->piece.before = MakeModel(before_, cut->theirs, cut->ends.before, cut->their_names);
    cut->piece.after = MakeModel(after_, cut->mine, cut->ends.after, cut->my_names);
    return absl::OkStatus();
  }

  // Finds the types of the stops that a piece computes, and makes its models declare them.
  absl::Status DeclareEnds(CutPiece* cut, TypesOfEnds* types) {
    KV_ASSIGN_OR_RETURN(types->before,
                        TypesInPiece(before_, cut->piece.before.proto, cut->ends.before));
    KV_ASSIGN_OR_RETURN(types->after,
                        TypesInPiece(after_, cut->piece.after.proto, cut->ends.after));
    KeepTypes(cut->ends, *types);
    return MakeModels(cut);
  }

  static absl::StatusOr<std::vector<TensorType>> TypesInPiece(
      const Side& side, const std::shared_ptr<const onnx::ModelProto>& piece,
      const std::vector<ValueId>& ends) {
    KV_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(piece));
    std::vector<ValueId> values;
    for (ValueId v : ends) {
      if (side.stops.contains(v)) values.push_back(graph.Find(side.graph.name(v)));
    }
    return TypesOf(graph, values);
  }

  void KeepTypes(const Ends& ends, const TypesOfEnds& types) {
    const auto keep = [](const std::vector<ValueId>& values, const std::vector<TensorType>& found,
                         Side* side) {
      size_t next = 0;
      for (ValueId v : values) {
        if (side->stops.contains(v)) side->types[v] = found[next++];
      }
    };
    keep(ends.before, types.before, &before_);
    keep(ends.after, types.after, &after_);
  }

  std::vector<const ManifestCache*> CachesOf(const Ends& ends) const {
    std::vector<const ManifestCache*> caches;
    for (const ManifestCache& cache : relation_.caches) {
      const ValueId present = after_.graph.Find(cache.output);
      if (std::find(ends.after.begin(), ends.after.end(), present) != ends.after.end()) {
        caches.push_back(&cache);
      }
    }
    return caches;
  }

  bool AddWriters(const GraphSlice& mine, const GraphSlice& theirs,
                  std::vector<const ManifestCache*>* caches, Ends* ends) const {
    const auto reads = [](const Side& side, const GraphSlice& slice, const std::string& input) {
      const ValueId v = side.graph.Find(input);
      const bool is_read =
          std::find(slice.inputs.begin(), slice.inputs.end(), v) != slice.inputs.end();
      return is_read && !slice.shape_only.contains(v);
    };
    bool added = false;
    for (const ManifestCache& cache : relation_.caches) {
      if (std::find(caches->begin(), caches->end(), &cache) != caches->end()) continue;
      if (!reads(after_, mine, cache.input) && !reads(before_, theirs, cache.source.input)) {
        continue;
      }
      ends->after.push_back(after_.graph.Find(cache.output));
      ends->before.push_back(before_.graph.Find(cache.source.output));
      added = true;
    }
    return added;
  }

  // Where a piece reads only the shape of another layer's cache, it reads the shape of an own cache
  // instead: hosts give the same number of rows to all caches that are declared alike.
  absl::Status NameShapes(const GraphSlice& mine, const GraphSlice& theirs,
                          const std::vector<const ManifestCache*>& caches,
                          absl::flat_hash_map<ValueId, ValueId>* my_names,
                          absl::flat_hash_map<ValueId, ValueId>* their_names) const {
    for (const ManifestCache& cache : relation_.caches) {
      if (std::find(caches.begin(), caches.end(), &cache) != caches.end()) continue;
      const ValueId v = after_.graph.Find(cache.input), w = before_.graph.Find(cache.source.input);
      const bool is_read = mine.shape_only.contains(v) || theirs.shape_only.contains(w);
      if (!is_read || caches.empty()) continue;
      const auto own = std::find_if(caches.begin(), caches.end(), [&](const ManifestCache* c) {
        return IsDeclaredAlike(cache, *c);
      });
      if (own == caches.end()) {
        return absl::FailedPreconditionError(
            fmt::format("a layer reads the shape of {}, and has no cache like it", cache.input));
      }
      my_names->insert({v, after_.graph.Find((*own)->input)});
      their_names->insert({w, before_.graph.Find((*own)->source.input)});
    }
    return absl::OkStatus();
  }

  bool IsDeclaredAlike(const ManifestCache& a, const ManifestCache& b) const {
    const auto type = [](const Side& side, const std::string& name) {
      return side.graph.type(side.graph.Find(name));
    };
    return a.layout == b.layout && a.axis == b.axis && a.source.layout == b.source.layout &&
           a.source.axis == b.source.axis && a.source.growing == b.source.growing &&
           a.source.sliding == b.source.sliding && a.source.kind == b.source.kind &&
           a.ring.has_value() == b.ring.has_value() &&
           type(after_, a.input) == type(after_, b.input) &&
           type(before_, a.source.input) == type(before_, b.source.input);
  }

  absl::Status RelateInputs(const GraphSlice& mine, const GraphSlice& theirs,
                            Manifest* relation) const {
    absl::flat_hash_set<std::string> my_inputs, their_inputs, entering;
    for (ValueId v : mine.inputs) my_inputs.insert(after_.graph.name(v));
    for (ValueId v : theirs.inputs) their_inputs.insert(before_.graph.name(v));
    for (ValueId v : mine.entering) entering.insert(after_.graph.name(v));
    for (ValueId v : theirs.entering) entering.insert(before_.graph.name(v));
    const auto is_cache = [&](const std::string& name) {
      return std::any_of(relation->caches.begin(), relation->caches.end(),
                         [&](const ManifestCache& c) { return c.input == name; });
    };
    std::erase_if(relation->inputs, [&](const ManifestInput& input) {
      if (IsCache(input)) return !is_cache(input.name);
      return !my_inputs.contains(input.name);
    });
    for (const ManifestInput& input : relation->inputs) {
      if (!HasSourceInput(input)) continue;
      const std::string& name = NameInSource(input);
      if (!their_inputs.contains(name)) {
        return absl::FailedPreconditionError(
            fmt::format("the source's layer does not read {}", name));
      }
    }
    std::erase_if(relation->dropped,
                  [&](const DroppedInput& input) { return !their_inputs.contains(input.name); });
    for (const std::string& name : their_inputs) {
      const bool is_known =
          std::any_of(relation->inputs.begin(), relation->inputs.end(),
                      [&](const ManifestInput& i) { return NameInSource(i) == name; }) ||
          std::any_of(relation->dropped.begin(), relation->dropped.end(),
                      [&](const DroppedInput& i) { return i.name == name; }) ||
          std::any_of(relation_.caches.begin(), relation_.caches.end(),
                      [&](const ManifestCache& c) { return c.source.input == name; });
      if (!is_known) {
        return absl::FailedPreconditionError(
            fmt::format("the conversion's layer does not read {}", name));
      }
    }
    std::vector<std::string> names(entering.begin(), entering.end());
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      const auto enters = [&](const Side& side, const GraphSlice& slice) {
        return std::find(slice.entering.begin(), slice.entering.end(), side.graph.Find(name)) !=
               slice.entering.end();
      };
      if (!enters(after_, mine) || !enters(before_, theirs)) {
        return absl::FailedPreconditionError(
            fmt::format("{} enters a layer of one model alone", name));
      }
      ManifestInput& input = relation->inputs.emplace_back();
      input.name = name;
      input.as = SameInput{};
    }
    return absl::OkStatus();
  }

  void RelateOutputs(const Ends& ends, Manifest* relation) const {
    absl::flat_hash_set<std::string> given;
    for (ValueId v : ends.after) given.insert(after_.graph.name(v));
    std::erase_if(relation->outputs,
                  [&](const ManifestOutput& output) { return !given.contains(output.name); });
    for (ValueId v : ends.after) {
      if (!after_.stops.contains(v)) continue;
      const std::string& name = after_.graph.name(v);
      const bool is_output =
          std::any_of(relation->outputs.begin(), relation->outputs.end(),
                      [&](const ManifestOutput& output) { return output.name == name; });
      if (is_output) continue;
      ManifestOutput& output = relation->outputs.emplace_back();
      output.name = name;
      output.as = SameOutput{};
    }
  }

  Model MakeModel(const Side& side, const GraphSlice& slice, const std::vector<ValueId>& outputs,
                  const absl::flat_hash_map<ValueId, ValueId>& names) const {
    Model model = side.model;
    model.proto = BuildSlice(side.graph, slice, outputs, side.types, names);
    model.digest = nullptr;
    return model;
  }

  const Manifest& relation_;
  Side before_, after_;
  std::vector<Ends> ends_;
};

}  // namespace

absl::StatusOr<std::vector<PieceClass>> CutIntoPieces(const Model& before, const Graph& theirs,
                                                      const Model& after, const Graph& mine,
                                                      const Manifest& relation) {
  std::vector<Cut> cuts = FindCuts(theirs, mine, relation);
  // A piece without a cache that differs between the models is joined to the layer beside it.
  for (;;) {
    if (cuts.empty()) return absl::FailedPreconditionError("no layers are found");
    KV_ASSIGN_OR_RETURN(
        std::vector<PieceClass> classes,
        Cutter(relation, MakeSide(before, theirs, cuts), MakeSide(after, mine, cuts)).Run());
    const auto differs = [](const PieceClass& c) {
      return c.piece.relation.caches.empty() && !c.same_nodes;
    };
    if (std::none_of(classes.begin(), classes.end(), differs)) return classes;
    if (differs(classes.front())) {
      cuts.erase(cuts.begin());
    } else {
      cuts.pop_back();
    }
  }
}

}  // namespace kvlift
