#include "ports/model_ports.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "ports/views.h"

namespace kvlift::ports {
namespace {

constexpr size_t kUpdate = 1;  // of TensorScatter
constexpr size_t kMask = 3;    // of Attention

using Values = std::vector<ValueId>;

// An input whose elements choose rows of a constant table.
struct Lookup {
  ValueId input = kNoValue;
  int64_t rows = 0, width = 0;  // of the table
};

ValueId OnlyOne(const Values& values) { return values.size() == 1 ? values.front() : kNoValue; }

class PortReader {
 public:
  PortReader(const Graph& graph, const StaticCache& cache) : graph_(graph), cache_(cache) {
    taken_ = {cache.write_indices, cache.kv_length};
    for (const LayerCaches& layer : cache.layers) {
      for (const CachePort& port : {layer.key, layer.value}) {
        taken_.insert(port.input);
        taken_.insert(port.output);
      }
    }
    for (const ValueId v : graph.graph_outputs()) {
      if (!taken_.contains(v)) outputs_.push_back(v);
    }
    new_keys_ = SourcesOf(graph, graph.inputs(cache.layers.front().key.writer)[kUpdate]);
    new_values_ = SourcesOf(graph, graph.inputs(cache.layers.front().value.writer)[kUpdate]);
  }

  ModelPorts Run() {
    FindTokens();
    FindMask();
    FindPositions();
    FindLogits();
    return ports_;
  }

 private:
  const Dim* DimOf(ValueId v, int64_t axis) const {
    const auto& shape = graph_.type(v).shape;
    if (!shape) return nullptr;
    const auto rank = static_cast<int64_t>(shape->size());
    if (axis < 0) axis += rank;
    return axis >= 0 && axis < rank ? &(*shape)[static_cast<size_t>(axis)] : nullptr;
  }
  size_t Rank(ValueId v) const { return graph_.type(v).shape ? graph_.type(v).shape->size() : 0; }
  std::optional<int64_t> SizeOf(ValueId v, int64_t axis) const {
    const Dim* dim = DimOf(v, axis);
    return dim == nullptr ? std::nullopt : dim->value;
  }
  // Returns true if both axes are declared and equal.
  bool SameDim(ValueId a, int64_t axis, ValueId b, int64_t other) const {
    const Dim *x = DimOf(a, axis), *y = DimOf(b, other);
    return x != nullptr && y != nullptr && x->known() && *x == *y;
  }
  bool IsInteger(ValueId v) const { return IsIntegerType(graph_.type(v).elem_type); }
  bool IsFloat(ValueId v) const { return IsFloatType(graph_.type(v).elem_type); }

  // Returns the inputs for which the condition holds, without those that have a role.
  template <typename Condition>
  Values Inputs(Condition&& holds) const {
    Values found;
    for (const ValueId v : graph_.graph_inputs()) {
      if (!taken_.contains(v) && holds(v)) found.push_back(v);
    }
    return found;
  }
  ValueId Take(ValueId v) {
    if (v != kNoValue) taken_.insert(v);
    return v;
  }

  // Returns what a node looks up in a constant table of rows, if it does.
  std::optional<Lookup> LookupOf(NodeId n) const {
    const auto& node = graph_.node(n);
    const bool packed =
        node.op_type() == "GatherBlockQuantized" && node.domain() == "com.microsoft";
    if (!graph_.Is(n, "Gather") && !packed) return std::nullopt;
    if (IntAttribute(node, packed ? "gather_axis" : "axis", 0) != 0) return std::nullopt;
    const auto inputs = graph_.inputs(n);
    if (inputs.size() < 2 || inputs[0] == kNoValue || inputs[1] == kNoValue) return std::nullopt;
    const auto rows = SizeOf(inputs[0], 0);
    if (graph_.constant(BehindReads(graph_, inputs[0]).root) == nullptr || Rank(inputs[0]) < 2 ||
        !rows || graph_.outputs(n).empty() || graph_.outputs(n)[0] == kNoValue) {
      return std::nullopt;
    }
    const ValueId indices = BehindVectorViews(graph_, inputs[1]);
    if (!graph_.is_graph_input(indices) || !IsInteger(indices)) return std::nullopt;
    return Lookup{indices, *rows, SizeOf(graph_.outputs(n)[0], -1).value_or(0)};
  }

  bool IsScoredByAnOutput(const Lookup& lookup) const {
    return std::any_of(outputs_.begin(), outputs_.end(),
                       [&](ValueId v) { return IsFloat(v) && SizeOf(v, -1) == lookup.rows; });
  }

