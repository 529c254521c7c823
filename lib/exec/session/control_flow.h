// Run-time state of a node that runs other programs: If, Loop, Scan, a function, or an operator on
// sequences, optional values or strings.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "exec/memory/tensor.h"
#include "exec/session/frame.h"
#include "exec/session/program_impl.h"

namespace kvlift::exec {

struct Frame::Call {
  const CallPlan* plan = nullptr;
  // The compiled body of a function that depends on element types, and the types of the inputs that
  // it was compiled for. Null for all other calls.
  std::shared_ptr<const Program> function;
  std::vector<int32_t> function_types;
  std::vector<std::unique_ptr<Frame>> frames;  // by body; null until first used
  std::vector<View> inputs;                    // of the body: its formal inputs, then captures
  std::vector<Tensor> results;
};

// Stacks the results of all iterations on a new first axis. Without iterations the result is empty,
// with the type and shape that the body declares for its output `index` (unknown dimensions are 0).
// Unimplemented if that type or rank is not declared; InvalidArgument if the parts differ in type
// or shape, or are not tensors of numbers.
absl::StatusOr<Tensor> StackResults(const std::vector<Tensor>& parts, const Program& body,
                                    size_t index);

}  // namespace kvlift::exec
