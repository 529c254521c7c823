// The run-time state of one program: values, slots, output buffers. Session drives the frame of
// the main graph; If, Loop, Scan and function nodes own frames of their bodies.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "exec/kernel.h"
#include "exec/memory.h"
#include "exec/program.h"
#include "exec/program_impl.h"
#include "exec/session.h"
#include "exec/tensor.h"
#include "exec/undo.h"

namespace kvlift::exec {

class Frame {
 public:
  explicit Frame(std::shared_ptr<const Program> program);

  // One pass. `inputs` has one view per graph input, in graph order; `next` one buffer per cache
  // pair for a present that is not written in place. An error names the node; overwritten cache
  // rows are then as before.
  absl::Status Run(absl::Span<const View> inputs, absl::Span<Buffer> next,
                   const Observer& observer);
  // Undoes the writes to caches of the last Run.
  void Undo() { undo_.Restore(); }

  // Value of a graph output after Run.
  const View& output_view(int i) const;
  // The same as a tensor that shares no memory with what the next Run writes.
  absl::StatusOr<Tensor> Output(int i);

 private:
  struct Call;
  struct Slices;

  absl::Status RunStep(const StepPlan& step, const Observer& observer);
  absl::Status RunKernel(const StepPlan& step);
  absl::Status Place(const StepPlan& step, int output, const OutputSpec& spec, View& view);
  absl::Status RunCall(const StepPlan& step);
  absl::Status RunIf(const StepPlan& step, Call& call);
  absl::Status RunLoop(const StepPlan& step, Call& call);
  absl::Status RunScan(const StepPlan& step, Call& call);
  absl::Status RunBatchScan(Call& call, int64_t scanned, const std::vector<int64_t>& directions);
  absl::Status Iterate(Call& call, int64_t length, std::vector<Slices>& slices,
                       std::vector<Tensor>& state, std::vector<std::vector<Tensor>>& scans);
  absl::Status RunFunction(const StepPlan& step, Call& call);
  absl::Status RunBody(Call& call, int body);
  void SetOutput(const StepPlan& step, int output, Tensor tensor);
  void CollectInputs(NodeId node);
  const Program::Impl& impl() const { return program_->impl(); }

  std::shared_ptr<const Program> program_;
  std::vector<View> views_;      // by ValueId
  std::vector<Tensor> tensors_;  // by ValueId: what calls returned
  std::vector<Buffer> slots_;
  std::vector<int> slot_map_;    // slot of the plan -> slots_; in-place steps swap two entries
  std::vector<Buffer> outputs_;  // by graph output
  absl::Span<Buffer> next_;
  std::vector<std::unique_ptr<Call>> calls_;  // by NodeId
  UndoLog undo_;
  // Reused by every step.
  std::vector<View> in_, out_;
  std::vector<OutputSpec> specs_;

 public:
  ~Frame();
};

}  // namespace kvlift::exec
