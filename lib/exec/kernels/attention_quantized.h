// Attention over caches of int8 values with scales: a DequantizeLinear in front of keys and values,
// made part of the Attention that reads them (fusing_attention.h).
#pragma once

#include <string_view>

namespace kvlift::exec {

// Of kFusedDomain. Inputs as Attention's, keys and values int8; input 7: scales of keys
// [B, Nk, T, D / key_group], input 8: of values; of a group of 0: one for all, or [1, Nk, 1, D].
// Attributes as Attention's, key_group, value_group.
inline constexpr std::string_view kQuantizedAttention = "QuantizedAttention";
inline constexpr char kKeyGroup[] = "key_group", kValueGroup[] = "value_group";

}  // namespace kvlift::exec
