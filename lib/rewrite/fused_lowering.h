// What lowerings of fused attention operators share: values and nodes of the graph under edit.
// Internal to lib/rewrite.
#pragma once

#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "ir/node_builder.h"
#include "ir/patch.h"
#include "rewrite/normalise.h"
#include "sym/forms.h"

namespace kvlift::fused {

class Lowering {
 public:
  explicit Lowering(const Graph& graph) : graph_(graph), forms_(graph), nodes_(graph) {}

  const Graph& graph() const { return graph_; }
  sym::Forms& forms() { return forms_; }
  NodeBuilder& nodes() { return nodes_; }
  Patch& patch() { return patch_; }

  bool has(NodeId n, size_t input) const;
  // Empty if there is none.
  std::string in(NodeId n, size_t input) const;
  std::string out(NodeId n, size_t output) const;
  const sym::Form& Form(NodeId n, size_t input) { return forms_.Of(graph_.inputs(n)[input]); }
  int Rank(NodeId n, size_t input);
  // The extent where it is a constant, else 0.
  int64_t Extent(NodeId n, size_t input, int axis);
  int32_t Type(NodeId n, size_t input) { return forms_.ElementType(graph_.inputs(n)[input]); }
  // Those of the inputs that are there.
  bool SameTypes(NodeId n, std::initializer_list<int> inputs);
  // The output has this shape by what is declared for it, as far as that says anything; 0 is an
  // extent that is not known. The type is that of input 0, unless another is given.
  bool MayGive(NodeId n, size_t output, const std::vector<int64_t>& shape, int32_t type = 0);

  // [B, S, heads * D] -> [B, heads, S, D].
  std::string SplitHeads(const std::string& value, int64_t heads, std::string_view role);
  // [B, heads, S, D] -> [B, S, heads * D], as the named value.
  void JoinHeads(const std::string& value, int64_t size, const std::string& output);
  // int64 [1]: the extent of an axis.
  std::string Length(const std::string& value, int axis, std::string_view role);
  // bool [S, T]: t <= P + s. past: a value with P along axis 2, or empty; queries: with S there.
  std::string CausalOrder(const std::string& past, const std::string& queries);
  // bool [S, T]: t > P + s - window.
  std::string Near(const std::string& past, const std::string& queries, int64_t window);
  // 0 where the condition holds, else `low`, plus the bias if there is one.
  std::string Masked(const std::string& condition, const std::string& bias, double low,
                     int32_t type);

  void Refuse(NodeId n, std::string text);
  // An operator that keeps caches in a way that is not lowered at all.
  void Report(NodeId n, std::string text);
  // What was lowered takes the mask as all ones.
  void AllOnes(ValueId mask) { ones_.insert(mask); }
  // Nodes that are added from here on were made for n.
  void Scope(NodeId n);
  // Applies what was collected.
  absl::Status Finish(Normalised* result);

 private:
  struct Places {
    std::string keys, rows;  // int64 [T] and [S, 1]
  };
  Places PlacesOf(const std::string& past, const std::string& queries);
  absl::Status DropMasks(Normalised* result);

  const Graph& graph_;
  sym::Forms forms_;
  NodeBuilder nodes_;
  Patch patch_;
  std::vector<Finding> refusals_;
  std::set<ValueId> ones_;
  std::vector<Normalised::Origin> origins_;
  int number_ = 0;
};

// Each returns true if the node was its business, lowered or refused.
bool LowerAttention(Lowering& l, NodeId n);
bool LowerMultiHeadAttention(Lowering& l, NodeId n);
bool LowerGroupQueryAttention(Lowering& l, NodeId n);
bool LowerEinsumProduct(Lowering& l, NodeId n);

}  // namespace kvlift::fused
