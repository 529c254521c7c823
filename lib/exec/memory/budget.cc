#include "exec/memory/budget.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>

#include "base/checked.h"
#include "base/coded.h"
#include "exec/memory/memory.h"
#include "fmt/format.h"
#include "onnxio/files/guard.h"

namespace kvlift::exec {
namespace {

Limits limits;  // NOLINT: set before models run
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
thread_local absl::Status refusal;
thread_local int64_t deadline = kNever;  // seconds of the steady clock

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void SetRunLimits(const Limits& wanted) { limits = wanted; }
const Limits& RunLimits() { return limits; }

absl::Status NoMemory(size_t bytes) {
  if (!HasRoom(bytes)) return OverLimit(&Limits::run_bytes, limits);
  return absl::ResourceExhaustedError(fmt::format("cannot allocate {} bytes", bytes));
}

bool IsOverBudget(const absl::Status& status) {
  const std::string code = CodeOf(status);
  return absl::IsResourceExhausted(status) || code == "KV020" || code == "KV021" || code == "KV022";
}

absl::Status CheckElements(const Shape& shape) {
  int64_t size = 1, largest = 0;
  for (const int64_t dim : shape) {
    largest = std::max(largest, dim);
    size = CheckedMul(size, dim).value_or(INT64_MAX);
  }
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) size = 0;
  return std::max(size, largest) > limits.elements ? OverLimit(&Limits::elements, limits)
                                                   : absl::OkStatus();
}

void ThrowNoMemory(size_t bytes) {
  // Memory is released while the exception travels to WithinMemory, so the reason is determined
  // here.
  refusal = NoMemory(bytes);
  throw std::bad_alloc();
}

absl::Status WithinMemory(absl::FunctionRef<absl::Status()> f) {
  refusal = absl::OkStatus();
  absl::Status status;
  absl::Status guarded = Guard("running the model", [&] { status = f(); });
  if (guarded.ok()) return status;
  return absl::IsResourceExhausted(guarded) && !refusal.ok() ? refusal : guarded;
}

StepClock::StepClock() : outer_(deadline) { deadline = Now() + limits.step_seconds; }

StepClock::~StepClock() { deadline = outer_; }

absl::Status StepClock::Check() {
  if (deadline == kNever || Now() <= deadline) return absl::OkStatus();
  return OverLimit(&Limits::step_seconds, limits);
}

Charge::~Charge() { DropCharge(bytes_); }

absl::Status Charge::Add(size_t bytes) {
  if (!HasRoom(bytes)) return NoMemory(bytes);
  AddCharge(bytes);
  bytes_ += bytes;
  return absl::OkStatus();
}

}  // namespace kvlift::exec
