// The run-time state of one program: values, arena, slots, output buffers. Session drives the frame
// of the main graph; If, Loop, Scan and function nodes own the frames of their bodies.
//
// A run has two parts. Prepare finds the shapes of all values that do not depend on what the step
// computes, and reserves memory. It visits only nodes whose inputs have another shape than in the
// run before, or other elements where shapes depend on them. Then the nodes run, one kernel call
// each.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "exec/compile/alias_modes.h"
#include "exec/compile/memory_layout.h"
#include "exec/kernels/common/kernel.h"
#include "exec/memory/memory.h"
#include "exec/memory/tensor.h"
#include "exec/session/program.h"
#include "exec/session/program_impl.h"
#include "exec/session/session.h"
#include "exec/session/write_log.h"

namespace kvlift::exec {

// The buffer that holds a cache (`capacity` in bytes), and how much of it the value takes.
struct CacheRoom {
  std::byte* data = nullptr;
  size_t capacity = 0;
  int64_t used = 0;  // bytes of the elements, without room between heads
};

class Frame {
 public:
  explicit Frame(std::shared_ptr<const Program> program);

  // Runs the program once. `inputs` has one view per graph input, in graph order. `next` has one
  // buffer per cache pair, for a present that is not written in place. `rooms` has one entry per
  // cache pair or is empty: a cache that grows by Concat stays in its buffer while there is room.
  // `observer` may be null. An error names the node; it has the code of the kernel, or OutOfRange
  // or ResourceExhausted (budget.h). After an error all caches have their old rows.
  absl::Status Run(absl::Span<const View> inputs, absl::Span<Buffer> next, const Observer& observer,
                   absl::Span<const CacheRoom> rooms = {});
  // Restores the cache rows that the last Run overwrote.
  void Undo() { undo_.Restore(); }

  // Returns the value of a graph output, which is valid until the next Run.
  const View& output_view(int i) const;
  // Returns the same value as a tensor whose memory the next Run does not write to.
  absl::StatusOr<Tensor> Output(int i);

  // Adds the bytes that this frame and the frames of its bodies hold.
  void AddMemory(MemoryUse* use) const;

 private:
  struct Call;
  struct Slices;

  // The members up to SetPitches are in frame_prepare.cc.
  void Connect();
  absl::Status Prepare(absl::Span<const View> inputs);
  void TakeInputs(absl::Span<const View> inputs);
  void LookAgain(ValueId v, bool new_shape);
  absl::Status ResolveStep(int s, uint8_t why);
  absl::Status FindShapes(int s);
  absl::Status CheckSpec(const StepPlan& step, int output, const OutputSpec& spec) const;
  void FindParts(int s);
  absl::Status RunEarly(int s);
  bool SetSpec(ValueId v, const OutputSpec& spec);
  void SetData(ValueId v, std::byte* data);
  void SetPitch(ValueId v, int64_t pitch);
  void SetDataOfMembers(ValueId root, std::byte* data);
  absl::Status ReserveOutputs();
  absl::Status ReserveNext(int pair, const View& present);
  absl::StatusOr<int64_t> ReserveRows(int pair, const View& present);
  bool MayLieApart(const PairPlan& pair, const View& present) const;
  std::byte* NextOf(int pair) const {
    return grows_[pair] ? rooms_[pair].data : next_[pair].data();
  }
  std::byte* BaseOf(ValueId root) const;
  absl::Status Place();
  void FindViewSteps();
  void SetPitches();

  absl::Status RunStep(int s);
  absl::Status RunGuarded(int s);
  // Passes the outputs of a step to the observer; outputs with a pitch are passed as dense copies.
  void Show(int s, const Observer& observer) const;
  absl::Status RunLate(const StepPlan& step);
  absl::Status PlaceLate(const StepPlan& step, int output, const OutputSpec& spec, View& view);
  absl::Status InStep(const StepPlan& step, const absl::Status& status) const;
  KernelContext MakeContext(const StepPlan& step, absl::Span<const View> inputs,
                            absl::Span<View> outputs);
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
  absl::Span<const View> Outputs(int s) const;
  const Program::Impl& impl() const { return program_->impl(); }

  std::shared_ptr<const Program> program_;
  std::vector<View> views_;      // by ValueId
  std::vector<Tensor> tensors_;  // by ValueId: outputs of calls
  std::vector<Buffer> outputs_;  // by graph output
  absl::Span<Buffer> next_;
  absl::Span<const CacheRoom> rooms_;
  std::vector<bool> grows_;  // by pair: the present is appended in place in this run
  std::vector<std::unique_ptr<Call>> calls_;  // by NodeId
  UndoLog undo_;
  RetiredMemory retired_;

  // Steps that are not late (timing.h). `operands_` are copies of `views_`, ordered as kernels take
  // them.
  std::vector<View> operands_;
  std::vector<KernelContext> contexts_;  // by step
  std::vector<uint8_t> again_;           // by step: bits of kNewShape and kNewElements
  std::vector<bool> is_view_;            // by step: its outputs are views, nothing to compute
  std::vector<Extent> extents_;          // by ValueId
  bool extents_changed_ = false;
  Layout layout_;
  Buffer arena_;
  std::vector<Buffer> early_;
  std::vector<ValueId> roots_;     // values outside of the arena that are not views
  std::vector<std::byte*> bases_;  // by index in roots_: their memory in the last run
  std::vector<std::byte> before_;  // the previous elements of an early value

  // Late steps (timing.h).
  std::vector<Buffer> slots_;
  std::vector<int> slot_map_;  // slot of the plan -> slots_; in-place steps swap two entries
  // Reused by every step.
  std::vector<View> in_, out_;
  std::vector<OutputSpec> specs_;

 public:
  ~Frame();
};

}  // namespace kvlift::exec
