// An operator that only the oracle has: rows after they were stored in a quantised cache, with one
// scale per `group` elements of the last axis. The value is that of the operand; the quantisation
// error, half a step of the group's scale, is added to its error bounds. Attributes: group, to (the
// stored element type).
#pragma once

#include <string_view>

namespace kvlift::oracle {

inline constexpr std::string_view kRoundedRowsDomain = "kvlift.oracle";
inline constexpr std::string_view kRoundedRows = "RoundedRows";

}  // namespace kvlift::oracle
