// Places blocks of known size and lifetime in one piece of memory.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/types/span.h"

namespace kvlift::exec {

// A block that is needed from step `first` to step `last`, both included.
struct Block {
  size_t bytes = 0;
  int first = 0, last = 0;
};

inline constexpr size_t kArenaAlignment = 64;

// Gives every block an offset, a multiple of kArenaAlignment, so that no two blocks that live at
// the same step overlap: first the largest, each into the smallest gap that holds it. Returns the
// bytes needed in all. Blocks of 0 bytes get offset 0.
size_t PackArena(absl::Span<const Block> blocks, std::vector<size_t>* offsets);

}  // namespace kvlift::exec
