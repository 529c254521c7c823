// Recognises a softmax over the last axis, as an operator or written out, and weights that are
// masked behind it.
#pragma once

#include <optional>

#include "sym/forms/forms.h"

namespace kvlift::sym {

// Returns x if the value is x - max(x), with the maximum over the last axis of x, which it keeps.
// Returns kNoValue for all other values. Identity nodes may stand anywhere. Source: ONNX
// ReduceMax-20.
ValueId WithoutMaximum(Forms& forms, ValueId value);

struct RowSoftmax {
  ValueId scores = kNoValue;
  bool written_out = false;  // false: it is a Softmax node
};

// Returns the softmax over the last axis that `node` gives: a Softmax, or a Div of e by the sum of
// e over that axis, with e = Exp(x - ReduceMax(x)). Identity, Reshape and Expand may stand between
// the sum and the Div. Returns nullopt for other nodes, and for Exp of scores from which the
// maximum is not subtracted, because it overflows where a softmax does not. Source: ONNX
// Softmax-13, ReduceSum-13.
std::optional<RowSoftmax> ReadRowSoftmax(Forms& forms, NodeId node);

// Returns true for types (onnx TensorProto::DataType) in which weights of a softmax can be masked
// and divided by their sum: half types lose those that are small beside others.
bool KeepsSmallWeights(int32_t type);

// A weight that was masked behind the softmax and divided by the sum of its row.
struct Renormalised {
  Expr weight = nullptr;  // the element before the mask
  Expr keep = nullptr;    // a predicate; where it is false, the mask is 0
  bool guarded = false;   // a row whose sum is 0 gives zeros; false: it gives NaN
  NodeId node = kNoNode;  // the Div
};

// Reads an element of p * m / s, where m holds zeros and ones and s is the sum of p * m over the
// last axis, and may be replaced by another number where it is 0. The quotient may stand in
// Where(s > 0, ., 0). The products may be Where(c, p, 0). Their type is one for which
// KeepsSmallWeights holds. `facts` has the extents of the indices in `element`. Returns nullopt for
// all other elements.
std::optional<Renormalised> ReadRenormalised(Forms& forms, Expr element, const Facts& facts);

}  // namespace kvlift::sym
