// The source and the converted model joined into one graph, so that equal values get equal symbolic
// forms (sym/forms/forms.h).
//
// Values of the source keep their names. A value of the converted model is renamed to "after:NAME"
// unless it is plainly the source's: an input that the manifest calls the same, a constant of the
// same name and bytes, or a node with the same operator, attributes, inputs and output names.
// Colons are added to the prefix until no name of either model begins with it. The same prefix is
// given to the dimensions of inputs that only the converted model has, because an equal dimension
// name does not mean an equal size; the manifest says what they are in the source
// (proof/correspondence/correspondence.h).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "ir/graph.h"
#include "sym/forms/forms.h"

namespace kvlift {

// Returns true if `a` and `b` have the same attributes, apart from those named in `without`.
// Tensors are compared by their bytes. An attribute that one node leaves out has the default of
// that node's opset; with an opset of 0 no defaults are known, and both nodes have to write the
// attribute.
bool SameAttributes(const onnx::NodeProto& a, const onnx::NodeProto& b,
                    std::initializer_list<std::string_view> without = {}, int64_t opset_a = 0,
                    int64_t opset_b = 0);
// Returns true if `a` and `b` have the same operator, attributes, input names and output names.
bool SameNode(const onnx::NodeProto& a, const onnx::NodeProto& b, int64_t opset_a = 0,
              int64_t opset_b = 0);
// Returns true if any node has a subgraph (If, Loop, Scan).
bool HasBodies(const onnx::ModelProto& model);
// Returns true if both tensors have the same type, shape and bytes. Tensors in external files are
// compared by file, offset and length, unless their bytes are mapped.
bool SameData(const onnx::TensorProto& a, const onnx::TensorProto& b);
// Returns true if the proof reads the elements of this constant: it is not in an external file, and
// is not a float tensor of more than 4096 elements, unless it may be a triangular mask. Any other
// constant becomes a graph input without data.
bool IsRead(const onnx::TensorProto& tensor);

// Returns the names of the source's results that the manifest compares: its outputs, in the order
// of the manifest, then the presents of its caches.
std::vector<std::string> ComparedResults(const Manifest& relation);

class GraphPair {
 public:
  // Joins two models of opset 13 or later, which must outlive the pair. Returns Unimplemented if a
  // model has branches or loops, and the error of Graph::Build if the joined graph is not valid.
  static absl::StatusOr<GraphPair> Create(const onnx::ModelProto& before,
                                          const onnx::ModelProto& after, const Manifest& relation);

  const Graph& graph() const { return *graph_; }
  sym::Forms& forms() const { return *forms_; }
  // The value that has this name in the source or in the converted model; kNoValue if there is
  // none.
  ValueId Before(const std::string& name) const { return graph_->Find(name); }
  ValueId After(const std::string& name) const;
  // Returns true if the node belongs to the converted model only.
  bool IsInAfter(NodeId node) const { return node >= 0 && in_after_[node]; }
  // Returns true if an output of its model depends on the node. A runtime need not run others.
  bool IsNeeded(NodeId node) const { return needed_.contains(node); }
  // Returns true if the value belongs to the converted model only: its node does, or it is an input
  // or constant under a name of its own.
  bool IsValueInAfter(ValueId value) const {
    const NodeId maker = graph_->producer(value);
    return maker == kNoNode ? NameOf(value) != graph_->name(value) : IsInAfter(maker);
  }
  // The default opset of the model that the node comes from.
  int64_t OpsetOf(NodeId node) const { return IsInAfter(node) ? opset_after_ : opset_before_; }
  // The name that a value has in its own model.
  std::string NameOf(ValueId value) const;
  // Returns true if two constants have the same type and shape and differ in their bytes. False if
  // the bytes of either are not in memory.
  bool HaveOtherNumbers(ValueId after, ValueId before) const;
  // A value of the source that stands for an input, all elements of which are one number because
  // the manifest requires it.
  struct Required {
    ValueId value = kNoValue;
    std::string input;
    AllElements all = AllElements::kOnes;
  };
  const std::vector<Required>& required() const { return required_; }

 private:
  // Assumes in both models that caches hold numbers of the types through which the source sees them
  // (sym/forms/keeps_value.h).
  void AssumeNumbersOfCaches(const Manifest& relation);
  // Assumes that controls that are fed numbers of past tokens are not negative.
  void AssumePastLengths(const Manifest& relation);

  std::shared_ptr<const Graph> graph_;
  std::shared_ptr<sym::Forms> forms_;
  // A name of the converted model -> its name here.
  absl::flat_hash_map<std::string, std::string> after_names_;
  std::vector<bool> in_after_;
  absl::flat_hash_set<NodeId> needed_;
  int64_t opset_before_ = 0, opset_after_ = 0;
  std::string prefix_;  // the prefix of names that only the converted model has
  // All constants of both models, by their names here.
  absl::flat_hash_map<std::string, const onnx::TensorProto*> constants_;
  std::vector<Required> required_;
};

}  // namespace kvlift
