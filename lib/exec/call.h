// Run-time state of one If, Loop, Scan or function node.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "exec/frame.h"
#include "exec/program_impl.h"
#include "exec/tensor.h"

namespace kvlift::exec {

struct Frame::Call {
  const CallPlan* plan = nullptr;
  // Functions whose body depends on element types: what `function` was made for.
  std::shared_ptr<const Program> function;
  std::vector<int32_t> function_types;
  std::vector<std::unique_ptr<Frame>> frames;  // by body; made at first use
  std::vector<View> inputs;                    // of the body
  std::vector<Tensor> results;
};

// The results of all iterations, stacked on a new first axis. Of no iteration: what the body
// declares for its output `index`, dimensions that are not known being 0.
absl::StatusOr<Tensor> StackResults(const std::vector<Tensor>& parts, const Program& body,
                                    size_t index);

}  // namespace kvlift::exec
