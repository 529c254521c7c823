#include "kvlift/commands/cmd_verify_layouts.h"

#include <algorithm>
#include <tuple>

namespace kvlift::cli {
namespace {

std::string UsualLayout(size_t rank, int64_t axis) {
  if (rank == 3) return axis == 2 ? "BDS" : axis == 1 ? "BSD" : "SBD";
  if (rank == 4) return axis == 3 ? "BNDS" : axis == 2 ? "BNSD" : axis == 1 ? "BSND" : "SBND";
  if (rank == 5) return axis == 3 ? "KBNSD" : "KBSND";
  return axis == 4 ? "LKBNSD" : "LKBSND";
}

}  // namespace

std::string LayoutOf(const std::string& layout, int64_t axis, size_t rank) {
  return layout.size() == rank ? layout : UsualLayout(rank, axis);
}

std::map<char, int64_t> SizesOf(const std::string& layout, const std::vector<Dim>& dims) {
  std::map<char, int64_t> sizes;
  for (size_t k = 0; k < dims.size() && k < layout.size(); ++k) {
    if (layout[k] != 'S' && dims[k].value) sizes[layout[k]] = *dims[k].value;
  }
  return sizes;
}

std::vector<std::string> LayoutsFor(const std::string& expected, const std::vector<Dim>& dims,
                                    int64_t axis, const std::map<char, int64_t>& sizes) {
  std::vector<std::string> found;
  std::string letters = expected;
  std::sort(letters.begin(), letters.end());
  const size_t rank = dims.size(), more = letters.size() - rank;
  if (letters.size() < rank || more > 1) return found;
  const auto fits = [&](const std::vector<std::string>& axes) {
    for (size_t k = 0; k < rank; ++k) {
      if (axes[k].find('S') != std::string::npos) {
        if (static_cast<int64_t>(k) != axis || axes[k].size() > 1) return false;
        continue;
      }
      int64_t size = 1;
      for (char letter : axes[k]) {
        const auto it = sizes.find(letter);
        size = it == sizes.end() ? 0 : size * it->second;
      }
      if (size > 0 && dims[k].value.value_or(size) != size) return false;
      if (size > 0 && !dims[k].value && axes[k].find('B') == std::string::npos) return false;
    }
    return true;
  };
  do {
    for (size_t group = 0; group < (more == 0 ? 1 : rank); ++group) {
      std::vector<std::string> axes;
      std::string text;
      for (size_t k = 0, next = 0; k < rank; ++k) {
        const size_t count = more == 1 && k == group ? 2 : 1;
        axes.push_back(letters.substr(next, count));
        text += count == 2 ? "(" + axes.back() + ")" : axes.back();
        next += count;
      }
      if (fits(axes)) found.push_back(text);
    }
  } while (std::next_permutation(letters.begin(), letters.end()));
  // Likely layouts have heads in front of their elements, and the batch in front of all.
  const auto unlikely = [&](const std::string& layout) {
    return std::tuple(
        layout != expected,
        layout.find('(') != std::string::npos ? layout.find("(ND)") == std::string::npos : false,
        layout.find('B') > layout.find('S'), layout.find('B'), layout.find('N') > layout.find('D'));
  };
  std::stable_sort(found.begin(), found.end(), [&](const std::string& a, const std::string& b) {
    return unlikely(a) < unlikely(b);
  });
  return found;
}

}  // namespace kvlift::cli
