// The number of allocations of this test program (operator new; malloc and its like too unless a
// sanitizer replaces them), for tests that link count_news.cc.
#pragma once

#include <cstdint>

namespace kvlift {

int64_t CountedNews();

}  // namespace kvlift
