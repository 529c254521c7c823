// Nodes that compute a chain of operators on rows (fusing.h): elementwise operators, means, slices
// and concatenations along the last axis. Each value of a chain is computed one row at a time and
// rounded to its type, with the same bits as the operators alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "exec/kernels/common/kernel.h"
#include "onnx/onnx_pb.h"

namespace kvlift::exec {

// The domain of the operators below. Models that use it themselves are refused.
inline constexpr std::string_view kFusedDomain = "kvlift.fused";
// All instructions are pointwise and of one type: the result may lie in the memory of input 0.
inline constexpr std::string_view kPointwise = "Pointwise";
inline constexpr std::string_view kRows = "Rows";
// MatMul of input 0 and the constant input 1, plus input 2. Product and sum are rounded.
inline constexpr std::string_view kProduct = "Product";
inline constexpr char kRowCode[] = "code";  // attribute: kRowWords ints per instruction

enum class RowOp : int64_t {
  kAdd,  // binary: a, b; broadcast along the row if one has a single element
  kSub,
  kMul,
  kDiv,
  kPow,
  kNeg,  // unary: a
  kAbs,
  kSqrt,
  kReciprocal,
  kExp,
  kSigmoid,
  kTanh,
  kErf,
  kSin,
  kCos,
  kCast,    // to type p
  kMean,    // mean of the row
  kSlice,   // elements [p, q) of a row, clamped as in Slice
  kConcat,  // a, then b
};

// Operands a and b are indices: the inputs of the node first, then the results of earlier
// instructions.
struct RowInstruction {
  RowOp op;
  int a = 0, b = 0;
  int64_t p = 0, q = 0;
};
inline constexpr int kRowWords = 5;

bool IsBinary(RowOp op);
// Returns true if the result has as many elements as the operands and is computed element by
// element.
bool IsPointwise(RowOp op);

struct RowProgram : Prepacked {
  int num_inputs = 0;
  bool pointwise = true;  // true if all instructions are
  std::vector<RowInstruction> code;
};

// Returns null if the node's code is malformed.
std::shared_ptr<const RowProgram> ReadRowProgram(const onnx::NodeProto& node);

}  // namespace kvlift::exec
