// A naive interpreter of ONNX graphs, written from the operator texts. It shares no code with the
// executor: values are doubles, and each has a bound of the rounding error that an execution in the
// model's element types may have (number.h).
//
// Operators that ONNX defines by function bodies run through those bodies.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "ir/graph.h"
#include "onnx/defs/schema.h"
#include "onnx/onnx_pb.h"
#include "oracle/core/value.h"

namespace kvlift::oracle {

using Values = std::map<std::string, Value>;

class Interpreter {
 public:
  // Fails as Graph::Build. `base_dir` is the folder of external data.
  static absl::StatusOr<Interpreter> Create(std::shared_ptr<const onnx::ModelProto> model,
                                            std::string base_dir);

  // Returns the operators of the model that the oracle cannot compute, each once, sorted.
  const std::vector<std::string>& unknown() const { return unknown_; }

  // Computes all outputs of the graph. Unimplemented: an operator, or a form of one, that the
  // oracle cannot compute (the message names it). ResourceExhausted: more than `budget` scalar
  // operations. InvalidArgument: values that do not fit an operator. Adds the operations that were
  // done to *work, also on failure. If all columns of a wide product that is a graph output would
  // exceed the budget, only some are computed (Value::columns).
  absl::StatusOr<Values> Run(const Values& inputs, int64_t budget, int64_t* work) const;

  // Returns the scalar operations that all products with constant weights take for one row of their
  // left operand.
  int64_t work_per_row() const { return work_per_row_; }

 private:
  struct Scope;
  struct Setting;
  Interpreter() = default;
  void FindUnknown(const onnx::GraphProto& graph);
  void FindProducts();
  absl::StatusOr<Value> Lookup(const Scope& scope, const std::string& name) const;
  absl::StatusOr<Value> Initializer(const std::string& name) const;
  absl::Status RunNode(const onnx::NodeProto& node, const Setting& setting, Scope& scope) const;
  absl::StatusOr<std::vector<Value>> Call(const onnx::NodeProto& node, const Setting& setting,
                                          const std::vector<Value>& in, const Scope& scope) const;
  absl::StatusOr<std::vector<Value>> RunFunction(const onnx::FunctionProto& function,
                                                 const onnx::NodeProto& node,
                                                 const onnx::OpSchema* schema,
                                                 const Setting& setting,
                                                 const std::vector<Value>& in) const;
  absl::StatusOr<std::vector<Value>> RunBody(const onnx::GraphProto& body, const Setting& setting,
                                             const Scope& outer,
                                             const std::vector<Value>& in) const;
  absl::StatusOr<std::vector<Value>> RunIf(const onnx::NodeProto& node, const Setting& setting,
                                           const std::vector<Value>& in, const Scope& scope) const;
  absl::StatusOr<std::vector<Value>> RunLoop(const onnx::NodeProto& node, const Setting& setting,
                                             const std::vector<Value>& in,
                                             const Scope& scope) const;
  absl::StatusOr<std::vector<Value>> RunScan(const onnx::NodeProto& node, const Setting& setting,
                                             const std::vector<Value>& in,
                                             const Scope& scope) const;

  std::shared_ptr<const Graph> graph_;
  std::string base_dir_;
  std::vector<std::string> unknown_;
  absl::flat_hash_set<const onnx::NodeProto*> last_;  // nodes whose results are only graph outputs
  // Products with constant weights, without `last_`.
  absl::flat_hash_set<const onnx::NodeProto*> products_;
  int64_t work_per_row_ = 0;
  // The values that are not read after a node, by node.
  std::vector<std::vector<std::string>> last_read_;
  absl::flat_hash_map<std::string, const onnx::TensorProto*> initializers_;
  // Initializers that have been read: those that are not copied, and small ones.
  mutable absl::flat_hash_map<std::string, Value> kept_;
};

}  // namespace kvlift::oracle
