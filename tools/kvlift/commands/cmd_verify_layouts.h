// The layouts in which a tensor may hold a cache. A layout has one letter per axis, such as "BNSD".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ir/types.h"

namespace kvlift::cli {

// Returns `layout` if it has one letter per axis, else the usual layout of a tensor of this rank
// with its sequence on `axis`.
std::string LayoutOf(const std::string& layout, int64_t axis, size_t rank);
// Returns the sizes that a tensor declares, by letter; S, the sequence, is left out.
std::map<char, int64_t> SizesOf(const std::string& layout, const std::vector<Dim>& dims);
// Returns the layouts in which a tensor of these dims, with its sequence on `axis`, can hold the
// letters, the expected one first. If there are fewer axes than letters, one axis holds two
// letters.
std::vector<std::string> LayoutsFor(const std::string& expected, const std::vector<Dim>& dims,
                                    int64_t axis, const std::map<char, int64_t>& sizes);

}  // namespace kvlift::cli
