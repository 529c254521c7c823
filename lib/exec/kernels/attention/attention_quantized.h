// Attention over int8 key and value caches: a DequantizeLinear in front of keys and values is part
// of the Attention that reads them (fusing_attention.h).
#pragma once

#include <string_view>

namespace kvlift::exec {

// Operator of kFusedDomain. Inputs 0 to 6 are those of Attention, keys and values as int8 [B, Nk,
// T, D]. Inputs 7 and 8 are the float scales of keys and values: [B, Nk, T, D / group], or for a
// group of 0 one scalar or [1, Nk, 1, D]. Attributes: those of Attention, key_group, value_group.
inline constexpr std::string_view kQuantizedAttention = "QuantizedAttention";
inline constexpr char kKeyGroup[] = "key_group", kValueGroup[] = "value_group";

}  // namespace kvlift::exec
