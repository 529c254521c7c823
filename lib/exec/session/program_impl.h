// The inside of Program: the plan, the constants, and the bodies of If, Loop, Scan and functions as
// programs of their own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "exec/compile/plan.h"
#include "exec/compile/wiring.h"
#include "exec/memory/tensor.h"
#include "exec/session/program.h"
#include "exec/session/sequence_ops.h"
#include "ir/graph.h"

namespace kvlift::exec {

enum class CallKind { kIf, kLoop, kScan, kFunction, kSequenceOp };

// A node that runs other programs. The inputs of a body are its formal inputs, then `captures`.
struct CallPlan {
  CallKind kind = CallKind::kFunction;
  // If: then_branch, else_branch. Else one body; empty for kSequenceOp and for functions that are
  // compiled when their element types are known.
  std::vector<std::shared_ptr<const Program>> bodies;
  std::vector<ValueId> captures;  // values of the enclosing graph
  // Null unless `kind` is kSequenceOp.
  SequenceOpFn object = nullptr;
};

struct Program::Impl {
  std::shared_ptr<const Graph> graph;
  // The graph before fusing. Its constants have data, those of `graph` need not have any.
  std::shared_ptr<const Graph> source;
  CompileOptions options;
  int threads = 1;
  Plan plan;
  Wiring wiring;
  std::vector<AliasDecision> aliasing;
  std::vector<Tensor> constants;                         // by ValuePlan::index
  std::vector<std::shared_ptr<const Prepacked>> packed;  // by NodeId; null where nothing is packed
  std::vector<std::unique_ptr<CallPlan>> calls;          // by NodeId; null for nodes with a kernel
};

// Compiles the body of a node that is a model-local function, or an operator whose schema has a
// function body. `types` are the element types of the node's inputs, 0 where omitted or unknown.
// NotFound if there is no body; FailedPrecondition if the body depends on a type that is unknown;
// InvalidArgument if functions are nested too deep; else as Program::Compile.
absl::StatusOr<std::shared_ptr<const Program>> CompileFunction(const onnx::ModelProto& model,
                                                               const onnx::NodeProto& node,
                                                               const std::vector<int32_t>& types,
                                                               const CompileOptions& options);
// Compiles the body of If, Loop or Scan; `captures` become further inputs. Fails as
// Program::Compile.
absl::StatusOr<std::shared_ptr<const Program>> CompileBody(const Graph& outer,
                                                           const onnx::GraphProto& body,
                                                           const std::vector<ValueId>& captures,
                                                           const CompileOptions& options);

}  // namespace kvlift::exec
