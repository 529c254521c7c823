// Ends the program where a small allocation fails. Abseil's tables do not survive an exception
// while they grow, so that std::bad_alloc, which unwinding would carry through them, ends in a
// crash.
#pragma once

#include <string>
#include <vector>

namespace kvlift::cli {

// From now on, an allocation of less than 1 MiB that fails while no MemoryCap exists removes
// temporary files, says so on stderr, and ends the process with exit code 70; with --json in
// `args`, the error document goes to stdout. Larger allocations, such as those of tensors, and all
// of them in builds with a sanitizer, throw std::bad_alloc. Only for the program itself: a library
// must not end the process of its caller.
void ExitWhenMemoryRunsOut(const std::vector<std::string>& args);

}  // namespace kvlift::cli
