// The number of C++ allocations of this test program, for tests that link count_news.cc.
#pragma once

#include <cstdint>

namespace kvlift {

int64_t CountedNews();

}  // namespace kvlift
