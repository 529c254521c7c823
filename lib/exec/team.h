// The threads of a step. One parallel region per step: the step itself runs on the calling thread,
// the others wait inside the region for units of work. A unit is claimed by whoever is free. What
// it computes depends on nothing but the shapes, never on who runs it or how many there are, so
// results have the same bits for any number of threads.
//
// Threads wait by spinning for about 50 us and then sleep, whatever OMP_WAIT_POLICY says. The
// calling thread waits for units that were claimed, not for threads: one that the system has put
// aside delays nobody.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace kvlift::exec {

// Runs `body` on this thread with up to `threads` - 1 others at hand for RunUnits. Inside of
// another region, or with one thread, it just runs `body`.
void RunWithTeam(int threads, absl::FunctionRef<void()> body);

// Calls f(0) .. f(units - 1), each once, on up to `threads` threads; returns when all are done.
// Outside of a region it opens one for this call. A unit that calls RunUnits runs it alone.
void RunUnits(int threads, int64_t units, absl::FunctionRef<void(int64_t)> f);

// How often RunUnits on this thread had work for several threads. Tells whether a step is worth a
// region: one that needs no second thread should not start any.
int64_t TeamRequests();

}  // namespace kvlift::exec
