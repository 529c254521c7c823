// Makes mutants of a model: each is the list of the model's nodes with a few edits.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "onnx/onnx_pb.h"
#include "verify/mutants/mutants.h"

namespace kvlift {

class MutantMaker {
 public:
  // The graph must outlive the maker.
  explicit MutantMaker(const Graph& graph) : graph_(graph) {}

  // Sets the group (Mutant::group) of the mutants that follow.
  void Group(std::string group) { group_ = std::move(group); }
  // Adds a mutant: calls `edit` with a copy of each node, in topological order. The callback edits
  // the node, appends to `before` the nodes that have to stand in front of it, and calls After for
  // nodes that have to stand behind it.
  using Edit =
      std::function<void(NodeId n, onnx::NodeProto* node, std::vector<onnx::NodeProto>* before)>;
  void Add(const std::string& name, const std::vector<onnx::TensorProto>& constants,
           const Edit& edit);
  // Adds a mutant with the model's own nodes; `finish` edits the model that is built of it.
  void AddModel(const std::string& name, std::function<void(onnx::ModelProto*)> finish);
  // Puts a node behind the one that is being edited. Only called within an Edit.
  void After(onnx::NodeProto node) { after_.push_back(std::move(node)); }
  // Marks the last mutant as one that removes a condition which hides keys (Mutant::guard).
  void MarkAsGuard() { mutants_.back().guard = true; }
  // Says why the last mutant is equivalent to the model; empty: it is not known to be.
  void Equivalent(std::string why) { mutants_.back().equivalent = std::move(why); }
  // Says that the last mutant is equivalent if this fact holds of the value in every step.
  void EquivalentIf(SeenFact fact, const std::string& value) {
    mutants_.back().equivalent_if = fact;
    mutants_.back().equivalent_value = value;
  }
  // Sets the check that has to detect the last mutant.
  void ShownBy(Detector detector) { mutants_.back().detector = detector; }
  // Adds a mutant in which `by` is added to int64 operand k of the given nodes.
  void Shifted(const std::string& name, const std::vector<NodeId>& where, int k, int64_t by);
  // Adds a mutant in which operand k [B] of the given nodes holds the element of sequence 0 for all
  // sequences.
  void OfFirst(const std::string& name, const std::vector<NodeId>& where, int k);
  // Adds a mutant in which operand k of the given nodes is the value whose name `make` returns.
  // `make` appends the nodes that compute it to `before`; `id` is a prefix for unique names.
  using Replace =
      std::function<std::string(NodeId n, const onnx::NodeProto& node, const std::string& id,
                                std::vector<onnx::NodeProto>* before)>;
  void Replaced(const std::string& name, const std::vector<onnx::TensorProto>& constants,
                const std::vector<NodeId>& where, int k, const Replace& make);

  static onnx::NodeProto Make(const std::string& op, const std::vector<std::string>& inputs,
                              const std::string& output);
  static onnx::NodeProto Make(const std::string& op, const std::vector<std::string>& inputs,
                              const std::string& output,
                              const std::vector<onnx::AttributeProto>& attributes);
  static onnx::TensorProto Ints(const std::string& name, const std::vector<int64_t>& values);
  // Returns a scalar of any float or integer type, or bool.
  static onnx::TensorProto Scalar(const std::string& name, int32_t type, double value);
  static onnx::AttributeProto IntAttr(const std::string& name, int64_t value);
  static onnx::AttributeProto IntsAttr(const std::string& name, const std::vector<int64_t>& values);
  static onnx::AttributeProto FloatAttr(const std::string& name, float value);
  static onnx::AttributeProto StringAttr(const std::string& name, const std::string& value);
  // Removes an attribute if the node has it.
  static void Drop(onnx::NodeProto* node, const std::string& attribute);

  ValueId Input(NodeId n, int k) const;     // operand k; kNoValue if omitted
  std::string Name(NodeId n, int k) const;  // the name of operand k; empty if omitted
  const Graph& graph() const { return graph_; }
  std::vector<Mutant>& mutants() { return mutants_; }

 private:
  const Graph& graph_;
  std::string group_;
  std::vector<onnx::NodeProto> after_;
  std::vector<Mutant> mutants_;
};

// Returns an empty model to whose main graph tensors of another model may be added as initialisers
// without copying (UnsafeArenaAddAllocated). It releases them before it is destroyed; `owner` keeps
// them alive until then.
std::shared_ptr<onnx::ModelProto> BorrowingModel(std::shared_ptr<const void> owner);

// Returns the mutant as a model. It shares the weights of the graph's model, which it keeps alive,
// and the constants of `mutant`, which must outlive it.
std::shared_ptr<const onnx::ModelProto> BuildMutant(const Graph& graph, const Mutant& mutant);

}  // namespace kvlift
