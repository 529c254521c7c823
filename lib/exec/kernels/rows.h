// Several operators on rows as one: what fusing.h makes of single-use chains of elementwise
// operators, means, slices and concatenations of rows. Each value of such a chain is a row at a
// time, computed and rounded to its type as the operator alone would have: the same bits.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "exec/kernel.h"
#include "onnx/onnx_pb.h"

namespace kvlift::exec {

// Of the operators below; models that use it themselves are refused.
inline constexpr std::string_view kFusedDomain = "kvlift.fused";
// All pointwise and of one type: the result may lie in the memory of input 0.
inline constexpr std::string_view kPointwise = "Pointwise";
inline constexpr std::string_view kRows = "Rows";
// MatMul of inputs 0 and 1, a constant, plus input 2, with both results rounded.
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
  kMean,    // of the row
  kSlice,   // elements [p, q) of a row, as Slice clamps them
  kConcat,  // a, then b
};

// a and b: inputs of the node first, then results of earlier instructions.
struct RowInstruction {
  RowOp op;
  int a = 0, b = 0;
  int64_t p = 0, q = 0;
};
inline constexpr int kRowWords = 5;

bool IsBinary(RowOp op);
// Whether the result is as long as the operands, element by element.
bool IsPointwise(RowOp op);

struct RowProgram : Prepacked {
  int num_inputs = 0;
  bool pointwise = true;  // all of the code
  std::vector<RowInstruction> code;
};

// Null if the node's code is not well formed.
std::shared_ptr<const RowProgram> ReadRowProgram(const onnx::NodeProto& node);

}  // namespace kvlift::exec
