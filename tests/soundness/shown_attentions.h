// What the attentions of a conversion are fed in a step, to tell the steps that the ledger of its
// proof excludes: numbers that are not finite, and queries that see no key.
#pragma once

#include <string>
#include <vector>

#include "contract/assumptions.h"
#include "onnx/onnx_pb.h"
#include "oracle/interpreter.h"

namespace kvlift::soundness {

class ShownAttentions {
 public:
  ShownAttentions() = default;
  // Makes what is looked at further outputs of both: operands of the source's products and
  // sums; masks of the conversion's attentions, and results of those that the ledger says to leave
  // no query without a key.
  ShownAttentions(const Assumptions& ledger, onnx::ModelProto* before, onnx::ModelProto* after);

  // Whether the ledger excludes the step that gave these values.
  bool ExcludeSource(const oracle::Values& given) const;
  bool ExcludeConverted(const oracle::Values& given) const;

 private:
  static std::string Show(const std::string& value, onnx::GraphProto* graph);
  void ShowHidden(const onnx::NodeProto& attention, onnx::GraphProto* graph);

  std::vector<std::string> operands_;  // of the source's products: are not infinite
  std::vector<std::string> numbers_;   // of them, all but weights: are numbers
  std::vector<std::string> summands_;  // of the source: are no more than a score may be
  std::vector<std::string> added_;     // are no more than a score may be
  std::vector<std::string> results_;   // zeros only for a query that sees no key
};

}  // namespace kvlift::soundness
