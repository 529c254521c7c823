// Measures the peak rates of this machine, to compare measured times with.
#pragma once

namespace kvlift::exec {

// Returns the bytes read per second from memory, in 1e9, by `threads` threads together (0: one per
// processor). 0 if there is no memory.
double ProbeReadGbs(int threads);
// Returns the floating-point operations per second of the matrix kernel in cache, in 1e9.
double ProbeFmaGflops(int threads);
// Returns the name of the instruction set in use, such as "avx2".
const char* IsaName();

}  // namespace kvlift::exec
