// The graphs of a source and of its conversion side by side in one graph, so that equal things have
// equal forms.
//
// Values of the source keep their names. Those of the conversion are called "after:NAME", unless
// they are plainly the source's: inputs that the relation says are the same, constants of the same
// name and bytes, and nodes of the same operator, attributes, inputs and output names. The prefix
// is one that no name of either model begins with, so that no name of one is taken for a name of
// the other. The same holds of dimensions: an input that only the conversion has declares sizes of
// its own, and what they are in the source is for the relation to say (proof/correspondence.h).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "ir/graph.h"
#include "sym/forms.h"

namespace kvlift {

// Whether all attributes but for some are the same. Tensors are compared by their bytes. What one
// node leaves out is what its operator set says; without versions, attributes are compared as they
// are written.
bool SameAttributes(const onnx::NodeProto& a, const onnx::NodeProto& b,
                    std::initializer_list<std::string_view> without = {}, int64_t opset_a = 0,
                    int64_t opset_b = 0);
// Whether two nodes have the same operator, attributes, operands and results, by name.
bool SameNode(const onnx::NodeProto& a, const onnx::NodeProto& b, int64_t opset_a = 0,
              int64_t opset_b = 0);
bool HasBodies(const onnx::ModelProto& model);
bool SameData(const onnx::TensorProto& a, const onnx::TensorProto& b);
// Whether numbers of a constant are looked at. Those of large weights are not: they become inputs
// without data.
bool IsRead(const onnx::TensorProto& tensor);

class GraphPair {
 public:
  // Joins two models at opset 13 or later, which have to outlive the pair. Unimplemented: a model
  // has branches.
  static absl::StatusOr<GraphPair> Create(const onnx::ModelProto& before,
                                          const onnx::ModelProto& after, const Manifest& relation);

  const Graph& graph() const { return *graph_; }
  sym::Forms& forms() const { return *forms_; }
  // The value of that name in its own model; kNoValue if there is none.
  ValueId Before(const std::string& name) const { return graph_->Find(name); }
  ValueId After(const std::string& name) const;
  // Whether a node is one of the conversion that is not plainly the source's.
  bool IsOfAfter(NodeId node) const { return node >= 0 && of_after_[node]; }
  // The operator set of a node's own model.
  int64_t OpsetOf(NodeId node) const { return IsOfAfter(node) ? opset_after_ : opset_before_; }
  // The name that a value has in its own model.
  std::string NameOf(ValueId value) const;
  // Whether two constants of one type and shape hold other numbers, of which the bytes are there.
  bool HaveOtherNumbers(ValueId after, ValueId before) const;
  // Values that are all ones, or zeros, because the relation requires it of an input of the source.
  const std::vector<std::pair<ValueId, std::string>>& required() const { return required_; }

 private:
  std::shared_ptr<const Graph> graph_;
  std::shared_ptr<sym::Forms> forms_;
  absl::flat_hash_map<std::string, std::string> after_names_;  // in the conversion -> here
  std::vector<bool> of_after_;
  int64_t opset_before_ = 0, opset_after_ = 0;
  std::string prefix_;  // of the conversion's own names
  absl::flat_hash_map<std::string, const onnx::TensorProto*> constants_;  // by name here
  std::vector<std::pair<ValueId, std::string>> required_;
};

}  // namespace kvlift
