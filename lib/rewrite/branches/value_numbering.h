// Finds which values of one graph are equal, by value numbering over their forms. Two values that
// no node computes are equal if they are the same input, or constants of equal content; two results
// of real arithmetic are equal if their operators, attributes and the forms of all operands are.
// The method is sound: values that are called equal are equal for all inputs that neither side
// refuses at run time. Random operators and operators with bodies are equal to no other node.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "sym/forms/forms.h"

namespace kvlift {

// Two nodes that differ in one operand only.
struct OperandGap {
  NodeId node;     // in the side that is numbered later
  NodeId partner;  // in the side that is numbered first
  int operand;
};

class ValueNumbering {
 public:
  explicit ValueNumbering(sym::Forms& forms) : forms_(forms), graph_(forms.graph()) {}

  // Reads of `input` count as reads of `value`, which must be numbered before.
  void Alias(ValueId input, ValueId value) { aliases_[input] = value; }

  // Numbers all nodes that the values are computed from, in topological order. The nodes of one
  // call are a side; the first call numbers the first side. bridge: called for a node without an
  // equal one and a node of the first side that differs in one operand only; if it returns true,
  // the two count as equal.
  using Bridge = bool (*)(void* context, ValueNumbering& self, const OperandGap& gap);
  void Number(absl::Span<const ValueId> roots, Bridge bridge = nullptr, void* context = nullptr);

  // Returns true if type, shape and elements are proved equal.
  bool Same(ValueId a, ValueId b);
  // Returns true if the expressions are proved equal, by cases of the conditions in them.
  bool Same(sym::Expr a, sym::Expr b);

  // Returns the numbered element of an operand: over the axes of the node's first output if
  // Broadcasts(n), else over the operand's own axes. Null if its rank is unknown.
  sym::Expr OperandElement(NodeId n, int operand);

  // Returns the first node that the values are computed from and that equals no node of the first
  // side; kNoNode if all have an equal one.
  NodeId FirstWithoutPartner(absl::Span<const ValueId> values);

  // Returns e with each load replaced by that of the value that stands for all equal ones.
  sym::Expr Numbered(sym::Expr e);
  // Returns true if the operator is elementwise and broadcasts its operands to the output.
  bool Broadcasts(NodeId n) const;
  sym::Forms& forms() { return forms_; }

 private:
  // Returns the value that stands for all values that are equal to v.
  ValueId StandingFor(ValueId v) const;
  void NumberNode(NodeId n);
  bool Bridged(NodeId n, const std::string& signature);
  void Merge(NodeId n, NodeId into);
  bool NeedsKey(NodeId n) const;
  std::string Signature(NodeId n);
  // Returns true for a MatMul of operands with two axes or more, FusedMatMul included.
  bool IsProductOfMatrices(NodeId n);
  // Returns true if such a node swaps the last two axes of the operand itself.
  bool TransposesOperand(NodeId n, int operand);
  std::string OperandKey(NodeId n, int operand);
  bool SameOperand(NodeId a, NodeId b, int operand);
  std::vector<sym::Expr> NumberedShape(ValueId v, bool transposed = false);
  sym::Expr ElementOf(ValueId v, bool transposed = false);
  void NumberConstant(ValueId v);
  // Returns the nodes that the values are computed from, in topological order.
  std::vector<NodeId> Behind(absl::Span<const ValueId> roots) const;
  bool SplitCases(sym::Expr a, sym::Expr b, int depth);

  sym::Forms& forms_;
  const Graph& graph_;
  int side_ = 0;
  absl::flat_hash_map<ValueId, ValueId> representative_;
  absl::flat_hash_map<ValueId, ValueId> aliases_;
  // The size of the representative node, by the internal symbol of a size that is known only when
  // its node has run (NonZero).
  absl::flat_hash_map<sym::DimSymbol, sym::Expr> sizes_;
  absl::flat_hash_map<sym::Expr, sym::Expr> numbered_;
  absl::flat_hash_map<std::string, NodeId> by_key_;
  absl::flat_hash_map<std::string, std::vector<NodeId>> by_signature_;  // of the first side
  absl::flat_hash_map<std::string, ValueId> constants_;
  absl::flat_hash_set<NodeId> done_, first_side_, matched_;
  Bridge bridge_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace kvlift
