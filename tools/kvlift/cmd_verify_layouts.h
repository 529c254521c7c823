// In which layout a tensor may hold a cache.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ir/types.h"

namespace kvlift::cli {

// The layout that is known, or else the usual one of a tensor with its sequence on `axis`.
std::string LayoutOf(const std::string& layout, int64_t axis, size_t rank);
// Sizes of letters that a tensor declares.
std::map<char, int64_t> SizesOf(const std::string& layout, const std::vector<Dim>& dims);
// The layouts in which a tensor of these dims can hold the letters, its sequence on `axis`; the
// expected one first. With fewer axes than letters one axis holds two of them.
std::vector<std::string> LayoutsFor(const std::string& expected, const std::vector<Dim>& dims,
                                    int64_t axis, const std::map<char, int64_t>& sizes);

}  // namespace kvlift::cli
