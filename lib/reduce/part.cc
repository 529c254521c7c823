#include "reduce/part.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "verify/layers/slice.h"

namespace kvlift {
namespace {

using Names = absl::flat_hash_set<std::string>;
using Types = absl::flat_hash_map<ValueId, TensorType>;

// One model of a part.
struct Side {
  const Model& model;
  const Graph& graph;
  absl::flat_hash_set<ValueId> stops = {};
  Types types = {};                   // of stops and of added outputs
  std::vector<ValueId> outputs = {};  // in the order of the part's outputs
  GraphSlice slice = {};

  void Slice() { slice = SliceOf(graph, outputs, stops); }
  bool Reads(const std::string& input) const {
    const ValueId v = graph.Find(input);
    return std::find(slice.inputs.begin(), slice.inputs.end(), v) != slice.inputs.end();
  }
};

bool HasInitializer(const onnx::GraphProto& graph, const std::string& name) {
  return std::any_of(graph.initializer().begin(), graph.initializer().end(),
                     [&](const onnx::TensorProto& tensor) { return tensor.name() == name; });
}

// Values that enter a part.
struct Entering {
  std::vector<std::string> inputs;
  std::vector<onnx::TensorProto> constants;
};

// Returns the model of one side, with all inputs of the whole model but those in `without`.
// `entering` are those that either side reads.
Model BuildSide(const Side& side, const Names& without, const Entering& entering) {
  onnx::ModelProto proto =
      *BuildSlice(side.graph, side.slice, side.outputs, side.types, /*renamed=*/{});
  Names declared;
  for (const auto& input : proto.graph().input()) declared.insert(input.name());
  google::protobuf::RepeatedPtrField<onnx::ValueInfoProto> inputs;
  const onnx::GraphProto& whole = side.graph.proto();
  for (const auto& input : whole.input()) {
    if (without.contains(input.name())) continue;
    const bool is_weight = HasInitializer(whole, input.name());
    if (declared.contains(input.name()) || !is_weight) *inputs.Add() = input;
  }
  for (const std::string& name : entering.inputs) {
    *inputs.Add() = Declaration(name, side.types.at(side.graph.Find(name)));
  }
  *proto.mutable_graph()->mutable_input() = std::move(inputs);
  for (const onnx::TensorProto& tensor : entering.constants) {
    const ValueId v = side.graph.Find(tensor.name());
    const auto& read = side.slice.entering;
    if (std::find(read.begin(), read.end(), v) == read.end()) continue;
    *proto.mutable_graph()->add_initializer() = tensor;
  }
  return WithProto(side.model, std::move(proto));
}

class PartMaker {
 public:
  PartMaker(const SubjectGraphs& graphs, const PartEnds& ends)
      : graphs_(graphs), ends_(ends), before_{graphs.subject().model, graphs.before()} {
    if (graphs.subject().is_pair()) {
      after_.emplace(Side{graphs.subject().conversion->model, graphs.after()});
    }
  }

  absl::StatusOr<Subject> Make() {
    for (const std::string& name : ends_.entering) {
      const SharedValue& value = *graphs_.Find(name);
      AddStop(value, value.before, &before_);
      if (after_) AddStop(value, value.after, &*after_);
    }
    return after_ ? MakePair() : MakeModel();
  }

 private:
  static void AddStop(const SharedValue& value, ValueId v, Side* side) {
    side->stops.insert(v);
    side->types[v] = value.type;
  }

  absl::StatusOr<Subject> MakeModel() {
    for (const ValueId v : graphs_.before().graph_outputs()) {
      if (!ends_.dropped_outputs.contains(graphs_.before().name(v))) before_.outputs.push_back(v);
    }
    for (const std::string& name : ends_.added_outputs) AddOutput(*graphs_.Find(name));
    if (before_.outputs.empty()) return absl::FailedPreconditionError("the part has no output");
    before_.Slice();
    Subject part;
    part.model = BuildSide(before_, ends_.dropped_inputs, FindEntering());
    return part;
  }

  void AddOutput(const SharedValue& value) {
    if (Contains(before_.outputs, value.before)) return;
    before_.outputs.push_back(value.before);
    before_.types[value.before] = value.type;
    if (!after_) return;
    after_->outputs.push_back(value.after);
    after_->types[value.after] = value.type;
    ManifestOutput& output = relation_.outputs.emplace_back();
    output.name = value.name;
    output.as = SameOutput{};
  }

  static bool Contains(const std::vector<ValueId>& values, ValueId v) {
    return std::find(values.begin(), values.end(), v) != values.end();
  }

