// Says which operators pass a value on unchanged. Recognition, proof and the companion models share
// this one definition.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "sym/forms/forms.h"

namespace kvlift::sym {

// How the element of a result relates to the operand's element that it is made from. A stronger
// relation compares greater.
enum class Fidelity {
  kNone,     // another number: wrapped around, saturated, truncated or dropped
  kReal,     // the same real number up to intermediate roundings
  kRounded,  // the same number, rounded once to fewer bits; infinite beyond the range of the type
  kExact,    // the same number for every value
};

// Returns what a Cast between two element types (onnx::TensorProto::DataType) does to numbers.
// Types that are not known give kNone. Source: ONNX Cast-24.
Fidelity CastFidelity(int32_t from, int32_t to);

// The operand that a node passes on element by element, with its shape.
struct PassedOperand {
  int input = 0;
  Fidelity fidelity = Fidelity::kExact;
};

// Returns the operand that an Identity, Cast, CastLike, or Dropout in inference mode passes on;
// nullopt for all other nodes, and if an element type is unknown.
std::optional<PassedOperand> PassedThrough(Forms& forms, NodeId node);
// Returns the operand that a node passes on with Fidelity::kExact; kNoValue if there is none.
ValueId ExactOperand(Forms& forms, NodeId node);

// Returns the graph inputs of a floating-point type whose elements only Casts to one narrower
// floating-point type read, directly or through Identity nodes, each with the numbers of that type.
absl::flat_hash_map<ValueId, NumberSet> CastInputs(const Graph& graph);

// Returns true if v was assumed to hold numbers of a narrower type than it declares
// (Forms::AssumeNumbersOf).
inline bool HoldsNarrowerNumbers(Forms& forms, ValueId v) {
  return forms.NumbersOf(v).type != forms.ElementType(v);
}

// Returns true if v was assumed to hold fewer numbers than its type has.
inline bool HoldsFewerNumbers(Forms& forms, ValueId v) {
  return HoldsNarrowerNumbers(forms, v) || forms.NumbersOf(v).quantizer.has_value();
}

// Returns the caches that hold fewer numbers than their type has, with those numbers. Each pair is
// a past, a graph input, and its present, which holds such numbers if the past does. So a past that
// begins without rows, or with zeros, holds them in every step. They are
//
// - numbers of a narrower floating-point type T, such as in caches of float16 models whose inputs
//   and outputs are float32; all nodes that read numbers of the past are casts to T; or
// - numbers of a quantiser that rounds all rows of the present, or each part of it.
absl::flat_hash_map<ValueId, NumberSet> NumbersOfCaches(
    const Graph& graph, absl::Span<const std::pair<ValueId, ValueId>> caches);

// Returns the quantised values that `value` is read from: the first operand of the
// DequantizeLinear, BitwiseAnd or BitShift that makes it, or of a DequantizeLinear that a Mul with
// a scale follows. Returns kNoValue for other values.
ValueId QuantizedOperandOf(const Graph& graph, ValueId value);

// Returns a number rounded to float16, bfloat16 or float32, to nearest even; unchanged for all
// other types.
double RoundTo(int32_t type, double value);

}  // namespace kvlift::sym
