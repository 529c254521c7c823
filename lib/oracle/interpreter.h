// A naive interpreter of ONNX graphs, written from the operator texts, that shares nothing with the
// executor: values are doubles, and beside each stands a bound of the rounding error that an
// execution in the model's element types may have (number.h).
//
// Operators that ONNX defines by others run through their function bodies.
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
#include "oracle/value.h"

namespace kvlift::oracle {

using Values = std::map<std::string, Value>;

class Interpreter {
 public:
  // Errors as Graph::Build.
  static absl::StatusOr<Interpreter> Create(std::shared_ptr<const onnx::ModelProto> model,
                                            std::string base_dir);

  // Operators of the model that have no meaning here, each once, sorted.
  const std::vector<std::string>& unknown() const { return unknown_; }

  // All outputs of the graph. Unimplemented: an operator, or a form of one, without meaning (names
  // it). ResourceExhausted: more than `budget` scalar operations. Adds what was done to *work.
  // Of a wide product that is an output and takes too much, some columns are computed.
  absl::StatusOr<Values> Run(const Values& inputs, int64_t budget, int64_t* work) const;

  // The scalar operations that the products with constant weights take for one row on their left.
  int64_t work_per_row() const { return work_per_row_; }

 private:
  struct Scope;
  struct Setting;
  Interpreter() = default;
  void FindUnknown(const onnx::GraphProto& graph);
  void FindProducts();
  absl::StatusOr<Value> Look(const Scope& scope, const std::string& name) const;
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
  const onnx::FunctionProto* LocalFunction(const onnx::NodeProto& node) const;

  std::shared_ptr<const Graph> graph_;
  std::string base_dir_;
  std::vector<std::string> unknown_;
  absl::flat_hash_set<const onnx::NodeProto*> last_;      // nodes that only the host reads
  absl::flat_hash_set<const onnx::NodeProto*> products_;  // with weights, not among these
  int64_t work_per_row_ = 0;
  std::vector<std::vector<std::string>> last_read_;  // by node: what nothing reads afterwards
  absl::flat_hash_map<std::string, const onnx::TensorProto*> initializers_;
  // Constants that are no copies, or small ones.
  mutable absl::flat_hash_map<std::string, Value> kept_;
};

}  // namespace kvlift::oracle
