// Edits of a copy of a model, for mutants.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "onnx/onnx_pb.h"
#include "verify/mutants.h"

namespace kvlift {

class MutantMaker {
 public:
  explicit MutantMaker(const Graph& graph) : graph_(graph) {}

  // Adds a copy of the model's nodes in topological order, edited by `edit`, which appends to
  // `before` what has to stand in front of the edited node.
  using Edit =
      std::function<void(NodeId n, onnx::NodeProto* node, std::vector<onnx::NodeProto>* before)>;
  void Add(const std::string& name, const std::vector<onnx::TensorProto>& constants,
           const Edit& edit);
  // The last mutant takes away what hides keys; something else may hide them as well.
  void MarkAsGuard() { mutants_.back().guard = true; }
  // Reads operand k of the given nodes shifted by a constant.
  void Shifted(const std::string& name, const std::vector<NodeId>& where, int k, int64_t by);
  // Sequence 0's number for all sequences.
  void OfFirst(const std::string& name, const std::vector<NodeId>& where, int k);

  static onnx::NodeProto Make(const std::string& op, const std::vector<std::string>& inputs,
                              const std::string& output);
  static onnx::TensorProto Ints(const std::string& name, const std::vector<int64_t>& values);
  static onnx::AttributeProto IntAttr(const std::string& name, int64_t value);
  static void Drop(onnx::NodeProto* node, const std::string& attribute);

  ValueId Input(NodeId n, int k) const;
  std::string Name(NodeId n, int k) const;  // of an operand; empty if omitted
  const Graph& graph() const { return graph_; }
  std::vector<Mutant>& mutants() { return mutants_; }

 private:
  const Graph& graph_;
  std::vector<Mutant> mutants_;
};

}  // namespace kvlift
