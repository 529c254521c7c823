#include "verify/inputs/ledger.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "ir/operators/operator_changes.h"
#include "ir/tensor_data.h"
#include "ir/types.h"
#include "onnxio/model/functions.h"
#include "verify/inputs/added_sequences.h"
#include "verify/inputs/cache_claims.h"

namespace kvlift {
namespace {

// Returns the entry that an input of the source holds what the relation requires of it.
Assumption Required(const Graph& source, const DroppedInput& required) {
  const std::string& name = required.name;
  const std::string text = GivenText(required);
  Assumption a;
  a.subject = name;
  a.source = AssumptionSource::kManifest;
  if (const auto all = AllOf(required)) {
    a.kind = *all == AllElements::kOnes ? AssumptionKind::kAllOnes : AssumptionKind::kAllZeros;
    a.condition = fmt::format("{} is all {}", name, text);
  } else if (IsGiven(required, DroppedValue::kPositions)) {
    a.kind = AssumptionKind::kPositions;
    a.condition = fmt::format("{} holds the positions {}", name, text);
  } else if (TellsOfSequences(required)) {
    a.kind = AssumptionKind::kSequences;
    a.condition = fmt::format("{} is [{}]", name, text);
  } else {
    a.condition = fmt::format("{}: {}", name, text);
  }
  // An input that no node reads may hold arbitrary values.
  const ValueId v = source.Find(name);
  a.checked = v != kNoValue && source.uses(v).empty() && !source.is_graph_output(v);
  return a;
}

bool HasFixedBatch(const Graph& source, const Manifest& relation) {
  return std::any_of(relation.caches.begin(), relation.caches.end(), [&](const ManifestCache& c) {
    const ValueId v = source.Find(c.source.input);
    const size_t axis = c.source.layout.find('B');
    if (v == kNoValue || !source.type(v).shape || !c.source.select.empty()) return false;
    const auto& shape = *source.type(v).shape;
    return axis < shape.size() && shape[axis].value == 1;
  });
}

std::string TextOf(const SourceInput& input, const std::string& name) {
  const Reading& reading = input.reading();
  const int32_t type = input.type;
  switch (reading.meaning) {
    case Meaning::kPositions:
      return fmt::format("{} holds the positions P..T-1", name);
    case Meaning::kLast:
      return fmt::format("{} holds P + S - 1", name);
    case Meaning::kTotal:
      return fmt::format("{} holds P + S", name);
    case Meaning::kNew:
      return fmt::format("{} holds S", name);
    case Meaning::kLastNew:
      return fmt::format("{} holds S - 1", name);
    case Meaning::kFlag:
      return fmt::format("{} is true where there is a past", name);
    case Meaning::kNoFlag:
      return fmt::format("{} is true where there is no past", name);
    case Meaning::kMask:
      if (type == onnx::TensorProto::BOOL) return {};
      return reading.spelling == Spelling::kAdded
                 ? fmt::format("{} holds 0 and the lowest number of its type", name)
                 : fmt::format("{} holds 1 and 0", name);
    case Meaning::kFixedMask:
      return fmt::format("{} holds 1 and 0, and 1 first", name);
    case Meaning::kBounded:
      if (type == onnx::TensorProto::BOOL) return {};
      return fmt::format("{} holds numbers from {} to {}", name, input.least, input.most);
    default:
      return {};
  }
}

AssumptionKind KindOf(Meaning meaning) {
  switch (meaning) {
    case Meaning::kMask:
    case Meaning::kFixedMask:
      return AssumptionKind::kMaskValues;
    case Meaning::kFlag:
    case Meaning::kNoFlag:
      return AssumptionKind::kPastFlag;
    case Meaning::kBounded:
      return AssumptionKind::kIntegerRange;
    default:
      return AssumptionKind::kPositions;
  }
}

// Returns the inputs of the source that have a default (an initialiser of the same name) and that
// are no inputs of the converted model, so that its host cannot override the default.
std::vector<std::string> KeptDefaults(const Graph& source, const Graph& after) {
  absl::flat_hash_set<std::string> theirs, initialized;
  for (const auto& input : after.proto().input()) theirs.insert(input.name());
  for (const auto& tensor : source.proto().initializer()) initialized.insert(tensor.name());
  for (const auto& tensor : source.proto().sparse_initializer()) {
    initialized.insert(tensor.values().name());
  }
  std::vector<std::string> kept;
  for (const auto& input : source.proto().input()) {
    if (initialized.contains(input.name()) && !theirs.contains(input.name())) {
      kept.push_back(input.name());
    }
  }
  return kept;
}

// Returns the operators for which the two models bring different bodies, or one of them alone
// brings one (IsBodyOfOperator): a runtime may run the body or its own operator.
std::set<std::string> OperatorsOfUnlikeBodies(const Graph& source, const Graph& after) {
  std::map<std::string, std::string> bodies[2];
  for (const auto& [graph, own] : {std::pair(&source, &bodies[0]), {&after, &bodies[1]}}) {
    for (const onnx::FunctionProto& function : graph->model().functions()) {
      if (!IsBodyOfOperator(function)) continue;
      onnx::FunctionProto body = function;
      body.clear_opset_import();  // a conversion raises it where the nodes stay as they are
      (*own)[function.name()] = body.SerializeAsString();
    }
  }
  std::set<std::string> unlike;
  for (int k = 0; k < 2; ++k) {
    for (const auto& [name, body] : bodies[k]) {
      const auto other = bodies[1 - k].find(name);
      if (other == bodies[1 - k].end() || other->second != body) unlike.insert(name);
    }
  }
  return unlike;
}

// Returns the caches that a GroupQueryAttention of the source keeps in one buffer for past and
// present: their past has a constant number of slots. ONNX Runtime gives a present of its own that
// is 0 behind the new rows where the host binds two buffers.
std::vector<std::string> BuffersOfGroupQuery(const Graph& source) {
  constexpr size_t kPastKey = 3, kSlots = 2;
  std::vector<std::string> buffers;
  for (NodeId n = 0; n < source.num_nodes(); ++n) {
    const onnx::NodeProto& node = source.node(n);
    if (node.domain() != "com.microsoft" || node.op_type() != "GroupQueryAttention") continue;
    for (size_t k = kPastKey; k < kPastKey + 2 && k < source.inputs(n).size(); ++k) {
      const ValueId past = BehindIdentity(source, source.inputs(n)[k]);
      if (past == kNoValue || !source.is_graph_input(past)) continue;
      const auto& shape = source.type(past).shape;
      if (!shape || shape->size() <= kSlots || !(*shape)[kSlots].value) continue;
      buffers.push_back(source.name(past));
    }
  }
  return buffers;
}

// Whether no node reads more of a value than its shape.
bool IsReadForShape(const Graph& graph, const std::string& name) {
  const ValueId v = graph.Find(name);
  return v == kNoValue ||
         std::all_of(graph.uses(v).begin(), graph.uses(v).end(), [&](const Use& use) {
           return use.kind == Use::Kind::kNodeInput &&
                  (graph.Is(use.node, "Shape") || graph.Is(use.node, "Size"));
         });
}

// Returns the first MatMulNBits node whose accuracy_level is 4, which lets a runtime round the
// activations to int8. Returns kNoNode if the graph has no such node.
NodeId FirstWithRoundedActivations(const Graph& graph) {
  constexpr int64_t kInt8 = 4;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const onnx::NodeProto& node = graph.node(n);
    if (node.op_type() != "MatMulNBits" || IsDefaultDomain(node.domain())) continue;
    if (IntAttribute(node, "accuracy_level", 0) == kInt8) return n;
  }
  return kNoNode;
}

// Returns the first QuantizeLinear or DequantizeLinear whose scale is not finite, as a calibration
// gives it for scores with -inf among them: a finite number becomes 0 times infinity, NaN. Returns
// kNoNode if the graph has none.
NodeId FirstWithEndlessScale(const Graph& graph) {
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const std::string& op_type = graph.node(n).op_type();
    if (op_type != "QuantizeLinear" && op_type != "DequantizeLinear") continue;
    const ValueId scale = graph.inputs(n).size() > 1 ? graph.inputs(n)[1] : kNoValue;
    const onnx::TensorProto* constant = scale == kNoValue ? nullptr : graph.constant(scale);
    if (constant == nullptr) continue;
    const auto numbers = ReadFloats(*constant);
    if (!numbers.ok()) continue;
    const bool finite = std::all_of(numbers->begin(), numbers->end(),
                                    [](double number) { return std::isfinite(number); });
    if (!finite) return n;
  }
  return kNoNode;
}

