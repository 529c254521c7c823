#include "sym/forms/keeps_value.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/types.h"

namespace kvlift::sym {
namespace {

using onnx::TensorProto;

// A binary float format: bits of the significand, including the hidden bit, and the exponents of
// normal numbers.
struct FloatFormat {
  int bits = 0, low = 0, high = 0;
};

std::optional<FloatFormat> FloatFormatOf(int32_t type) {
  switch (type) {
    case TensorProto::DOUBLE:
      return FloatFormat{53, -1022, 1023};
    case TensorProto::FLOAT:
      return FloatFormat{24, -126, 127};
    case TensorProto::FLOAT16:
      return FloatFormat{11, -14, 15};
    case TensorProto::BFLOAT16:
      return FloatFormat{8, -126, 127};
    default:
      return std::nullopt;
  }
}

// An integer format: bits of the magnitude, and whether there are negative numbers.
struct IntegerFormat {
  int bits = 0;
  bool has_negative = false;
};

std::optional<IntegerFormat> IntegerFormatOf(int32_t type) {
  switch (type) {
    case TensorProto::BOOL:
      return IntegerFormat{1, false};
    case TensorProto::UINT2:
      return IntegerFormat{2, false};
    case TensorProto::INT2:
      return IntegerFormat{1, true};
    case TensorProto::UINT4:
      return IntegerFormat{4, false};
    case TensorProto::INT4:
      return IntegerFormat{3, true};
    case TensorProto::UINT8:
      return IntegerFormat{8, false};
    case TensorProto::INT8:
      return IntegerFormat{7, true};
    case TensorProto::UINT16:
      return IntegerFormat{16, false};
    case TensorProto::INT16:
      return IntegerFormat{15, true};
    case TensorProto::UINT32:
      return IntegerFormat{32, false};
    case TensorProto::INT32:
      return IntegerFormat{31, true};
    case TensorProto::UINT64:
      return IntegerFormat{64, false};
    case TensorProto::INT64:
      return IntegerFormat{63, true};
    default:
      return std::nullopt;
  }
}

// Returns the nearest number with `bits` significant bits and exponents from `min_exponent` on,
// ties to even; infinite above `max`.
double RoundBits(double x, int bits, int min_exponent, double max) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent;
  std::frexp(x, &exponent);
  const int unit = std::max(exponent, min_exponent) - bits;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(x, -unit)), unit);
  if (std::abs(rounded) > max) {
    return std::copysign(std::numeric_limits<double>::infinity(), x);
  }
  return rounded;
}

// Returns true if every number that the element may be is one of `type`.
bool IsNumberOf(Forms& forms, Expr element, int32_t type) {
  const auto is_kept = [&](double x) { return RoundTo(type, x) == x; };
  switch (element->kind()) {
    case Kind::kSelect:
      return IsNumberOf(forms, element->args()[1], type) &&
             IsNumberOf(forms, element->args()[2], type);
    case Kind::kLoad:
      return CastFidelity(forms.NumbersOf(element->source()).type, type) == Fidelity::kExact;
    case Kind::kFloat:
      return is_kept(element->float_value());
    case Kind::kInteger:
      return is_kept(static_cast<double>(element->value()));
    default:
      return false;
  }
}

}  // namespace

Fidelity CastFidelity(int32_t from, int32_t to) {
  if (from == to && from != TensorProto::UNDEFINED) return Fidelity::kExact;
  const auto integers = IntegerFormatOf(from), whole = IntegerFormatOf(to);
  const auto floats = FloatFormatOf(from), real = FloatFormatOf(to);
  if (integers && whole) {
    const bool fits = to != TensorProto::BOOL && integers->bits <= whole->bits &&
                      (whole->has_negative || !integers->has_negative);
    return fits ? Fidelity::kExact : Fidelity::kNone;
  }
  // An integer with more bits than the significand is rounded. Above the range of the type it is
  // infinite.
  if (integers && real) {
    if (integers->bits <= real->bits) return Fidelity::kExact;
    return integers->bits <= real->high ? Fidelity::kRounded : Fidelity::kNone;
  }
  if (floats && real) {
    const bool holds =
        floats->bits <= real->bits && floats->low >= real->low && floats->high <= real->high;
    return holds ? Fidelity::kExact : Fidelity::kRounded;
  }
  return Fidelity::kNone;
}

