// Numbers of bytes as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace kvlift {

// Returns a number of bytes with a unit: "1.5 MiB".
std::string BytesText(int64_t bytes);

}  // namespace kvlift
