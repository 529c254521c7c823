// The run-time state of one program: values, arena, slots, output buffers. Session drives the frame
// of the main graph; If, Loop, Scan and function nodes own frames of their bodies.
//
// A run has two parts. Prepare finds the shapes of all values that do not depend on what the step
// computes, looking only at nodes whose inputs differ in shape (or in elements that shapes depend
// on) from the run before, and sees that memory is there. Then the nodes run, one kernel call each.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "exec/alias_modes.h"
#include "exec/kernel.h"
#include "exec/layout.h"
#include "exec/memory.h"
#include "exec/program.h"
#include "exec/program_impl.h"
#include "exec/session.h"
#include "exec/tensor.h"
#include "exec/undo.h"

namespace kvlift::exec {

// The memory that a cache has of its own, and how much of it the value takes.
struct CacheRoom {
  std::byte* data = nullptr;
  size_t capacity = 0;
  int64_t used = 0;  // of the value's elements alone
};

class Frame {
 public:
  explicit Frame(std::shared_ptr<const Program> program);

  // One pass. `inputs` has one view per graph input, in graph order; `next` one buffer per cache
  // pair for a present that is not written in place, `rooms` what each cache is in: one that grows
  // stays there while it can. An error names the node; overwritten cache rows are then as before.
  absl::Status Run(absl::Span<const View> inputs, absl::Span<Buffer> next, const Observer& observer,
                   absl::Span<const CacheRoom> rooms = {});
  // Undoes the writes to caches of the last Run.
  void Undo() { undo_.Restore(); }

  // Value of a graph output after Run.
  const View& output_view(int i) const;
  // The same as a tensor that shares no memory with what the next Run writes.
  absl::StatusOr<Tensor> Output(int i);

  // Adds what this frame and those of its bodies hold.
  void AddMemory(MemoryUse* use) const;

 private:
  struct Call;
  struct Slices;

  // frame_prepare.cc
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
  // Tells the observer what a step gave, parts with a pitch as dense copies.
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
  std::vector<Tensor> tensors_;  // by ValueId: what calls returned
  std::vector<Buffer> outputs_;  // by graph output
  absl::Span<Buffer> next_;
  absl::Span<const CacheRoom> rooms_;
  std::vector<bool> grows_;                   // by pair: in the memory of its past, in this run
  std::vector<std::unique_ptr<Call>> calls_;  // by NodeId
  UndoLog undo_;
  RetiredMemory retired_;

  // Steps that are not late. Operands are copies of views_, as the kernels want them.
  std::vector<View> operands_;
  std::vector<KernelContext> contexts_;  // by step
  std::vector<uint8_t> again_;           // by step: kNewShape, kNewElements
  std::vector<bool> is_view_;            // by step: nothing to compute
  std::vector<Extent> extents_;          // by ValueId
  bool extents_changed_ = false;
  Layout layout_;
  Buffer arena_;
  std::vector<Buffer> early_;
  std::vector<ValueId> roots_;     // values outside of the arena that others may be views of
  std::vector<std::byte*> bases_;  // by index in roots_: where they were in the run before
  std::vector<std::byte> before_;  // what an early value was

  // Late steps.
  std::vector<Buffer> slots_;
  std::vector<int> slot_map_;  // slot of the plan -> slots_; in-place steps swap two entries
  // Reused by every step.
  std::vector<View> in_, out_;
  std::vector<OutputSpec> specs_;

 public:
  ~Frame();
};

}  // namespace kvlift::exec
