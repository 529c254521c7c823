#include "contract/layout.h"

namespace kvlift {

std::vector<std::string> AxesOfLayout(std::string_view layout) {
  std::vector<std::string> axes;
  bool inside = false;
  for (const char c : layout) {
    if (c == '(' && !inside) {
      axes.emplace_back();
      inside = true;
    } else if (c == ')' && inside && !axes.back().empty()) {
      inside = false;
    } else if (c == '(' || c == ')') {
      return {};
    } else if (inside) {
      axes.back() += c;
    } else {
      axes.emplace_back(1, c);
    }
  }
  return inside ? std::vector<std::string>() : axes;
}

std::string PlainLayout(std::string_view layout) {
  std::string letters;
  for (const std::string& axis : AxesOfLayout(layout)) letters += axis.back();
  return letters;
}

}  // namespace kvlift
