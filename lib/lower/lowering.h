// The editor that the lowerings of the two operators share: it reads the operands of a node, and
// collects the nodes that replace it. Extents that are equal are read once. Internal to lib/lower.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/findings.h"
#include "ir/node_builder.h"
#include "ir/patch.h"
#include "sym/forms/forms.h"

namespace kvlift::lower {

class Lowering {
 public:
  explicit Lowering(const Graph& graph) : graph_(graph), forms_(graph), nodes_(graph) {}

  const Graph& graph() const { return graph_; }
  NodeBuilder& nodes() { return nodes_; }
  Patch& patch() { return patch_; }

  bool has(NodeId n, size_t input) const;
  bool gives(NodeId n, size_t output) const;
  // Return the name of an operand or a result; empty if the node does not have it.
  std::string in(NodeId n, size_t input) const;
  std::string out(NodeId n, size_t output) const;
  // Returns the rank of an operand; -1 if the rank is not known or the operand is omitted.
  int Rank(NodeId n, size_t input);
  // Returns true if the extents of an operand are known as expressions.
  bool HasForm(NodeId n, size_t input);
  int32_t Type(NodeId n, size_t input) { return forms_.ElementType(graph_.inputs(n)[input]); }
  // Returns the extent of an operand's axis if that is a constant, else 0. The rank must be known.
  int64_t Constant(NodeId n, size_t input, int axis);
  // Returns true if two axes of operands are known to have the same extent in every run.
  bool SameExtent(NodeId n, size_t input, int axis, size_t other, int other_axis);

  // Adds nodes for the extent of an operand's axis; returns the name of the result, int64 [1].
  std::string Extent(NodeId n, size_t input, int axis);
  // Adds nodes for [0, 1, ..., extent - 1]; returns the name of the result, int64 [extent].
  // `extent` names an int64 [1].
  std::string Count(const std::string& extent);
  std::string Count(NodeId n, size_t input, int axis) { return Count(Extent(n, input, axis)); }
  // Returns the name of a constant extent, int64 [1].
  std::string Literal(int64_t value);
  // Concatenates k extents; returns the name of the result, int64 [k].
  std::string Join(const std::vector<std::string>& extents, std::string_view role);
  // Inserts axes of extent 1, as Unsqueeze does: `axes` are positions in the result.
  std::string Unsqueeze(const std::string& value, const std::vector<int64_t>& axes,
                        std::string_view role);

  // Set the scope of the names of nodes that are added from now on: that of n, or the one that all
  // nodes share.
  void ScopeOf(NodeId n);
  void ScopeShared() { nodes_.set_scope("shared"); }
  // Records that node n cannot be lowered. The first call is kept.
  void Refuse(NodeId n, std::string_view why);
  const std::optional<Finding>& refusal() const { return refusal_; }
  // Records that the node stays and needs the opset of the model.
  void Pin(NodeId n) { pinned_.insert(graph_.NodeName(n)); }
  const absl::flat_hash_set<std::string>& pinned() const { return pinned_; }

 private:
  // Null if the operand has no form.
  sym::Expr DimOf(NodeId n, size_t input, int axis);

  const Graph& graph_;
  sym::Forms forms_;
  NodeBuilder nodes_;
  Patch patch_;
  absl::flat_hash_map<sym::Expr, std::string> extents_;
  // Constant extents, by the name of their initialiser.
  absl::flat_hash_map<std::string, int64_t> constants_;
  absl::flat_hash_set<std::string> pinned_;
  std::optional<Finding> refusal_;
};

// Returns the first attribute of the node that is not in the list; empty if all are.
std::string UnknownAttribute(const onnx::NodeProto& node,
                             std::initializer_list<std::string_view> known);

enum class ScatterForm { kScatterNd, kWhere };
// Returns true if the node was lowered, and false after Refuse.
bool LowerTensorScatter(Lowering& l, NodeId n, ScatterForm form);

enum class AttentionForm { kOpset23, kDecomposed };
// Returns true if the node was replaced, and false after Refuse or if it stays because it means the
// same in opset 23.
bool LowerAttention(Lowering& l, NodeId n, AttentionForm form);
// Pins the node if its meaning depends on what opset 24 added to Attention.
void KeepAttention(Lowering& l, NodeId n);

}  // namespace kvlift::lower
