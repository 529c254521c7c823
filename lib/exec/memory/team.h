// The threads of a step. There is one parallel region per step: the step runs on the calling
// thread, and the other threads wait inside the region for units of work. Any free thread claims
// the next unit. What a unit computes depends on shapes alone, not on the thread or on their
// number, so results have the same bits for any number of threads.
//
// Waiting threads spin for about 50 us and then sleep; OMP_WAIT_POLICY has no effect. The calling
// thread waits until all claimed units are finished.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace kvlift::exec {

// Runs `body` on this thread, with up to `threads` - 1 others available to RunUnits. Inside another
// region or a unit, or with threads <= 1, it only calls `body`.
void RunWithTeam(int threads, absl::FunctionRef<void()> body);

// Calls f(0) .. f(units - 1), each once, on up to `threads` threads, and returns when all are done.
// Opens a region for this call if there is none. Called by a unit, it runs all units on that
// thread.
void RunUnits(int threads, int64_t units, absl::FunctionRef<void(int64_t)> f);

// Returns the number of calls of RunUnits on this thread that had work for several threads. If a
// step makes none, no region is worth opening for the next one.
int64_t TeamRequests();

}  // namespace kvlift::exec
