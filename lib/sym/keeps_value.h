// Whether an operator hands a value on unchanged: the one definition that recognition, score
// reading, proof, lint and maintenance share.
#pragma once

#include <cstdint>
#include <optional>

#include "sym/forms.h"

namespace kvlift::sym {

// How an element of a result relates to the element of the operand that it is made from. A stronger
// relation compares greater.
enum class Fidelity {
  kNone,     // another number: wrapped around, saturated, truncated, dropped
  kReal,     // the same real number, computed with other roundings in between
  kRounded,  // the same number, rounded once to fewer bits; beyond the type's range infinite
  kExact,    // the same number, whatever it is
};

// What a Cast does to the numbers of an element type (onnx TensorProto::DataType).
Fidelity CastFidelity(int32_t from, int32_t to);

// The operand that a node hands on element by element, in its own shape.
struct PassedOperand {
  int input = 0;
  Fidelity fidelity = Fidelity::kExact;
};

// What Identity, Cast, CastLike, and Dropout outside training hand on; nullopt for every other
// node, and where a type is not known.
std::optional<PassedOperand> PassedThrough(Forms& forms, NodeId node);
// The operand that a node hands on exactly; kNoValue if it hands none on so.
ValueId ExactOperand(Forms& forms, NodeId node);

// What numbers are read from that are kept in few bits: the operand of the DequantizeLinear, mask
// or shift that makes the value, or that is multiplied by a scale behind it; kNoValue for others.
ValueId KeptInFewBits(const Graph& graph, ValueId value);

// The value rounded to a float type of 16 bits or more; itself for every other type.
double RoundTo(int32_t type, double value);

}  // namespace kvlift::sym
