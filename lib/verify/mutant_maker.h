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

  // The group of the mutants that follow.
  void Group(std::string group) { group_ = std::move(group); }
  // Adds a copy of the model's nodes in topological order, edited by `edit`, which appends to
  // `before` what has to stand in front of the edited node, and calls After for what stands behind.
  using Edit =
      std::function<void(NodeId n, onnx::NodeProto* node, std::vector<onnx::NodeProto>* before)>;
  void Add(const std::string& name, const std::vector<onnx::TensorProto>& constants,
           const Edit& edit);
  // A copy with other than nodes changed.
  void AddModel(const std::string& name, std::function<void(onnx::ModelProto*)> finish);
  void After(onnx::NodeProto node) { after_.push_back(std::move(node)); }
  // The last mutant takes away what hides keys; something else may hide them as well.
  void MarkAsGuard() { mutants_.back().guard = true; }
  // The last mutant changes nothing in this model, for this reason. Empty: it must show.
  void Equivalent(std::string why) { mutants_.back().equivalent = std::move(why); }
  // ... if this is seen of a value while the model runs.
  void EquivalentIf(SeenFact fact, const std::string& value) {
    mutants_.back().equivalent_if = fact;
    mutants_.back().equivalent_value = value;
  }
  // How the last mutant shows.
  void ShownBy(Detector detector) { mutants_.back().detector = detector; }
  // Reads operand k of the given nodes shifted by a constant.
  void Shifted(const std::string& name, const std::vector<NodeId>& where, int k, int64_t by);
  // Sequence 0's number for all sequences.
  void OfFirst(const std::string& name, const std::vector<NodeId>& where, int k);
  // Operand k of the given nodes becomes what `make` makes of it, in front of each of them.
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
  // A scalar of any number type.
  static onnx::TensorProto Scalar(const std::string& name, int32_t type, double value);
  static onnx::AttributeProto IntAttr(const std::string& name, int64_t value);
  static onnx::AttributeProto IntsAttr(const std::string& name, const std::vector<int64_t>& values);
  static onnx::AttributeProto FloatAttr(const std::string& name, float value);
  static onnx::AttributeProto StringAttr(const std::string& name, const std::string& value);
  static void Drop(onnx::NodeProto* node, const std::string& attribute);

  ValueId Input(NodeId n, int k) const;
  std::string Name(NodeId n, int k) const;  // of an operand; empty if omitted
  const Graph& graph() const { return graph_; }
  std::vector<Mutant>& mutants() { return mutants_; }

 private:
  const Graph& graph_;
  std::string group_;
  std::vector<onnx::NodeProto> after_;
  std::vector<Mutant> mutants_;
};

// An empty model whose initialisers are another's, which `owner` keeps alive: they are given back
// before it goes.
std::shared_ptr<onnx::ModelProto> BorrowingModel(std::shared_ptr<const void> owner);

// The mutant of a model, which must outlive it: they share the weights.
std::shared_ptr<const onnx::ModelProto> BuildMutant(const Graph& graph, const Mutant& mutant);

}  // namespace kvlift