  // Returns the values that enter either side, in the order of the graph.
  Entering FindEntering() const {
    Entering entering;
    for (const SharedValue& value : graphs_.values()) {
      if (!ends_.entering.contains(value.name)) continue;
      const auto enters = [](const Side& side, ValueId v) {
        return Contains(side.slice.entering, v);
      };
      if (enters(before_, value.before) || (after_ && enters(*after_, value.after))) {
        if (value.constant) {
          entering.constants.push_back(*value.constant);
        } else {
          entering.inputs.push_back(value.name);
        }
      }
    }
    return entering;
  }

  absl::StatusOr<Subject> MakePair() {
    const Manifest& whole = graphs_.subject().conversion->relation;
    relation_ = whole;
    relation_.caches.clear();
    relation_.outputs.clear();
    for (const ManifestOutput& output : whole.outputs) {
      if (ends_.dropped_outputs.contains(output.name)) continue;
      if (const CacheOutput* cache = AsCache(output)) {
        TakeCache(cache->id);
      } else {
        TakeOutput(output, NameInSource(output));
      }
    }
    for (const std::string& name : ends_.added_outputs) AddOutput(*graphs_.Find(name));
    TakeReadCaches();
    if (before_.outputs.empty()) return absl::FailedPreconditionError("the part has no output");
    const Entering entering = FindEntering();
    const Names without = RelateInputs(entering.inputs);
    Subject part;
    part.model = BuildSide(before_, without, entering);
    part.conversion = {BuildSide(*after_, without, entering), std::move(relation_)};
    return part;
  }

  void TakeOutput(const ManifestOutput& output, const std::string& name_before) {
    const ValueId v = graphs_.before().Find(name_before), w = graphs_.after().Find(output.name);
    if (v == kNoValue || w == kNoValue) return;
    // Several caches may share an output.
    if (!Contains(before_.outputs, v)) before_.outputs.push_back(v);
    if (!Contains(after_->outputs, w)) after_->outputs.push_back(w);
    relation_.outputs.push_back(output);
  }

  bool Takes(const ManifestCache& cache) const {
    return std::any_of(relation_.caches.begin(), relation_.caches.end(),
                       [&](const ManifestCache& c) { return c.id == cache.id; });
  }

  void TakeCache(const std::string& id) {
    const Manifest& whole = graphs_.subject().conversion->relation;
    for (const ManifestCache& cache : whole.caches) {
      if (cache.id != id || Takes(cache)) continue;
      relation_.caches.push_back(cache);
      for (const ManifestOutput& output : whole.outputs) {
        const CacheOutput* of = AsCache(output);
        if (of != nullptr && of->id == id) TakeOutput(output, cache.source.output);
      }
    }
  }

  // Takes all caches that a node of the part reads. Their outputs may need nodes that read more.
  void TakeReadCaches() {
    const Manifest& whole = graphs_.subject().conversion->relation;
    for (bool again = true; again;) {
      again = false;
      before_.Slice();
      after_->Slice();
      for (const ManifestCache& cache : whole.caches) {
        if (Takes(cache)) continue;
        if (!before_.Reads(cache.source.input) && !after_->Reads(cache.input)) continue;
        TakeCache(cache.id);
        again = true;
      }
      if (again || !relation_.caches.empty() || whole.caches.empty()) continue;
      TakeCache(whole.caches.front().id);
      again = true;
    }
  }

  // Makes the relation that of the part's inputs. Returns the inputs that the part does not have.
  Names RelateInputs(const std::vector<std::string>& entering) {
    const Manifest& whole = graphs_.subject().conversion->relation;
    Names pasts, without = ends_.dropped_inputs;
    for (const ManifestCache& cache : relation_.caches) {
      pasts.insert(cache.input);
      pasts.insert(cache.source.input);
    }
    for (const ManifestCache& cache : whole.caches) {
      for (const std::string& past : {cache.input, cache.source.input}) {
        if (!pasts.contains(past)) without.insert(past);
      }
    }
    std::erase_if(relation_.inputs, [&](const ManifestInput& input) {
      return without.contains(input.name) || without.contains(NameInSource(input));
    });
    std::erase_if(relation_.dropped,
                  [&](const DroppedInput& input) { return without.contains(input.name); });
    for (const std::string& name : entering) {
      ManifestInput& input = relation_.inputs.emplace_back();
      input.name = name;
      input.as = SameInput{};
    }
    return without;
  }

  const SubjectGraphs& graphs_;
  const PartEnds& ends_;
  Side before_;
  std::optional<Side> after_;
  Manifest relation_;
};

}  // namespace

absl::StatusOr<Subject> PartOf(const SubjectGraphs& graphs, const PartEnds& ends) {
  return PartMaker(graphs, ends).Make();
}

}  // namespace kvlift
