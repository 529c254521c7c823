// The names of the lemmas as facts list them. docs/proof.md has a table of their statements.
#pragma once

namespace kvlift::lemmas {

inline constexpr char kExactCast[] = "exact-cast";
inline constexpr char kScaleMoved[] = "scale-moved";
inline constexpr char kSoftmaxPrecision[] = "softmax-precision";
inline constexpr char kMaskSplit[] = "mask-split";
inline constexpr char kShortMask[] = "short-mask";
inline constexpr char kHiddenKeys[] = "hidden-keys";
inline constexpr char kFiniteMinimum[] = "finite-minimum";
inline constexpr char kNanGuard[] = "nan-guard";
inline constexpr char kRowMaximum[] = "row-maximum";
inline constexpr char kWrittenSoftmax[] = "written-softmax";
inline constexpr char kRenormalisedWeights[] = "renormalised-weights";
inline constexpr char kSinkKey[] = "sink-key";
inline constexpr char kHeadsRegrouped[] = "heads-regrouped";
inline constexpr char kRotationFused[] = "rotation-fused";
inline constexpr char kQuotient[] = "quotient";
inline constexpr char kLongestSequence[] = "longest-sequence";
inline constexpr char kLongerTable[] = "longer-table";

}  // namespace kvlift::lemmas
