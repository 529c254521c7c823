// The number of memory allocations of a test program that links count_news.cc: operator new, and
// malloc and its variants unless a sanitizer replaces them.
#pragma once

#include <cstdint>

namespace kvlift {

int64_t CountedNews();

}  // namespace kvlift
