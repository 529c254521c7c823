// Inside of Program: the plan, the constants, and the bodies of If, Loop and functions as programs
// of their own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "exec/objects.h"
#include "exec/plan.h"
#include "exec/program.h"
#include "exec/tensor.h"
#include "exec/wiring.h"
#include "ir/graph.h"

namespace kvlift::exec {

enum class CallKind { kIf, kLoop, kScan, kFunction, kObject };

// A node that runs other programs. Inputs of a body are its formal inputs, then `captures`.
struct CallPlan {
  CallKind kind = CallKind::kFunction;
  std::vector<std::shared_ptr<const Program>> bodies;  // If: then, else
  std::vector<ValueId> captures;                       // of the enclosing graph
  ObjectFn object = nullptr;
};

struct Program::Impl {
  std::shared_ptr<const Graph> graph;
  std::shared_ptr<const Graph> source;  // has the constants of `graph`, which need have no data
  CompileOptions options;
  int threads = 1;
  Plan plan;
  Wiring wiring;
  std::vector<AliasDecision> aliasing;
  std::vector<Tensor> constants;                         // by ValuePlan::index
  std::vector<std::shared_ptr<const Prepacked>> packed;  // by NodeId, null where nothing is
  std::vector<std::unique_ptr<CallPlan>> calls;          // by NodeId, null for kernels
};

// The program of a node that is a function: model-local, or an operator without kernel whose schema
// has a body. `types` are the element types of the node's inputs, 0 where omitted or not known.
// NotFound if there is no body; FailedPrecondition if the body depends on a type that is not known.
absl::StatusOr<std::shared_ptr<const Program>> CompileFunction(const onnx::ModelProto& model,
                                                               const onnx::NodeProto& node,
                                                               const std::vector<int32_t>& types,
                                                               const CompileOptions& options);
// The program of an If, Loop or Scan body; `captures` become further inputs.
absl::StatusOr<std::shared_ptr<const Program>> CompileBody(const Graph& outer,
                                                           const onnx::GraphProto& body,
                                                           const std::vector<ValueId>& captures,
                                                           const CompileOptions& options);

}  // namespace kvlift::exec
