// Lemma scale-moved. For real numbers a, b and c
//
//   softmax(c ((a q) . (b k))) = softmax(s (q . k))             with s = a b c
//   softmax(c tanh(d (q . k))) = softmax(softcap tanh(s (q . k) / softcap))
//                                                               with softcap = c and s = c d
//
// Side conditions: each factor is a finite number other than 0 that is multiplied as a number of a
// float type, for a division of integers drops the rest; s and softcap are larger than 0, for the
// operator multiplies queries and keys by the root of its scale, and a softcap of 0 is none;
// nothing that is added to the scores is moved. Source: bilinearity of the product; ONNX's text of
// Attention-24, attributes scale and softcap.
//
// In the arithmetic of machines numbers end: what is computed on the way has to stay in the range
// of its type. So the products of queries and keys are the source's, but for a factor that is small
// beside that range, both as the operands stand and with the root of the scale that the operator's
// text multiplies each of them by; and what the source computes is finite there (in the ledger).
//
// Factors are what the machine computes. The attribute is a float32, which rounds their product.
#pragma once

#include <optional>

#include "contract/assumptions.h"
#include "sym/forms.h"

namespace kvlift {

struct Factor {
  ValueId operand = kNoValue;  // what is multiplied
  double number = 1;
};

// The multiplication or division by a number that the node is; nullopt if it is none, or if the
// number cannot be moved.
std::optional<Factor> ReadFactor(sym::Forms& forms, NodeId node);
// Whether a product of factors may be the scale or the softcap of an Attention-24.
bool IsScale(double s);
// What the products of queries and keys are multiplied by before they are summed.
struct ProductScale {
  double plain = 1;   // by factors of the operands
  double scaled = 1;  // and by what the operator's text makes of its scale
  int32_t type = 0;   // onnx TensorProto::DataType of the products
};
// Whether products stay in range where the others do, but for a factor that is left to the ledger.
bool AreNear(const ProductScale& mine, const ProductScale& theirs);
// What the ledger says of them, in all attentions.
Assumption ProductsAreFinite();

// What an operator multiplies scores by in the type of its queries: by the operator's text, queries
// and keys each by the root of the scale, rounded to that type.
double ScaleOfText(double scale, int32_t type);
// Whether two products of factors are one number, but for rounding it to float32 twice.
bool AreOneScale(double mine, double theirs);
// Whether they are so far apart that no rounding explains it.
bool AreOtherScales(double mine, double theirs);

}  // namespace kvlift
