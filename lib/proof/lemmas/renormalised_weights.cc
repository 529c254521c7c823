#include "proof/lemmas/renormalised_weights.h"

#include "onnx/onnx_pb.h"
#include "proof/lemmas/finite_minimum.h"
#include "proof/lemmas/names.h"

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
  // Half of the distance at which the weight of one key among 2^20 is no longer normal.
  const double most = type == onnx::TensorProto::DOUBLE ? 340 : 36;
  return ScoresWithin(AssumptionKind::kScoreRange, attention, most, /*sink=*/false);
}

}  // namespace kvlift
