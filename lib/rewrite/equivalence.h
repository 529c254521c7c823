// Which values of one graph are equal, by value numbering over forms: two sources are equal if they
// are the same input or constants of equal content; two results of real arithmetic if operator,
// attributes and the forms of all operands are equal under the numbering. Sound: what is told equal
// is equal for all inputs that neither side refuses at run time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "sym/forms.h"

namespace kvlift {

// Two nodes that are equal but for one operand.
struct OperandGap {
  NodeId node;     // of the side numbered later
  NodeId partner;  // of the side numbered first
  int operand;
};

class Equivalence {
 public:
  explicit Equivalence(sym::Forms& forms) : forms_(forms), graph_(forms.graph()) {}

  // Reads of `input` mean the element of `value`, which has been numbered.
  void Alias(ValueId input, ValueId value) { aliases_[input] = value; }

  // Numbers all nodes that the values are computed from, in topological order; once per side.
  // bridge: asked about a node that has no equal, and about one that equals it but for one operand;
  // true: take them as equal.
  using Bridge = bool (*)(void* context, Equivalence& self, const OperandGap& gap);
  void Number(absl::Span<const ValueId> roots, Bridge bridge = nullptr, void* context = nullptr);

  // Same type, shape and elements.
  bool Same(ValueId a, ValueId b);
  // Equal expressions, by cases of the conditions in them.
  bool Same(sym::Expr a, sym::Expr b);

  // The element of an operand over the axes of the node's first output where the operator
  // broadcasts, else over its own; numbered. Null if nothing is known.
  sym::Expr OperandElement(NodeId n, int operand);

  // The first node behind the value that equals none of the nodes numbered in the first call;
  // kNoNode if there is none.
  NodeId FirstWithoutPartner(absl::Span<const ValueId> values);

  sym::Expr Numbered(sym::Expr e);
  // Elementwise, with operands broadcast to the output.
  bool Broadcasts(NodeId n) const;
  sym::Forms& forms() { return forms_; }

 private:
  void NumberNode(NodeId n);
  bool Bridged(NodeId n, const std::string& signature);
  void Merge(NodeId n, NodeId into);
  bool NeedsKey(NodeId n) const;
  std::string Signature(NodeId n) const;
  std::string OperandKey(NodeId n, int operand);
  bool SameOperand(NodeId a, NodeId b, int operand);
  std::vector<sym::Expr> NumberedShape(ValueId v);
  sym::Expr ElementOf(ValueId v);
  void NumberConstant(ValueId v);
  std::vector<NodeId> Behind(absl::Span<const ValueId> roots) const;
  bool SplitCases(sym::Expr a, sym::Expr b, int depth);

  sym::Forms& forms_;
  const Graph& graph_;
  int side_ = 0;
  absl::flat_hash_map<ValueId, ValueId> representative_;
  absl::flat_hash_map<ValueId, ValueId> aliases_;
  absl::flat_hash_map<sym::Expr, sym::Expr> numbered_;
  absl::flat_hash_map<std::string, NodeId> by_key_;
  absl::flat_hash_map<std::string, std::vector<NodeId>> by_signature_;  // of the first side
  absl::flat_hash_map<std::string, ValueId> constants_;
  absl::flat_hash_set<NodeId> done_, first_side_, matched_;
  Bridge bridge_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace kvlift