// Returns true if the input was fed as wide as the buffer, though its declared shape allows others.
bool HasOtherWidths(const SourceInput& input) {
  return input.reading().Has(Extent::kSlots) &&
         std::any_of(input.readings.begin(), input.readings.end(),
                     [](const Reading& other) { return !other.Has(Extent::kSlots); });
}

}  // namespace

Assumption NotRun(AssumptionKind kind, std::string subject, std::string condition) {
  return {kind, std::move(subject), std::move(condition), AssumptionSource::kPlan, false};
}

Assumptions ClaimsOf(const Manifest& relation, const Graph& source, const Graph& after) {
  Assumptions all;
  for (const ManifestInput& input : relation.inputs) {
    if (input.all) all.Add(Required(source, {NameInSource(input), *input.all}));
    if (IsControl(input, ControlValue::kLowerTriangle)) {
      all.Add(
          {AssumptionKind::kTreeMask, input.name,
           fmt::format("{} shows each new token itself and its ancestors in a tree", input.name),
           AssumptionSource::kHost, false});
    }
  }
  for (const std::string& name : KeptDefaults(source, after)) {
    all.Add({AssumptionKind::kOther, name, fmt::format("{} keeps its default", name),
             AssumptionSource::kHost, false});
  }
  for (const std::string& name : OperatorsOfUnlikeBodies(source, after)) {
    all.Add({AssumptionKind::kOther, name,
             fmt::format("the runtime runs com.microsoft.{} by its own kernel, not by the function "
                         "in the model",
                         name),
             AssumptionSource::kHost, false});
  }
  if (const NodeId n = FirstWithRoundedActivations(after); n != kNoNode) {
    all.Add({AssumptionKind::kOther, "",
             fmt::format("the runtime computes MatMulNBits with the activations that it is given; "
                         "accuracy_level 4 (first at {}) lets it round them to int8, where a "
                         "difference in the last bit can become a step",
                         after.NodeName(n)),
             AssumptionSource::kHost, false});
  }
  if (const NodeId n = FirstWithEndlessScale(source); n != kNoNode) {
    const std::string name = source.name(source.outputs(n)[0]);
    all.Add({AssumptionKind::kFinite, name,
             fmt::format("the runtime turns NaN into the integer 0: the scale of {} is not finite, "
                         "and what comes of it is NaN, of which other runtimes make other "
                         "integers; slots without tokens and padding tokens may then reach results",
                         name),
             AssumptionSource::kHost, false});
  }
  for (const std::string& name : BuffersOfGroupQuery(source)) {
    all.Add({AssumptionKind::kOther, name,
             fmt::format("{} and its present share one buffer in the source, so that rows behind "
                         "the new ones stay",
                         name),
             AssumptionSource::kHost, false});
  }
  for (const ManifestCache& cache : relation.caches) {
    if (cache.source.sliding) all.Add(HoldsNewest(cache.source));
    if (cache.source.kind == UpdateKind::kWindow) {
      all.Add({AssumptionKind::kOther, cache.source.input,
               fmt::format("{} holds the newest rows of the past, no more than {} keeps",
                           cache.source.input, cache.source.output),
               AssumptionSource::kHost, false});
    }
  }
  for (const DroppedInput& dropped : relation.dropped) {
    all.Add(Required(source, dropped));
  }
  if (relation.uniform) {
    all.Add({AssumptionKind::kOneLength, "",
             "uniform: all sequences of a batch have the same number of past tokens",
             AssumptionSource::kManifest, HasFixedBatch(source, relation)});
  }
  if (const auto most = relation.limits.new_tokens_with_past) {
    all.Add({AssumptionKind::kNewTokens, "",
             fmt::format("a step with a past has at most {} new tokens", *most),
             AssumptionSource::kManifest, false});
  }
  for (const ManifestCache& cache : relation.caches) {
    if (cache.grows || after.Find(cache.input) == kNoValue) continue;
    const auto& type = after.type(after.Find(cache.input));
    if (!type.shape || cache.ring) continue;
    if (const auto slots = (*type.shape)[cache.axis].value) {
      all.Add({AssumptionKind::kCapacity, "", fmt::format("P + S <= {}, the capacity", *slots),
               AssumptionSource::kOperator, true});
    }
  }
  for (const Precondition& p : relation.preconditions) {
    if (p.code == "KV302") {
      all.Add({AssumptionKind::kFinite, "", "slots without tokens hold finite numbers",
               AssumptionSource::kManifest, false});
    } else if (p.code == "KV303") {
      all.Add({AssumptionKind::kPadding, "", "rows of padding tokens are not compared",
               AssumptionSource::kManifest, false});
    }
  }
  all.Add(UnconfirmedClaims(relation, source, after));
  return all;
}

