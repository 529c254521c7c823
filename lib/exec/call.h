// Run-time state of one If, Loop or function node.
#pragma once

#include <memory>
#include <vector>

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

}  // namespace kvlift::exec
