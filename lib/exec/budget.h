// What running models may take, in the whole process. A model that asks for more gets an error with
// the code of the limit (onnxio/limits.h), and everything it held is given back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "exec/tensor.h"
#include "onnxio/limits.h"

namespace kvlift::exec {

// Limits::elements, run_bytes and step_seconds; those of Limits() until set. Not to be called while
// a model runs.
void SetRunLimits(const Limits& limits);
const Limits& RunLimits();

// Why `bytes` more are not to be had: over Limits::run_bytes, or the system has no more.
absl::Status NoMemory(size_t bytes);
// Where a tensor is made, which cannot return an error: std::bad_alloc, of which WithinMemory makes
// NoMemory again.
[[noreturn]] void ThrowNoMemory(size_t bytes);
// True of an error that says nothing about the model but that it is too large for this machine or
// these limits.
bool IsOverBudget(const absl::Status& status);

// OutOfRange if a value of that shape has, or a single dimension is, more than Limits::elements.
absl::Status CheckElements(const Shape& shape);

// Calls f; where it runs out of memory, NoMemory or ResourceExhausted.
absl::Status WithinMemory(absl::FunctionRef<absl::Status()> f);

// From its making on, the time of one step is counted on this thread.
class StepClock {
 public:
  StepClock();
  ~StepClock();
  StepClock(const StepClock&) = delete;
  StepClock& operator=(const StepClock&) = delete;

  // OutOfRange if the step has run for longer than Limits::step_seconds.
  static absl::Status Check();

 private:
  int64_t outer_;
};

// Memory that is not the executor's own, counted as long as this lives.
class Charge {
 public:
  Charge() = default;
  ~Charge();
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

  absl::Status Add(size_t bytes);

 private:
  size_t bytes_ = 0;
};

}  // namespace kvlift::exec
