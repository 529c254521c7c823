// What an attention computes, read from the arithmetic around its softmax or from the operator:
//
//   softmax over the visible keys of softcap(scale * query . key) + bias, times value
//
// The reading has nothing in common with how rewrite rules read attention.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "proof/grounds.h"
#include "proof/lemmas/scale_moved.h"
#include "sym/forms.h"

namespace kvlift {

struct AttentionReading {
  std::string why_not;  // empty: everything below is set
  // Elements with b = i0, query head h = i1, token s = i2, key t = i3, d = i4.
  sym::Expr query = nullptr, key = nullptr, value = nullptr;
  sym::Expr visible = nullptr;  // predicate of i0..i3
  // Finite numbers that are added to the scores of other keys, or stand in their place. Others are
  // hidden by -inf.
  std::set<double> hidden_by;
  bool is_operator = false;     // a query that sees no key gets what the operator's text says
  bool nan_guard = false;       // it gets 0
  sym::Expr valid = nullptr;    // how many keys an operator is told of, of i0; null if it is not
  std::vector<sym::Expr> bias;  // its summands, of i0..i3; what they hold where hidden is open
  double scale = 1, softcap = 0;
  ProductScale products;     // the part of the scale that stands in front of the products' sums
  int32_t softmax_type = 0;  // onnx TensorProto::DataType that the softmax is computed in
  // Extents of i0..i4 (of the keys' head size; the values' is size_of_value).
  sym::Facts extents;
  sym::Expr size_of_value = nullptr;
  bool joined = false;  // the result is [B, S, N * D]
  // Extents that have to be equal, or an operand would be broadcast: mine and the other.
  std::vector<std::pair<sym::Expr, sym::Expr>> equal_extents;
  Grounds grounds;  // what the reading rests on
};

// The attention whose result [B, N, S, D] is the value, or [B, S, N * D] of an operator. Where
// `heads` are given, the result may be [B * N, S, D], and so may be the operands of its products.
AttentionReading ReadAttention(sym::Forms& forms, ValueId result, int64_t heads = 0);

}  // namespace kvlift
