// Computes the memory that the caches of a model take.
#pragma once

#include <cstdint>
#include <vector>

#include "rewrite/types/conversion.h"

namespace kvlift::cli {

// The bytes of all caches of one sequence that holds `tokens` tokens. `source`: pasts and presents,
// which a step of the source holds at once. `converted`: one buffer for each cache, with a slot for
// each token, that is bound to past and present.
struct CacheMemory {
  int64_t tokens = 0, source = 0, converted = 0;
};

// Returns the memory at 1k, 4k, 32k and 128k tokens, or at the capacity alone if all caches are
// fixed buffers. Returns an empty list if there are no caches, an extent is not constant, or a
// cache keeps a window.
std::vector<CacheMemory> MemoryOfCaches(const Inspection& inspection);

}  // namespace kvlift::cli
