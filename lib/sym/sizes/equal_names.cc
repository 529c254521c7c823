#include "sym/sizes/equal_names.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/live_nodes.h"
#include "ir/types.h"
#include "sym/forms/keeps_value.h"

namespace kvlift::sym {
namespace {

// Returns the two sizes that a condition says are equal (kEq), or of which the first is no larger
// than the second (kLe); nullopt if it says anything else.
std::optional<std::pair<std::string, std::string>> ComparedSizes(Expr condition, Kind comparison) {
  if (condition->kind() != comparison) return std::nullopt;
  const Expr zero = condition->args()[0];
  if (zero->kind() != Kind::kSum || zero->terms().size() != 2) return std::nullopt;
  const Term &x = zero->terms()[0], &y = zero->terms()[1];
  if (x.coefficient + y.coefficient != 0) return std::nullopt;
  for (const Term* term : {&x, &y}) {
    if (term->atoms.size() != 1 || term->atoms[0]->kind() != Kind::kDim) return std::nullopt;
    if (term->atoms[0]->dim().is_internal()) return std::nullopt;
  }
  const Term &less = x.coefficient > 0 ? x : y, &more = x.coefficient > 0 ? y : x;
  if (less.coefficient != 1) return std::nullopt;
  return std::pair(less.atoms[0]->dim().name(), more.atoms[0]->dim().name());
}

// Returns the place of each name among those that inputs declare.
absl::flat_hash_map<std::string, int> PlacesOf(const Graph& graph) {
  absl::flat_hash_map<std::string, int> places;
  for (const ValueId input : graph.graph_inputs()) {
    if (!graph.type(input).shape) continue;
    for (const Dim& dim : *graph.type(input).shape) {
      if (!dim.value && !dim.param.empty()) {
        places.try_emplace(dim.param, static_cast<int>(places.size()));
      }
    }
  }
  return places;
}

// Returns the value that v is behind Identity and Cast nodes; v itself if no such node makes it.
ValueId Unpassed(Forms& forms, ValueId v) {
  const Graph& graph = forms.graph();
  for (NodeId n = graph.producer(v); n != kNoNode; n = graph.producer(v)) {
    const auto passed = PassedThrough(forms, n);
    if (!passed) break;
    v = graph.inputs(n)[passed->input];
  }
  return v;
}

// Returns true if inputs declare this name for the rows of matrices only.
bool IsOfRows(const Graph& graph, const std::string& name) {
  for (const ValueId input : graph.graph_inputs()) {
    if (!graph.type(input).shape) continue;
    const auto& shape = *graph.type(input).shape;
    for (size_t k = 0; k < shape.size(); ++k) {
      if (shape[k].param == name && (k > 0 || shape.size() != 2)) return false;
    }
  }
  return true;
}

// Returns true if inputs declare this name for their first axis only, as that of a batch.
bool IsOfFirstAxes(const Graph& graph, const std::string& name) {
  for (const ValueId input : graph.graph_inputs()) {
    if (!graph.type(input).shape) continue;
    const auto& shape = *graph.type(input).shape;
    for (size_t k = 1; k < shape.size(); ++k) {
      if (shape[k].param == name) return false;
    }
  }
  return true;
}

// Returns the rows X of an input [X, Y] that a Reshape makes [B, X * Y div B], and B; nullopt for
// any other Reshape.
std::optional<std::pair<Expr, Expr>> RowsOfReshape(Forms& forms, NodeId n) {
  const Graph& graph = forms.graph();
  Pool& pool = forms.pool();
  const ValueId matrix = Unpassed(forms, graph.inputs(n)[0]);
  if (!graph.is_graph_input(matrix)) return std::nullopt;
  const Form from = forms.Of(matrix), to = forms.Of(graph.outputs(n)[0]);
  if (!from.known_rank || from.shape.size() != 2 || !to.known_rank || to.shape.size() != 2) {
    return std::nullopt;
  }
  const Expr rows = from.shape[0], sequences = to.shape[0];
  const Expr rest = pool.FloorDiv(pool.Mul(rows, from.shape[1]), sequences, Facts{});
  if (to.shape[1] != rest) return std::nullopt;
  return std::pair(rows, sequences);
}

// Returns true if all nodes that read the value, behind Identity nodes, make truth values of it.
bool IsReadAsTruth(const Graph& graph, ValueId v) {
  const auto uses = graph.uses(v);
  return !uses.empty() && std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
    if (use.kind != Use::Kind::kNodeInput) return false;
    if (graph.Is(use.node, "Identity")) return IsReadAsTruth(graph, graph.outputs(use.node)[0]);
    return graph.Is(use.node, "Cast") &&
           IntAttribute(graph.node(use.node), "to", 0) == onnx::TensorProto::BOOL;
  });
}

