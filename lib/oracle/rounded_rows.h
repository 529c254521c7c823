// An operator of the oracle's own: rows as they are after they were kept in few bits, with one
// scale per group of elements along the last axis. The value is the operand's; what rounding may
// have made of it is an error beside it: half a step of the group's scale. Attributes: group, to (a
// type).
#pragma once

#include <string_view>

namespace kvlift::oracle {

inline constexpr std::string_view kRoundedRowsDomain = "kvlift.oracle";
inline constexpr std::string_view kRoundedRows = "RoundedRows";

}  // namespace kvlift::oracle
