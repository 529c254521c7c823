// The formula of an attention, as data:
//
//   softmax over the visible keys of softcap(scale * query . key) + bias, times value
//
// A sink is one more score of the softmax, whose weight meets no value.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proof/graphs/grounds.h"
#include "sym/forms/forms.h"

namespace kvlift {

// A multiplication by a number, and the element type (TensorProto::DataType) of its result.
struct Multiplication {
  double factor = 1;
  int32_t type = 0;
};

// The least and the largest magnitude of the intermediate results of a chain of multiplications,
// relative to the operand of the first one. Both are 1 if there is no multiplication.
struct FactorRange {
  double least = 1, largest = 1;
  std::set<int32_t> types;  // of the results
};

// The factors of queries, keys and their products.
struct ProductScale {
  // Factors of the operands before their products are summed.
  double plain = 1;
  // `plain`; for an Attention operator, multiplied by its scale.
  double scaled = 1;
  int32_t type = 0;  // TensorProto::DataType of the products
  // The factors of queries, of keys, of the scores behind the product, and of the scores behind the
  // tanh of a softcap.
  FactorRange query = {}, key = {}, scores = {}, capped = {};
};

struct AttentionReading {
  std::string why_not;  // why the attention is not read; empty if all other fields are set
  // Elements as expressions over i0 = sequence, i1 = query head, i2 = token of the step, i3 = key,
  // and i4 = element of a head. `value` has i4 in its own head size.
  sym::Expr query = nullptr, key = nullptr, value = nullptr;
  sym::Expr visible = nullptr;  // a predicate over i0..i3: the query sees the key
  // The finite numbers that hide keys, added to a score or replacing it. Empty if all hidden keys
  // are hidden by -inf.
  std::set<double> hidden_by;
  // True for an Attention operator. A query that sees no key then gets zeros, as the operator's
  // text says.
  bool is_operator = false;
  bool nan_guard = false;  // a NaN guard replaces the weights of a query that sees no key by zeros
  // Weights are masked behind the softmax, and divided by the sum of those that are left.
  bool renormalised = false;
  // The number of valid keys of sequence i0 (nonpad_kv_seqlen); null if the operator is given none.
  sym::Expr valid = nullptr;
  // The summands that are added to scores, over i0..i3. Their values at hidden keys do not matter.
  std::vector<sym::Expr> bias;
  // The score of the sink, over i0..i2; null if there is no sink. The extents do not count it.
  sym::Expr sink = nullptr;
  // The model applies the sink to the result of a softmax without it, which is NaN where no key is
  // visible (onnxio/model/gated_sinks.h).
  bool gated_sink = false;
  // `softcap` is 0 if there is none.
  double scale = 1, softcap = 0;
  // The part of the scale that is applied before products of queries and keys are summed.
  ProductScale products;
  int32_t softmax_type = 0;  // TensorProto::DataType that the softmax is computed in
  // The extents of i0..i4: B, N, S, T, and the head size of queries and keys.
  sym::Facts extents;
  // The head size of values.
  sym::Expr size_of_value = nullptr;
  bool joined = false;  // true: the result is [B, S, N * D]; false: [B, N, S, D]
  // Pairs of an operand's extent and the extent that it has to equal; an operand that differs would
  // be broadcast.
  std::vector<std::pair<sym::Expr, sym::Expr>> equal_extents;
  Grounds grounds;  // the lemmas and assumptions that the reading uses
};

}  // namespace kvlift
