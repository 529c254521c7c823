// What this machine can do at best, measured now: the scale that timings are read against.
#pragma once

namespace kvlift::exec {

// Bytes read per second from memory, in 1e9, by `threads` threads together (0: as the machine has).
double ProbeReadGbs(int threads);
// Floating-point operations per second of the matrix kernel in cache, in 1e9.
double ProbeFmaGflops(int threads);
// The instruction set in use: "avx2", ...
const char* IsaName();

}  // namespace kvlift::exec
