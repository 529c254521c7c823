#pragma once

namespace kvlift {

// What dropped inputs "require" that told a KeyValueCache of dynamic_batching where sequences begin
// (onnxio/in_out.h), of which a conversion knows one: S new rows behind P old ones.
inline constexpr char kStartsOfNewRows[] = "0, S";
inline constexpr char kStartsOfAllRows[] = "0, P + S";
inline constexpr char kFirstSlot[] = "0";
inline constexpr char kMostNewRows[] = "S";
inline constexpr char kMostRows[] = "P + S";

}  // namespace kvlift
