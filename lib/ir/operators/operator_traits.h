// Properties of operators that several folders ask for: which of them work element by element, and
// the default values of their attributes. The oracle has tables of its own, since it shares nothing
// with what it judges.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// An operator whose result at each place depends only on the operands at that place, broadcast as
// ONNX does. Source: the operator texts.
struct ElementwiseOperator {
  enum class Operands {
    kOne,      // the result has the shape of input 0
    kTwo,      // the result has the broadcast shape of both
    kVariadic  // the result has the broadcast shape of all
  };
  std::string_view op_type;
  Operands operands = Operands::kOne;
  bool keeps_type = true;   // the result has the element type of input 0
  bool is_contrib = false;  // ONNX Runtime's domain com.microsoft, not the default domain
  // Other numbers in an operand may give the same result: a step function, a bound, a choice.
  bool hides_numbers = false;
};

// Returns all elementwise operators, sorted by name.
absl::Span<const ElementwiseOperator> ElementwiseOperators();
// Returns the entry for the operator of a node; null if the table has none for its name and domain.
// Operators of com.microsoft that have the name of an ONNX operator count as that one.
const ElementwiseOperator* FindElementwise(const onnx::NodeProto& node);

// Returns true for Equal, Less, LessOrEqual, Greater and GreaterOrEqual.
bool IsComparison(std::string_view op_type);

// Returns true for the products of com.microsoft with weights of few bits, MatMulNBits and
// MatMulBnb4. Each row of input 0 is multiplied alone; attributes K and N are the weights' extents.
bool IsProductOfPackedWeights(std::string_view op_type);

// Returns true for GlobalAveragePool and GlobalMaxPool, which reduce all axes from 2 on and keep
// them with one element.
bool IsGlobalPool(const onnx::NodeProto& node);

// Returns the operands whose elements the node moves to its only output without computing anything
// from them; the result holds no other elements. Empty for all other nodes.
std::vector<int> MovedOperands(const onnx::NodeProto& node);

// Returns true if the node is elementwise or moves elements: no element of the result is computed
// from several elements of one operand.
bool KeepsElementsApart(const onnx::NodeProto& node);

// Returns true if the operator draws numbers, so that two nodes with the same operands differ.
// Dropout is one, whatever its mode.
bool IsRandomOperator(const onnx::NodeProto& node);

// Returns true for a BatchNormalization in training, which normalises by the mean and variance of
// all rows that it is given, instead of by inputs.
bool IsTrainingNormalization(const onnx::NodeProto& node);

struct DefaultAttribute {
  bool known = false;  // ONNX defines the operator with an attribute of this name
  // Null if the attribute has no default value: a node without it has a meaning of its own. Owned
  // by the schema registry of ONNX.
  const onnx::AttributeProto* value = nullptr;
};

// Looks up the attribute in the operator's schema of opset `version`, or in the newest schema if
// the operator did not exist then. Only operators of ONNX's default domain are known.
DefaultAttribute DefaultAttributeOf(const onnx::NodeProto& node, const std::string& name,
                                    int64_t version);

}  // namespace kvlift