std::string Contradiction(const Manifest& relation, const Graph& after) {
  for (const ManifestCache& cache : relation.caches) {
    if (cache.grows) continue;
    const auto& type = after.type(after.Find(cache.input));
    if (!type.shape) continue;
    const Dim& slots = (*type.shape)[cache.axis];
    if (relation.capacity_value && !cache.ring && slots.value &&
        *slots.value < *relation.capacity_value) {
      return fmt::format("the relation says that caches have {} slots, and {} has {}",
                         *relation.capacity_value, cache.input, *slots.value);
    }
    const NodeId writer = after.producer(after.Find(cache.output));
    if (writer == kNoNode || !after.Is(writer, "TensorScatter")) continue;
    const auto* mode = FindAttribute(after.node(writer), "mode");
    const bool circular = mode != nullptr && mode->s() == "circular";
    if (circular == IsCircular(relation, cache)) continue;
    return fmt::format("the relation says that {} is {}, and {} writes it as {}", cache.input,
                       circular ? "linear" : "circular", after.NodeName(writer),
                       circular ? "circular" : "linear");
  }
  return {};
}

std::vector<std::string> InputsReadForShapes(const Manifest& relation, const Graph& source,
                                             const Graph& after) {
  std::vector<std::string> names;
  for (const ManifestInput& input : relation.inputs) {
    if (!HasSourceInput(input)) continue;
    const std::string& name = NameInSource(input);
    if (!IsReadForShape(source, name) || !IsReadForShape(after, input.name)) continue;
    names.push_back(name);
  }
  for (const DroppedInput& dropped : relation.dropped) {
    if (IsReadForShape(source, dropped.name)) names.push_back(dropped.name);
  }
  return names;
}

