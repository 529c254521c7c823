// The texts of DroppedInput::requires_text for inputs that say to a KeyValueCache of OpenPPL's
// dynamic batching where each sequence begins (onnxio/model/functional_form.h). The conversion of
// such a model handles exactly one sequence with S new tokens and P past ones, so that the values
// are known.
#pragma once

namespace kvlift {

inline constexpr char kStartsOfNewRows[] = "0, S";
inline constexpr char kStartsOfAllRows[] = "0, P + S";
inline constexpr char kFirstSlot[] = "0";
inline constexpr char kMostNewRows[] = "S";
inline constexpr char kMostRows[] = "P + S";

}  // namespace kvlift
