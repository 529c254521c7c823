// Observes the operands of attentions in a step, to recognise steps that the ledger of the proof
// excludes: numbers that are not finite, and queries that see no key.
#pragma once

#include <string>
#include <vector>

#include "contract/assumptions.h"
#include "onnx/onnx_pb.h"
#include "oracle/core/interpreter.h"

namespace kvlift::soundness {

class ShownAttentions {
 public:
  ShownAttentions() = default;
  // Makes the observed values graph outputs of both models: operands of the source's products and
  // sums, masks of the conversion's attentions, and results of those whose queries all see a key
  // according to the ledger.
  ShownAttentions(const Assumptions& ledger, onnx::ModelProto* before, onnx::ModelProto* after);

  // Return true if the ledger excludes the step that computed these values.
  bool ExcludeSource(const oracle::Values& given) const;
  bool ExcludeConverted(const oracle::Values& given) const;

 private:
  static std::string Show(const std::string& value, onnx::GraphProto* graph);
  void ShowHidden(const onnx::NodeProto& attention, onnx::GraphProto* graph);

  std::vector<std::string> operands_;  // operands of the source's products; must not be infinite
  std::vector<std::string> numbers_;   // those that are not weights; must not be NaN
  std::vector<std::string> summands_;  // summands of the source; limited as scores are
  std::vector<std::string> added_;     // masks of the conversion; limited as scores are
  std::vector<std::string> results_;   // results; zero only if a query sees no key
};

}  // namespace kvlift::soundness
