// Describes a candidate by its shapes and by the form of its present: on which axes the present
// differs from the past, and how it seems to be made.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "fmt/format.h"
#include "ir/operators/operator_traits.h"
#include "rewrite/recognise/candidates.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Kind;

// Extents that are written differently may be equal if one of them is a symbol that the other one
// does not contain, since inputs declare symbols of their own for one size.
bool MayBeEqual(Expr a, Expr b) {
  if (a == b) return true;
  if (a->kind() == Kind::kInteger || b->kind() == Kind::kInteger) return false;
  return (a->kind() == Kind::kDim && !sym::ContainsDim(b, a->dim())) ||
         (b->kind() == Kind::kDim && !sym::ContainsDim(a, b->dim()));
}

std::string Shortened(const Graph& graph, Expr e) {
  std::string text = sym::ToString(e, &graph);
  constexpr size_t kMaxText = 200;
  if (text.size() > kMaxText) {
    text.resize(kMaxText);
    text.append("...");
  }
  return text;
}

bool HasEquality(Expr e) {
  if (e->kind() != Kind::kSelect) return false;
  for (Expr part : sym::ConjunctsOf(e->args()[0])) {
    if (part->kind() == Kind::kEq) return true;
    if (part->kind() == Kind::kNot && part->args()[0]->kind() == Kind::kEq) return true;
  }
  return false;
}

}  // namespace

int RankOf(sym::Forms& forms, ValueId v) {
  if (forms.Of(v).known_rank) return static_cast<int>(forms.Of(v).shape.size());
  const auto& shape = forms.graph().type(v).shape;
  return shape ? static_cast<int>(shape->size()) : -1;
}

NodeId FirstOfUnknownRank(sym::Forms& forms, ValueId v) {
  const Graph& graph = forms.graph();
  NodeId first = kNoNode;
  for (NodeId n = graph.producer(v); n != kNoNode; n = graph.producer(v)) {
    const auto inputs = graph.inputs(n);
    const auto unknown = std::find_if(inputs.begin(), inputs.end(), [&](ValueId input) {
      return input != kNoValue && !forms.Of(input).known_rank;
    });
    if (unknown == inputs.end()) break;
    v = *unknown;
    first = graph.producer(v);
  }
  return first;
}

bool IsScatter(const Graph& graph, NodeId n) {
  return graph.Is(n, "ScatterND") || graph.Is(n, "ScatterElements");
}

// Returns the axes on which the two shapes differ; nullopt if a shape is not known. An opaque
// output may have symbols of its own, so only numbers show a difference there.
std::optional<std::vector<int>> DifferingAxes(sym::Forms& forms, ValueId input, ValueId output) {
  const sym::Form before = forms.Of(input), after = forms.Of(output);
  if (!before.known_rank || !after.known_rank || before.shape.size() != after.shape.size()) {
    return std::nullopt;
  }
  std::vector<int> axes, named;  // named: a number on one side, a symbol on the other
  for (size_t k = 0; k < before.shape.size(); ++k) {
    const Expr a = before.shape[k], b = after.shape[k];
    const bool numbers = a->kind() == Kind::kInteger || b->kind() == Kind::kInteger;
    if (MayBeEqual(a, b) || (!numbers && after.opaque)) continue;
    const bool own_name = a->kind() == Kind::kDim || b->kind() == Kind::kDim;
    (numbers && own_name ? named : axes).push_back(static_cast<int>(k));
  }
  return axes.empty() ? named : axes;
}

// Returns true if some element of the past is read at another place than its own.
bool MovesPast(ValueId past, Expr e) {
  std::vector<Expr> stack = {e};
  while (!stack.empty()) {
    const Expr x = stack.back();
    stack.pop_back();
    if (x->kind() == Kind::kLoad && x->source() == past) {
      for (size_t k = 0; k < x->args().size(); ++k) {
        const Expr arg = x->args()[k];
        if (arg->kind() != Kind::kIndex || arg->index() != static_cast<int>(k)) return true;
      }
      continue;
    }
    if (x->kind() == Kind::kSelect) {
      stack.push_back(x->args()[1]);
      stack.push_back(x->args()[2]);
    }
  }
  return false;
}

namespace {

// Returns true if exporters and wrappers would give the present of this past that name.
bool IsPresentName(const std::string& past, const std::string& name) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"past_key_values", "present"},
      {"past", "present"},
      {"past", "new"},
      {"past", "updated"},
      {"input", "output"},
      {"_in", "_out"},
      {"in_", "out_"},
      {"old", "new"}};
  for (const auto& [from, to] : kWords) {
    const size_t at = past.find(from);
    if (at == std::string::npos) continue;
    if (name == fmt::format("{}{}{}", past.substr(0, at), to, past.substr(at + from.size()))) {
      return true;
    }
  }
  return name == past + "_out" || name == past + "_new" || name == past + "_updated" ||
         name == "new_" + past || name == "out_" + past || name == "updated_" + past;
}

