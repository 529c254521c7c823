#include "proof/lemmas/renormalised_weights.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "onnx/onnx_pb.h"
#include "proof/lemmas/finite_minimum.h"
#include "proof/lemmas/names.h"
#include "sym/forms/forms.h"

namespace kvlift {

ValueId SoftmaxOperand(sym::Forms& forms, NodeId node, Grounds* grounds) {
  const auto softmax = sym::ReadRowSoftmax(forms, node);
  if (!softmax) return kNoValue;
  if (softmax->written_out) grounds->AddLemma(lemmas::kWrittenSoftmax);
  return softmax->scores;
}

std::optional<sym::Renormalised> ReadRenormalisedWeights(sym::Forms& forms, sym::Expr element,
                                                         const sym::Facts& facts,
                                                         Grounds* grounds) {
  auto masked = sym::ReadRenormalised(forms, element, facts);
  if (masked) grounds->AddLemma(lemmas::kRenormalisedWeights);
  return masked;
}

Assumption VisibleKeysKeepWeight(const std::string& attention, int32_t type) {
  // Half of the distance at which the weight of one key among all is no longer normal: 36 in
  // float32 for 2^20 keys.
  constexpr double kMostInDouble = 340, kNormalBits = 126, kNormalBitsInDouble = 1022;
  const bool wide = type == onnx::TensorProto::DOUBLE;
  const double bits =
      (wide ? kNormalBitsInDouble : kNormalBits) - std::log2(static_cast<double>(sym::MostSize()));
  const double most = std::min(kMostInDouble, std::floor(bits * std::numbers::ln2 / 2));
  return ScoresWithin(AssumptionKind::kScoreRange, attention, most, /*sink=*/false);
}

}  // namespace kvlift