// Returns the rows X of a mask [X, Y], an input of integers that is read as truth values, which a
// look-up reads at rows 0 to B - 1 in this order, and B, which is the size of a batch; nullopt for
// any other look-up.
std::optional<std::pair<Expr, Expr>> RowsOfLookup(Forms& forms, NodeId n) {
  const Graph& graph = forms.graph();
  const ValueId mask = Unpassed(forms, graph.inputs(n)[0]);
  if (!graph.is_graph_input(mask) || !IsIntegerType(forms.ElementType(mask))) return std::nullopt;
  if (mask == graph.inputs(n)[0] ? !IsReadAsTruth(graph, graph.outputs(n)[0])
                                 : !IsReadAsTruth(graph, mask)) {
    return std::nullopt;
  }
  const Form from = forms.Of(mask), to = forms.Of(graph.outputs(n)[0]);
  if (!from.known_rank || from.shape.size() != 2 || !to.known_rank) return std::nullopt;
  for (const Expr load : LoadsOf(to.element)) {
    if (load->source() != mask || load->args()[0]->kind() != Kind::kIndex) continue;
    const auto axis = static_cast<size_t>(load->args()[0]->index());
    if (axis >= to.shape.size() || to.shape[axis]->kind() != Kind::kDim) continue;
    if (!IsOfFirstAxes(graph, to.shape[axis]->dim().name())) continue;
    return std::pair(from.shape[0], to.shape[axis]);
  }
  return std::nullopt;
}

// Returns true if an input of real numbers with three axes or more, such as a cache, declares this
// name for its first axis, and `is` is true for it.
template <typename Is>
bool IsOfCaches(const Graph& graph, const std::string& name, const Is& is) {
  const auto inputs = graph.graph_inputs();
  return std::any_of(inputs.begin(), inputs.end(), [&](ValueId input) {
    const auto& shape = graph.type(input).shape;
    return shape && shape->size() >= 3 && shape->front().param == name &&
           IsFloatType(graph.type(input).elem_type) && is(input);
  });
}

// Returns true if an output of as many axes holds elements of the input, as presents do of a past.
bool IsKept(Forms& forms, ValueId input) {
  const Graph& graph = forms.graph();
  const auto outputs = graph.graph_outputs();
  return std::any_of(outputs.begin(), outputs.end(), [&](ValueId output) {
    if (graph.producer(output) == kNoNode) return false;
    const Form form = forms.Of(output);
    if (!form.known_rank || form.shape.size() != graph.type(input).shape->size()) return false;
    const std::vector<Expr> loads = LoadsOf(form.element);
    return std::any_of(loads.begin(), loads.end(),
                       [&](Expr load) { return load->source() == input; });
  });
}

// Returns true if an input of integers for which `is` is true holds indices of a stored table, as
// token ids are of an embedding. Integers that are computed from it count as it.
template <typename Is>
bool ReadsTokens(Forms& forms, const Is& is) {
  constexpr size_t kMost = 32;
  const Graph& graph = forms.graph();
  std::vector<ValueId> open;
  for (const ValueId input : graph.graph_inputs()) {
    if (IsIntegerType(graph.type(input).elem_type) && is(input)) open.push_back(input);
  }
  for (size_t k = 0; k < std::min(open.size(), kMost); ++k) {
    for (const Use& use : graph.uses(open[k])) {
      if (use.kind != Use::Kind::kNodeInput) continue;
      const bool table = graph.Is(use.node, "Gather") && use.index == 1 &&
                         IsOfConstants(graph, graph.inputs(use.node)[0]);
      const ValueId made = graph.outputs(use.node)[0];
      if (table && IsFloatType(forms.ElementType(made))) return true;
      if (IsIntegerType(forms.ElementType(made))) open.push_back(made);
    }
  }
  return false;
}

// Returns true if such an input declares this name for its first axis.
bool IsOfTokens(Forms& forms, const std::string& name) {
  return ReadsTokens(forms, [&](ValueId input) {
    const auto& shape = forms.graph().type(input).shape;
    return shape && !shape->empty() && shape->front().param == name;
  });
}

// The names of two batches that may differ only where caches have room for more than the sequences
// of a step.
struct Batches {
  std::string a, b;
  bool cut = false;  // a Slice cuts b to a
};