  void FindTokens() {
    std::vector<Lookup> lookups, scored;
    Values inputs, scored_inputs;
    const auto add = [](const Lookup& lookup, std::vector<Lookup>* all, Values* distinct) {
      all->push_back(lookup);
      if (std::find(distinct->begin(), distinct->end(), lookup.input) == distinct->end()) {
        distinct->push_back(lookup.input);
      }
    };
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      const auto lookup = LookupOf(n);
      if (!lookup || taken_.contains(lookup->input)) continue;
      if (!new_values_.contains(graph_.outputs(n)[0])) continue;
      add(*lookup, &lookups, &inputs);
      if (IsScoredByAnOutput(*lookup)) add(*lookup, &scored, &scored_inputs);
    }
    const Values floats =
        Inputs([&](ValueId v) { return IsFloat(v) && Rank(v) == 3 && new_values_.contains(v); });
    const bool alone = floats.empty() && inputs.size() == 1;
    ports_.tokens = Take(alone ? inputs.front() : OnlyOne(scored_inputs));
    if (ports_.tokens != kNoValue) {
      const auto& known = alone ? lookups : scored;
      table_ = *std::find_if(known.begin(), known.end(),
                             [&](const Lookup& l) { return l.input == ports_.tokens; });
    } else if (inputs.empty()) {
      ports_.embeds = Take(OnlyOne(floats));
    }
  }

  ValueId Sequence() const { return ports_.tokens != kNoValue ? ports_.tokens : ports_.embeds; }

  void FindMask() {
    absl::flat_hash_set<ValueId> masks;
    for (const LayerCaches& layer : cache_.layers) {
      const auto inputs = graph_.inputs(layer.attention);
      if (inputs.size() > kMask && inputs[kMask] != kNoValue) {
        masks.merge(SourcesOf(graph_, inputs[kMask]));
      }
    }
    const CachePort& cache = cache_.layers.front().key;
    const bool direct = graph_.inputs(cache.writer)[0] == cache.input;
    const int64_t slots = IntAttribute(graph_.node(cache.writer), "axis", -2);
    ports_.attention_mask = Take(OnlyOne(Inputs([&](ValueId v) {
      return direct && masks.contains(v) && Rank(v) == 2 && SameDim(v, 1, cache.input, slots) &&
             !(Sequence() != kNoValue && SameDim(v, 1, Sequence(), 1));
    })));
  }

  // Returns true if the last axes of v are those of the tokens, [B, S].
  bool IsPerToken(ValueId v) const {
    const ValueId tokens = Sequence();
    if (tokens == kNoValue || Rank(tokens) < 2 || Rank(v) < 2 || Rank(v) > 3) return false;
    return SameDim(v, -2, tokens, 0) && SameDim(v, -1, tokens, 1);
  }

  void FindPositions() {
    ports_.positions = Take(OnlyOne(Inputs([&](ValueId v) {
      return IsInteger(v) && new_keys_.contains(v) && !new_values_.contains(v) && IsPerToken(v);
    })));
  }

  void FindLogits() {
    Values scores;
    for (const ValueId v : outputs_) {
      const bool wanted = ports_.tokens != kNoValue
                              ? SizeOf(v, -1) == table_.rows
                              : ports_.embeds != kNoValue && DimOf(v, -1) != nullptr &&
                                    DimOf(v, -1)->value &&
                                    SizeOf(v, -1) != SizeOf(ports_.embeds, -1);
      if (IsFloat(v) && wanted) scores.push_back(v);
    }
    ports_.logits = OnlyOne(scores);
    if (ports_.logits != kNoValue || outputs_.size() != 1 || ports_.tokens == kNoValue) return;
    const auto last = SizeOf(outputs_.front(), -1);
    if (IsFloat(outputs_.front()) && last && *last != table_.width)
      ports_.logits = outputs_.front();
  }

  const Graph& graph_;
  const StaticCache& cache_;
  ModelPorts ports_;
  Lookup table_;                                        // of the tokens
  Values outputs_;                                      // beside the caches
  absl::flat_hash_set<ValueId> taken_;                  // what has a role
  absl::flat_hash_set<ValueId> new_keys_, new_values_;  // what the first layer's rows depend on
};

}  // namespace

ModelPorts ReadModelPorts(const Graph& graph, const StaticCache& cache) {
  return PortReader(graph, cache).Run();
}

}  // namespace kvlift::ports
