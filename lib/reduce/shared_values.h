// The graphs of a subject, and the values at which they can be cut.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "ir/graph.h"
#include "reduce/subject.h"

namespace kvlift {

// Returns true if the element type, the rank and every extent are known, by number or by name.
bool IsKnown(const TensorType& type);

// The result of a node. In a pair, the results of two nodes, one in each graph, that have one name.
struct SharedValue {
  std::string name;
  ValueId before = kNoValue;
  ValueId after = kNoValue;  // kNoValue if the subject is not a pair
  TensorType type;           // elem_type 0: unknown
  bool same_type = false;    // of a pair: `type` is known, and the same in both models
  // The elements, if they are integers that depend on no input; absent: they may depend on inputs.
  std::optional<onnx::TensorProto> constant;
  // Whether a host may feed the value, and whether it may read it. In a pair both need a type that
  // is known and the same in both models. In a pair, integers and booleans never become outputs,
  // and become inputs only if they depend on no cache and no control: they may hold lengths, which
  // the two models count in different ways.
  bool may_be_input = false;
  bool may_be_output = false;
};

// The source of the types of values that a model does not declare.
enum class TypesFrom {
  kForms,  // lib/sym, which knows most of them
  kOnnx,   // ONNX's shape inference, where a fault of lib/sym may be what is to be kept
};

class SubjectGraphs {
 public:
  // Indexes a subject, which must outlive the result. whole: an index of the subject that this one
  // is a part of, from which types are taken that the remaining nodes do not determine; null if the
  // subject is not a part of another one. Fails as Graph::Build.
  static absl::StatusOr<std::unique_ptr<SubjectGraphs>> Of(const Subject& subject,
                                                           TypesFrom types = TypesFrom::kForms,
                                                           const SubjectGraphs* whole = nullptr);

  const Subject& subject() const { return subject_; }
  const Graph& before() const { return *before_; }
  // Only if the subject is a pair.
  const Graph& after() const { return *after_; }

  // Returns the shared values in the order of the nodes of before().
  const std::vector<SharedValue>& values() const { return values_; }
  // Returns null if no shared value has this name.
  const SharedValue* Find(const std::string& name) const;

 private:
  explicit SubjectGraphs(const Subject& subject) : subject_(subject) {}
  void FindValues();
  void FindTypes(TypesFrom from);
  void FindConstants();
  void KeepTypes(const SubjectGraphs& whole);
  void FindEnds();

  const Subject& subject_;
  std::optional<Graph> before_, after_;
  std::vector<SharedValue> values_;
  absl::flat_hash_map<std::string, size_t> by_name_;
};

}  // namespace kvlift
