// Checks that a KeyValueCache of dynamic_batching has one sequence, in one piece, from slot 0 on.
// For S new rows behind P old ones its operands then are
//
//   seqstarts = [0, S]    kvstarts = [0, P + S]    cachestarts = [0]    start_pos = [P]
//
// Either the graph computes these numbers, or the operands are inputs and the host must feed these
// numbers (KV308). Such an input is dropped, and nodes compute a value of its name.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "contract/kinds.h"
#include "ir/graph.h"
#include "ir/node_builder.h"
#include "onnxio/model/functional_form.h"
#include "sym/forms/forms.h"

namespace kvlift {

struct Normalised;

class OneSequence {
 public:
  explicit OneSequence(sym::Forms& forms) : forms_(forms), graph_(forms.graph()) {}

  // Returns the first requirement that the operands of a node do not meet, in words; empty if they
  // meet all.
  std::string Misfit(NodeId n);

  // For the nodes without a misfit: adds the nodes that replace inputs, and adds those inputs and
  // their preconditions to *result. FailedPrecondition if the number of new rows cannot be
  // computed.
  absl::Status Define(NodeBuilder& builder, Normalised* result);
  // Returns true if Define replaced the input.
  bool IsDropped(ValueId v) const { return given_.count(v) > 0; }

 private:
  using Elements = std::vector<sym::Expr>;

  std::string ShapeMisfit(NodeId n);
  std::string Judge(NodeId n, int operand, const Elements& wanted, DroppedValue required);
  bool ComesFromGiven(ValueId v) const;
  void DropUnread(NodeId n);

  sym::Forms& forms_;
  const Graph& graph_;
  std::map<ValueId, DroppedValue> given_;  // inputs, and the numbers that the host must feed
  ValueId start_ = kNoValue;
  sym::Expr new_rows_ = nullptr;
  std::vector<NodeId> nodes_;
};

}  // namespace kvlift
