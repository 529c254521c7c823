// The editor that the lowerings of fused attention operators share: it reads the operands of a
// node, and collects the standard nodes that replace it and the refusals. Internal to lib/rewrite.
#pragma once

#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ir/node_builder.h"
#include "ir/patch.h"
#include "rewrite/types/normalised.h"
#include "sym/forms/forms.h"

namespace kvlift::fused {

class Lowering {
 public:
  explicit Lowering(const Graph& graph) : graph_(graph), forms_(graph), nodes_(graph) {}

  const Graph& graph() const { return graph_; }
  sym::Forms& forms() { return forms_; }
  NodeBuilder& nodes() { return nodes_; }
  Patch& patch() { return patch_; }

  bool has(NodeId n, size_t input) const;
  // Return the name of an operand or a result; empty if the node does not have it.
  std::string in(NodeId n, size_t input) const;
  std::string out(NodeId n, size_t output) const;
  const sym::Form& Form(NodeId n, size_t input) { return forms_.Of(graph_.inputs(n)[input]); }
  // Returns the rank of an operand; -1 if it is not known, or the operand is missing.
  int Rank(NodeId n, size_t input);
  // Returns the extent of an operand's axis if that is a constant, else 0.
  int64_t Extent(NodeId n, size_t input, int axis);
  int32_t Type(NodeId n, size_t input) { return forms_.ElementType(graph_.inputs(n)[input]); }
  // Returns true if each of these inputs that the node has is of the type of the first of them.
  bool SameTypes(NodeId n, std::initializer_list<int> inputs);
  // Returns true if the declared type of an output does not contradict this shape and element type.
  // An extent of 0 is not known; type 0 is that of input 0.
  bool MayGive(NodeId n, size_t output, const std::vector<int64_t>& shape, int32_t type = 0);

  // Returns [B, heads, S, D] from [B, S, heads * D].
  std::string SplitHeads(const std::string& value, int64_t heads, std::string_view role);
  // Makes the value `output`, [B, S, heads * D], from [B, heads, S, D]. size: heads * D; 0: not
  // known.
  void JoinHeads(const std::string& value, int64_t size, const std::string& output);
  // Returns the extent of an axis, int64 [1].
  std::string Length(const std::string& value, int axis, std::string_view role);
  // Returns bool [S, T]: t <= P + s. past: a value whose axis 2 is P, or empty for P = 0. queries:
  // a value whose axis 2 is S.
  std::string CausalOrder(const std::string& past, const std::string& queries);
  // Returns bool [S, T]: t > P + s - window.
  std::string Near(const std::string& past, const std::string& queries, int64_t window);
  // Returns the bias (0 if empty) where the condition holds, and `low` elsewhere.
  std::string Masked(const std::string& condition, const std::string& bias, double low,
                     int32_t type);

  // The numbers of two inputs of an operator of com.microsoft: the padding mask, [B, T], and the
  // attention_bias, which is added to the scores.
  struct MaskInputs {
    size_t padding, scores;
  };
  // Returns the mask operand of the Attention that replaces the node: a float or a bool mask, or
  // empty if the node masks nothing. The mask combines both inputs with the attributes
  // mask_filter_value and unidirectional. past and queries: as for CausalOrder.
  std::string MaskOfFused(NodeId n, MaskInputs from, const std::string& past,
                          const std::string& queries);

  // Adds the refusal KV240: this form of the operator is not lowered.
  void Refuse(NodeId n, std::string text);
  // Adds the refusal KV206: no form of the operator is lowered.
  void Report(NodeId n, std::string text);
  // Records that the lowering is equivalent only where all elements of the mask, [B, P + S], are 1.
  void AllOnes(ValueId mask) { ones_.insert(mask); }
  // Returns the initializer that holds a tensor of a node's body.
  const std::string& Lifted(const onnx::TensorProto& tensor) {
    std::string& name = lifted_[&tensor];
    if (name.empty()) name = nodes_.Copy(tensor, "table");
    return name;
  }
  // Records that the source holds the newest rows of the past only, in such a buffer.
  void HoldNewest(const std::string& past, const SlidingBuffer& buffer) {
    sliding_.push_back({past, buffer});
  }
  // Records the exact scale and softcap of the attention that the nodes of this scope spell out.
  void NoteScores(double scale, double softcap) {
    scores_.push_back({origins_.back().prefix, scale, softcap});
  }
  // Attributes the nodes that are added from here on to n, in findings and reports.
  void Scope(NodeId n);
  // Applies the collected edits to result->model, and names or drops masks of ones.
  absl::Status Finish(UnreadMasks unread, Normalised* result);

 private:
  struct Places {
    std::string keys, rows;  // slots of the keys, int64 [T], and of the queries, int64 [S, 1]
  };
  Places PlacesOf(const std::string& past, const std::string& queries);
  absl::Status NameMasks(UnreadMasks unread, Normalised* result);

  const Graph& graph_;
  sym::Forms forms_;
  NodeBuilder nodes_;
  Patch patch_;
  std::vector<Finding> refusals_;
  std::set<ValueId> ones_;
  std::vector<SlidingRows> sliding_;
  std::vector<SpelledScores> scores_;
  std::map<const onnx::TensorProto*, std::string> lifted_;
  std::vector<Normalised::Origin> origins_;
  int number_ = 0;
};

// Returns the attribute `scale` of an operator of com.microsoft; empty where it is the default, 0.
NodeBuilder::Attributes ScaleOfFused(const onnx::NodeProto& node);

// Each returns true if the node is one of its operators, whether it was lowered or refused.
bool LowerAttention(Lowering& l, NodeId n);
bool LowerMultiHeadAttention(Lowering& l, NodeId n);
bool LowerProjectedAttention(Lowering& l, NodeId n);
bool LowerGroupQueryAttention(Lowering& l, NodeId n);
bool LowerEinsumProduct(Lowering& l, NodeId n);

}  // namespace kvlift::fused
