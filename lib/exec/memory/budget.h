// Limits on memory, tensor sizes and time of the models that run, for the whole process. A model
// that exceeds one gets an error with the finding code of the limit (onnxio/files/limits.h), and
// its memory is released.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "exec/memory/tensor.h"
#include "onnxio/files/limits.h"

namespace kvlift::exec {

// Sets Limits::elements, run_bytes and step_seconds for the process; the defaults of Limits apply
// until then. Must not be called while a model runs.
void SetRunLimits(const Limits& limits);
const Limits& RunLimits();

// Returns why `bytes` more cannot be had: OutOfRange if they exceed Limits::run_bytes, else
// ResourceExhausted (the system has no more).
absl::Status NoMemory(size_t bytes);
// Throws std::bad_alloc where no error can be returned (the constructor of Tensor). WithinMemory
// turns it back into NoMemory(bytes).
[[noreturn]] void ThrowNoMemory(size_t bytes);
// Returns true if the error only says that the model is too large for this machine or these limits:
// ResourceExhausted, or the codes KV020, KV021 and KV022.
bool IsOverBudget(const absl::Status& status);

// Returns OutOfRange if the number of elements, or one dimension, exceeds Limits::elements.
absl::Status CheckElements(const Shape& shape);

// Calls f and returns its status. Returns NoMemory or ResourceExhausted if f runs out of memory.
absl::Status WithinMemory(absl::FunctionRef<absl::Status()> f);

// Measures the time of one step on this thread, from construction to destruction. Clocks may nest:
// the innermost one counts.
class StepClock {
 public:
  StepClock();
  ~StepClock();
  StepClock(const StepClock&) = delete;
  StepClock& operator=(const StepClock&) = delete;

  // Returns OutOfRange if the step has run longer than Limits::step_seconds, and OK outside of a
  // step.
  static absl::Status Check();

 private:
  int64_t outer_;
};

// Counts memory that the executor uses but does not allocate itself against Limits::run_bytes,
// until destruction.
class Charge {
 public:
  Charge() = default;
  ~Charge();
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

  // Returns NoMemory, and counts nothing, if there is no room for `bytes` more.
  absl::Status Add(size_t bytes);

 private:
  size_t bytes_ = 0;
};

}  // namespace kvlift::exec