// Returns the batches that an assumption is about: a broadcast of new rows and a cache takes them
// as equal, although one sequence would be written to all, or a Slice cuts one to the other.
// Returns nullopt if it is about anything else.
std::optional<Batches> BatchesOf(const FormAssumption& assumption) {
  const bool cut = assumption.reason == AssumptionReason::kInside;
  if (!cut && assumption.reason != AssumptionReason::kBroadcast) return std::nullopt;
  auto sizes = ComparedSizes(assumption.predicate, cut ? Kind::kLe : Kind::kEq);
  if (!sizes) return std::nullopt;
  return Batches{std::move(sizes->first), std::move(sizes->second), cut};
}

// Adds the names of batches of caches that hold exactly the sequences of the step. The batch of the
// step is that of the tokens. Where the model reads no tokens, it is what a Slice cuts pasts to.
void AddBatches(Forms& forms, const absl::flat_hash_map<std::string, int>& places,
                SizeNames* names) {
  const Graph& graph = forms.graph();
  const auto live = LiveNodes(graph);
  const bool any_tokens = ReadsTokens(forms, [](ValueId) { return true; });
  for (const FormAssumption& assumption : forms.assumptions()) {
    if (!live.contains(assumption.node)) continue;
    const auto batches = BatchesOf(assumption);
    if (!batches) continue;
    auto [a, b, cut] = *batches;
    if (!IsOfFirstAxes(graph, a) || !IsOfFirstAxes(graph, b)) continue;
    if (!IsOfTokens(forms, a) && IsOfTokens(forms, b)) std::swap(a, b);
    // Where tokens name the batch of the caches, others that are looked up may be rows for all.
    if (any_tokens ? !IsOfTokens(forms, a) || IsOfTokens(forms, b) : !cut) continue;
    const auto counts = [&](ValueId input) { return any_tokens || IsKept(forms, input); };
    if (!IsOfCaches(graph, b, counts)) continue;
    if (places.contains(a) && places.contains(b)) names->try_emplace(b, a);
  }
}

}  // namespace

void RenameSizes(const SizeNames& names, onnx::GraphProto* graph) {
  for (onnx::ValueInfoProto& input : *graph->mutable_input()) {
    if (!input.type().tensor_type().has_shape()) continue;
    for (auto& dim : *input.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim()) {
      const auto it = names.find(dim.dim_param());
      if (it != names.end()) dim.set_dim_param(it->second);
    }
  }
}

SizeNames EqualNamesOf(const Forms& forms) {
  const auto places = PlacesOf(forms.graph());
  // Nodes on which no output depends are not counted, because a runtime may skip them and their
  // requirements.
  const auto live = LiveNodes(forms.graph());
  SizeNames next;  // by name: an equal one that is declared earlier
  const auto first_of = [&](std::string name) {
    for (auto it = next.find(name); it != next.end(); it = next.find(name)) name = it->second;
    return name;
  };
  for (const FormAssumption& assumption : forms.assumptions()) {
    if (assumption.reason != AssumptionReason::kEqualExtents) continue;
    if (!live.contains(assumption.node)) continue;
    const auto sizes = ComparedSizes(assumption.predicate, Kind::kEq);
    if (!sizes) continue;
    std::string a = first_of(sizes->first), b = first_of(sizes->second);
    if (a == b || !places.contains(a) || !places.contains(b)) continue;
    if (places.at(b) < places.at(a)) std::swap(a, b);
    next[b] = a;
  }
  SizeNames names;
  for (const auto& [name, _] : next) names[name] = first_of(name);
  return names;
}

SizeNames RowNamesOf(Forms& forms) {
  const Graph& graph = forms.graph();
  const auto places = PlacesOf(graph);
  SizeNames names;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    std::optional<std::pair<Expr, Expr>> read;
    if (graph.Is(n, "Reshape")) read = RowsOfReshape(forms, n);
    if (graph.Is(n, "Gather") || graph.Is(n, "GatherND")) read = RowsOfLookup(forms, n);
    if (!read) continue;
    const auto [rows, sequences] = *read;
    if (rows->kind() != Kind::kDim || sequences->kind() != Kind::kDim || rows == sequences) {
      continue;
    }
    const std::string row_name = rows->dim().name(), name = sequences->dim().name();
    if (!places.contains(name) || !places.contains(row_name)) continue;
    if (!IsOfRows(graph, row_name)) continue;
    names.try_emplace(row_name, name);
  }
  AddBatches(forms, places, &names);
  return names;
}

}  // namespace kvlift::sym
