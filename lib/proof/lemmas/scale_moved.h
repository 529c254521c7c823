// Lemma scale-moved. For real numbers a, b, c and d,
//
//   softmax(c ((a q) . (b k))) = softmax(s (q . k))             with s = a b c
//   softmax(c tanh(d (q . k))) = softmax(softcap tanh(s (q . k) / softcap))
//                                                               with softcap = c and s = c d
//
// Side conditions: each factor is a finite number other than 0 and multiplies in a float type,
// because integer division drops the remainder; s and softcap are positive, because the operator
// multiplies queries and keys by the square root of its scale and a softcap of 0 means that there
// is none; and nothing that is added to the scores is scaled as well. Source: bilinearity of the
// product; ONNX Attention-24, attributes scale and softcap.
//
// In floating-point arithmetic intermediate results have to stay in the range of their type. So the
// products of queries and keys may differ from the source's only by a factor that is small compared
// with that range, both before and after each operand is multiplied by the square root of the
// scale, as the operator's text does; so may every result of a chain of factors, since factors that
// cancel each other leave the range in between; and the source's products have to be finite (in the
// ledger).
//
// Factors are the numbers that the machine computes. The attribute is a float32, which rounds their
// product.
#pragma once

#include <optional>

#include "absl/types/span.h"
#include "contract/assumptions.h"
#include "proof/graphs/attention_reading.h"
#include "sym/forms/forms.h"

namespace kvlift {

struct Factor {
  ValueId operand = kNoValue;  // the value that is multiplied
  double number = 1;
};

// Reads a Mul or Div by a constant number; nullopt for any other node, and if the number is 0 or
// not finite.
std::optional<Factor> ReadFactor(sym::Forms& forms, NodeId node);
// Returns true if s can be the scale or softcap of an Attention-24: finite and positive.
bool IsScale(double s);
// Returns the range of a chain of multiplications, the first of which is last in the list.
FactorRange RangeOfChain(absl::Span<const Multiplication> last_to_first);
// Returns true if both products, and the ranges of their chains of factors, differ by factors of at
// most 2^8 in 16-bit types, 2^32 in float32 and 2^256 in float64, which the ledger covers.
bool AreNear(const ProductScale& mine, const ProductScale& theirs);
// Returns the range condition as a ledger entry about all attentions.
Assumption ProductsAreFinite();

// Returns the factor of scores in an Attention operator of element type `type`: the square root of
// the scale is rounded to that type and multiplies both queries and keys. Source: ONNX
// Attention-24.
double ScaleOfText(double scale, int32_t type);
// Returns true if both are the same scale apart from two roundings to `type`, in which scores are
// computed; types other than float16 and bfloat16 count as float32.
bool AreOneScale(double mine, double theirs, int32_t type = onnx::TensorProto::FLOAT);
// Returns true if both differ by more than roundings to `type` can explain.
bool AreOtherScales(double mine, double theirs, int32_t type = onnx::TensorProto::FLOAT);

}  // namespace kvlift