std::optional<PassedOperand> PassedThrough(Forms& forms, NodeId node) {
  const Graph& graph = forms.graph();
  if (node == kNoNode || graph.inputs(node).empty() || graph.inputs(node)[0] == kNoValue ||
      graph.outputs(node).empty() || graph.outputs(node)[0] == kNoValue) {
    return std::nullopt;
  }
  if (graph.Is(node, "Identity")) return PassedOperand{0, Fidelity::kExact};
  if (graph.Is(node, "Cast") || graph.Is(node, "CastLike")) {
    const int32_t from = forms.ElementType(graph.inputs(node)[0]);
    const int32_t to = forms.ElementType(graph.outputs(node)[0]);
    if (from == TensorProto::UNDEFINED || to == TensorProto::UNDEFINED) return std::nullopt;
    return PassedOperand{0, CastFidelity(from, to)};
  }
  if (graph.Is(node, "Dropout")) {
    const auto inputs = graph.inputs(node);
    if (inputs.size() > 2 && inputs[2] != kNoValue) {
      const auto mode = forms.Elements(inputs[2]);
      if (!mode || mode->size() != 1 || !mode->front()->is_integer(0)) return std::nullopt;
    }
    return PassedOperand{0, Fidelity::kExact};
  }
  return std::nullopt;
}

ValueId ExactOperand(Forms& forms, NodeId node) {
  const auto passed = PassedThrough(forms, node);
  if (!passed || passed->fidelity != Fidelity::kExact) return kNoValue;
  return forms.graph().inputs(node)[static_cast<size_t>(passed->input)];
}

absl::flat_hash_map<ValueId, NumberSet> CastInputs(const Graph& graph) {
  absl::flat_hash_map<ValueId, NumberSet> types;
  for (ValueId input : graph.graph_inputs()) {
    const int32_t type = TypeOfAllCasts(graph, input);
    const int32_t declared = graph.type(input).elem_type;
    const bool narrower = IsFloatType(declared) && ElementBits(type) < ElementBits(declared);
    if (narrower && CastFidelity(declared, type) == Fidelity::kRounded)
      types[input] = {type, std::nullopt};
  }
  return types;
}

absl::flat_hash_map<ValueId, NumberSet> NumbersOfCaches(
    const Graph& graph, absl::Span<const std::pair<ValueId, ValueId>> caches) {
  const auto cast = CastInputs(graph);
  absl::flat_hash_map<ValueId, NumberSet> narrow, rounded;
  for (const auto& [past, present] : caches) {
    const auto it = cast.find(past);
    if (it != cast.end() && present != kNoValue) narrow.insert(*it);
    if (auto quantizer = QuantizerOfRows(graph, past, present)) {
      rounded[past] = {graph.type(past).elem_type, quantizer};
    }
  }
  if (narrow.empty()) return rounded;
  Forms forms(graph);
  for (const auto& [past, numbers] : narrow) forms.AssumeNumbersOf(past, numbers);
  for (const auto& [past, present] : caches) {
    const auto it = narrow.find(past);
    if (it == narrow.end()) continue;
    const Form form = forms.Of(present);
    if (!form.known_rank || !IsNumberOf(forms, form.element, it->second.type)) narrow.erase(it);
  }
  narrow.merge(rounded);
  return narrow;
}

ValueId QuantizedOperandOf(const Graph& graph, ValueId value) {
  NodeId n = graph.producer(value);
  if (n == kNoNode || graph.inputs(n).empty()) return kNoValue;
  if (graph.Is(n, "Mul")) {
    n = graph.inputs(n)[0] == kNoValue ? kNoNode : graph.producer(graph.inputs(n)[0]);
    if (n != kNoNode && !graph.Is(n, "DequantizeLinear")) return kNoValue;
  }
  const bool reads = n != kNoNode && (graph.Is(n, "DequantizeLinear") ||
                                      graph.Is(n, "BitwiseAnd") || graph.Is(n, "BitShift"));
  return reads && !graph.inputs(n).empty() ? graph.inputs(n)[0] : kNoValue;
}

double RoundTo(int32_t type, double value) {
  switch (type) {
    case TensorProto::FLOAT:
      return static_cast<double>(static_cast<float>(value));
    case TensorProto::FLOAT16:
      return RoundBits(value, 11, -13, 65504.0);
    case TensorProto::BFLOAT16:
      return RoundBits(static_cast<double>(static_cast<float>(value)), 8, -125,
                       3.3895313892515355e38);
    default:
      return value;
  }
}

}  // namespace kvlift::sym
