// KeyValueCache of dynamic_batching where it has one sequence, in one piece, from slot 0 on: its
// operands then are, for S new rows behind P old ones,
//
//   seqstarts = [0, S]    kvstarts = [0, P + S]    cachestarts = [0]    start_pos = [P]
//
// Either the graph computes them so, or they are inputs, and the host has to keep to it. Such an
// input is dropped: what reads it reads what is computed in its place.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ir/graph.h"
#include "ir/node_builder.h"
#include "onnxio/in_out.h"
#include "sym/forms.h"

namespace kvlift {

struct Normalised;

class OneSequence {
 public:
  explicit OneSequence(sym::Forms& forms) : forms_(forms), graph_(forms.graph()) {}

  // Empty, or what the operands of a node need that they are not.
  std::string Misfit(NodeId n);

  // For nodes without a misfit: makes what stands in the place of inputs, and tells the host.
  // FailedPrecondition if the number of new rows cannot be computed.
  absl::Status Define(NodeBuilder& builder, Normalised* result);
  // After it.
  bool IsDropped(ValueId v) const { return given_.count(v) > 0; }

 private:
  using Elements = std::vector<sym::Expr>;

  std::string ShapeMisfit(NodeId n);
  std::string Judge(NodeId n, int operand, const Elements& wanted, const char* required);
  bool ComesFromGiven(ValueId v) const;
  void DropUnread(NodeId n);

  sym::Forms& forms_;
  const Graph& graph_;
  std::map<ValueId, std::string> given_;  // by the host: what each input is required to be
  ValueId start_ = kNoValue;
  sym::Expr new_rows_ = nullptr;
  std::vector<NodeId> nodes_;
};

}  // namespace kvlift
