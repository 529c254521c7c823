#include "report/text/bytes.h"

#include <iterator>

#include "fmt/format.h"

namespace kvlift {

std::string BytesText(int64_t bytes) {
  const char* const kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.3g} {}", value, kUnits[unit]);
}

}  // namespace kvlift