Assumptions RestrictionsOf(const SourceInterface& interface, const std::vector<std::string>& free) {
  Assumptions all;
  for (const auto& [name, numbers] : interface.numbers_of_caches) {
    all.Add(NumbersOfCache(name, numbers.Text()));
  }
  for (const auto& [name, input] : interface.inputs) {
    const Reading& reading = input.reading();
    if (reading.meaning == Meaning::kMask && reading.Has(Extent::kKeys)) {
      all.Add({AssumptionKind::kMaskWidth, name, fmt::format("{} has P + S columns", name),
               AssumptionSource::kHost, false});
    }
    if (reading.meaning == Meaning::kMask && HasOtherWidths(input)) {
      all.Add({AssumptionKind::kMaskWidth, name,
               fmt::format("{} has as many columns as the caches have slots", name),
               AssumptionSource::kHost, false});
    }
    for (const Axis& axis : reading.axes) {
      if (axis.own_name.empty()) continue;
      all.Add({AssumptionKind::kDimension, name,
               fmt::format("{} has one row for each sequence: {} = B", name, axis.own_name),
               AssumptionSource::kHost, false});
    }
    if (IsFloatType(input.type) && reading.meaning != Meaning::kOnes &&
        reading.meaning != Meaning::kZeros) {
      all.Add(NotRun(AssumptionKind::kFinite, name, fmt::format("{} holds finite numbers", name)));
    }
    if (std::find(free.begin(), free.end(), name) != free.end()) continue;
    if (std::string text = TextOf(input, name); !text.empty()) {
      all.Add({KindOf(reading.meaning), name, std::move(text), AssumptionSource::kHost, false});
    }
  }
  return all;
}

}  // namespace kvlift
