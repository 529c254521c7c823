// Quantisers with one scale and one zero point: pairs of a QuantizeLinear and a DequantizeLinear
// with the same constants, which round each number of a tensor to one of
//
//   scale * (code - zero_point),  for the codes of an integer type of 8 or 16 bits
//
// A quantiser gives numbers of its own back unchanged: the roundings of the product and of the
// quotient together are far less than half a code. Source: ONNX QuantizeLinear, DequantizeLinear.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

struct UniformQuantizer {
  int32_t codes = 0;  // onnx::TensorProto::DataType: INT8, UINT8, INT16 or UINT16
  double scale = 0;   // a float32, more than 0
  int64_t zero_point = 0;

  friend bool operator==(const UniformQuantizer&, const UniformQuantizer&) = default;

  // Returns the number of the quantiser that is nearest to x, ties to even codes. The number is a
  // float32.
  double Round(double x) const;
  // Returns the quantiser in words: "numbers of scale 0.05, zero point 128 and uint8 codes".
  std::string Text() const;
};

// The numbers that a tensor of a floating-point type holds.
struct NumberSet {
  int32_t type = 0;  // onnx::TensorProto::DataType
  // The tensor holds only numbers of this quantiser; absent: any number of the type.
  std::optional<UniformQuantizer> quantizer;

  // Returns the numbers in words: "float16 numbers".
  std::string Text() const;
};

// The pair of nodes of a quantiser, and the value whose numbers they round.
struct QuantizedRounding {
  UniformQuantizer quantizer;
  NodeId quantize = kNoNode, dequantize = kNoNode;
  ValueId rounded = kNoValue;
};

// Returns how `v`, a float32 tensor, is rounded: a DequantizeLinear makes it from a QuantizeLinear
// with the same constants; Identity nodes may stand between and behind them. Returns nullopt for
// all other values.
std::optional<QuantizedRounding> RoundingOf(const Graph& graph, ValueId v);

// Returns the quantiser of the DequantizeLinear that makes `v`, perhaps behind Identity nodes: `v`
// holds numbers of it. Returns nullopt for all other values.
std::optional<UniformQuantizer> QuantizerMaking(const Graph& graph, ValueId v);

// Returns the operands of a QLinearConcat or QLinearWhere of com.microsoft whose codes the result
// is put together from; empty for all other nodes. The two operands behind each are its scale and
// its zero point. Source: ONNX Runtime, contrib operators.
std::vector<int> RequantizedOperands(const onnx::NodeProto& node);

// Returns the quantiser whose numbers the present holds if the past does: it rounds the present, or
// each part of it that is not the past. Both are float32 tensors; the past is a graph input.
// Returns nullopt if there is no such quantiser.
std::optional<UniformQuantizer> QuantizerOfRows(const Graph& graph, ValueId past, ValueId present);

}  // namespace kvlift