// Returns the first QuantizeLinear through which elements of the past come to `v` by operators that
// move or round them; kNoNode if none of these is one, nullopt if none come there.
std::optional<NodeId> QuantizerBetween(const Graph& graph, ValueId past, ValueId v, int depth = 0) {
  constexpr int kMostNodes = 16;
  if (v == past) return kNoNode;
  const NodeId n = v == kNoValue ? kNoNode : graph.producer(v);
  if (n == kNoNode || depth > kMostNodes) return std::nullopt;
  std::vector<int> from = MovedOperands(graph.node(n));
  if (graph.Is(n, "QuantizeLinear") || graph.Is(n, "DequantizeLinear")) from = {0};
  for (int k : from) {
    const auto found = QuantizerBetween(graph, past, graph.inputs(n)[k], depth + 1);
    if (found) return *found == kNoNode && graph.Is(n, "QuantizeLinear") ? n : *found;
  }
  return std::nullopt;
}

// Returns the quantiser that changes rows of the past that the present holds: the present reads
// them from a DequantizeLinear, whose numbers the past need not hold. Returns kNoNode if there is
// none.
NodeId QuantizerOfPast(const Graph& graph, const CachePair& pair, Expr present) {
  for (Expr load : sym::LoadsOf(present)) {
    const NodeId n = graph.producer(load->source());
    if (n == kNoNode || !graph.Is(n, "DequantizeLinear")) continue;
    const auto found = QuantizerBetween(graph, pair.past, load->source());
    if (found && *found != kNoNode) return *found;
  }
  return kNoNode;
}

// Returns true if the value is computed from the input by a few nodes.
bool IsMadeFrom(const Graph& graph, ValueId v, ValueId input) {
  constexpr int kMostValues = 64;
  std::vector<ValueId> open = {v};
  for (int k = 0; k < kMostValues && !open.empty(); ++k) {
    const ValueId next = open.back();
    open.pop_back();
    if (next == input) return true;
    const NodeId n = next == kNoValue ? kNoNode : graph.producer(next);
    if (n == kNoNode) continue;
    open.insert(open.end(), graph.inputs(n).rbegin(), graph.inputs(n).rend());
  }
  return false;
}

}  // namespace

bool HasNamesake(const Graph& graph, const CachePair& pair) {
  const std::string& past = graph.name(pair.past);
  if (IsPresentName(past, graph.name(pair.present))) return false;
  const TensorType& own = graph.type(pair.present);
  return absl::c_any_of(graph.graph_outputs(), [&](ValueId other) {
    const TensorType& type = graph.type(other);
    return other != pair.present && type.elem_type == own.elem_type && type.shape && own.shape &&
           type.shape->size() == own.shape->size() && IsPresentName(past, graph.name(other)) &&
           IsMadeFrom(graph, other, pair.past);
  });
}

Finding RoundsAgain(const Graph& graph, const CachePair& pair, NodeId quantizer) {
  return MakeFinding(
      "KV202",
      fmt::format("needs {} to be {} with new rows written into it, found {}, which rounds the "
                  "rows of the past again in each step",
                  graph.name(pair.present), graph.name(pair.past), graph.node(quantizer).op_type()),
      graph, {quantizer}, {pair.past, pair.present});
}

Candidate DescribeCandidate(sym::Forms& forms, const CachePair& pair) {
  const Graph& graph = forms.graph();
  const auto [past, present] = pair;
  const sym::Form before = forms.Of(past), after = forms.Of(present);
  Candidate c;
  c.pair = pair;
  if (const auto axes = DifferingAxes(forms, past, present); axes && !axes->empty()) {
    c.growing = true;
    c.axis = axes->back();
  }
  const NodeId node = graph.producer(present);
  const NodeId quantizer = QuantizerOfPast(graph, pair, after.element);
  if (quantizer != kNoNode) {
    c.kind = c.growing ? UpdateKind::kConcat : UpdateKind::kScatter;
    c.if_unmatched = RoundsAgain(graph, pair, quantizer);
    return c;
  }
  if (c.growing) {
    c.kind = UpdateKind::kConcat;
    c.if_unmatched = MakeFinding(
        "KV202", fmt::format("needs t < P ? past : new, found {}", Shortened(graph, after.element)),
        graph, {node}, {past, present});
    return c;
  }
  if (MovesPast(past, after.element)) {
    c.kind = UpdateKind::kShift;
    c.if_unmatched = MakeFinding("KV205",
                                 fmt::format("needs rows that stay where they are, found {}",
                                             Shortened(graph, after.element)),
                                 graph, {node}, {past, present});
    return c;
  }
  c.kind = HasEquality(after.element) ? UpdateKind::kSelect : UpdateKind::kScatter;
  c.if_unmatched =
      MakeFinding("KV204",
                  fmt::format("needs rows written at consecutive slots of each sequence, found {}",
                              Shortened(graph, after.element)),
                  graph, {node}, {past, present});
  return c;
}

}  // namespace kvlift
