#include "contract/words.h"

namespace kvlift {
namespace {

constexpr KindWord<InputAs> kInputAs[] = {
    {InputAs::kSame, "same"},       {InputAs::kControl, "control"},
    {InputAs::kCache, "cache"},     {InputAs::kPadToCapacity, "pad_to_capacity"},
    {InputAs::kRenamed, "renamed"},
};

constexpr KindWord<OutputAs> kOutputAs[] = {
    {OutputAs::kSame, "same"},
    {OutputAs::kCache, "cache"},
    {OutputAs::kRenamed, "renamed"},
};

constexpr KindWord<ControlValue> kControlValues[] = {
    {ControlValue::kPastLength, "P"},     {ControlValue::kTotalLength, "T"},
    {ControlValue::kPositions, "P..T-1"}, {ControlValue::kLowerTriangle, "lower_triangle"},
    {ControlValue::kSlots, "slots"},      {ControlValue::kSequences, "sequences"},
};

constexpr KindWord<AllElements> kAllElements[] = {
    {AllElements::kOnes, "ones"},
    {AllElements::kZeros, "zeros"},
};

constexpr KindWord<DroppedValue> kDroppedValues[] = {
    {DroppedValue::kPositions, "P..T-1"},
    {DroppedValue::kWithPast, "P > 0"},
    {DroppedValue::kWithoutPast, "P == 0"},
    {DroppedValue::kStartsOfNewRows, "0, S"},
    {DroppedValue::kStartsOfAllRows, "0, P + S"},
    {DroppedValue::kFirstSlot, "0"},
    {DroppedValue::kMostNewRows, "S"},
    {DroppedValue::kMostRows, "P + S"},
    {DroppedValue::kNotRead, "not read"},
};

constexpr KindWord<CacheRole> kCacheRoles[] = {
    {CacheRole::kKey, "key"},
    {CacheRole::kValue, "value"},
    {CacheRole::kKeyValue, "key_value"},
    {CacheRole::kKeyScale, "key_scale"},
    {CacheRole::kValueScale, "value_scale"},
    {CacheRole::kKeyValueScale, "key_value_scale"},
};

constexpr KindWord<CacheAlias> kCacheAliases[] = {
    {CacheAlias::kSafe, "safe"},
    {CacheAlias::kCopy, "copy"},
};

constexpr KindWord<UpdateKind> kUpdateKinds[] = {
    {UpdateKind::kConcat, "concat"},   {UpdateKind::kWindow, "window"},
    {UpdateKind::kScatter, "scatter"}, {UpdateKind::kSplice, "splice"},
    {UpdateKind::kSelect, "select"},   {UpdateKind::kBlend, "blend"},
    {UpdateKind::kShift, "shift"},     {UpdateKind::kSliding, "sliding"},
    {UpdateKind::kFused, "fused"},     {UpdateKind::kTensorScatter, "tensor_scatter"},
};

constexpr KindWord<BufferMode> kBufferModes[] = {
    {BufferMode::kLinear, "linear"},
    {BufferMode::kCircular, "circular"},
};

constexpr KindWord<CacheRead> kCacheReads[] = {
    {CacheRead::kPrefix, "prefix"},
    {CacheRead::kFull, "full"},
};

constexpr KindWord<PreconditionStatus> kPreconditionStatuses[] = {
    {PreconditionStatus::kProved, "proved"},
    {PreconditionStatus::kGuarded, "guarded"},
    {PreconditionStatus::kAssumed, "assumed"},
};

constexpr KindWord<ShownEquality> kShownEqualities[] = {
    {ShownEquality::kProved, "proved"},
    {ShownEquality::kTested, "tested"},
    {ShownEquality::kUnproved, "unproved"},
};

constexpr KindWord<ShortSteps> kShortSteps[] = {
    {ShortSteps::kPadRight, "pad_right"},
    {ShortSteps::kNone, "none"},
};

constexpr KindWord<CompanionStep> kCompanionSteps[] = {
    {CompanionStep::kReorder, "reorder"},
    {CompanionStep::kKeep, "keep"},
};

constexpr KindWord<PositionSource> kPositionSources[] = {
    {PositionSource::kGiven, "given"},
    {PositionSource::kNone, "none"},
};

constexpr KindWord<AssumptionKind> kAssumptionKinds[] = {
    {AssumptionKind::kMaskValues, "mask_values"},
    {AssumptionKind::kAllOnes, "ones"},
    {AssumptionKind::kAllZeros, "zeros"},
    {AssumptionKind::kPositions, "positions"},
    {AssumptionKind::kOneLength, "uniform"},
    {AssumptionKind::kMaskWidth, "mask_width"},
    {AssumptionKind::kDimension, "dimension"},
    {AssumptionKind::kFrozenSize, "frozen_size"},
    {AssumptionKind::kTreeMask, "tree_mask"},
    {AssumptionKind::kCapacity, "capacity"},
    {AssumptionKind::kNewTokens, "new_tokens"},
    {AssumptionKind::kIntegerRange, "integer_range"},
    {AssumptionKind::kIndexRange, "index_range"},
    {AssumptionKind::kFinite, "finite"},
    {AssumptionKind::kNumberType, "number_type"},
    {AssumptionKind::kScoreRange, "score_range"},
    {AssumptionKind::kVisibleKey, "visible_key"},
    {AssumptionKind::kPadding, "padding"},
    {AssumptionKind::kOtherDimension, "other_dimension"},
    {AssumptionKind::kAlias, "alias"},
    {AssumptionKind::kSequences, "sequences"},
    {AssumptionKind::kPastFlag, "past_flag"},
    {AssumptionKind::kOther, "other"},
};

constexpr KindWord<AssumptionSource> kAssumptionSources[] = {
    {AssumptionSource::kManifest, "manifest"},
    {AssumptionSource::kPlan, "plan"},
    {AssumptionSource::kHost, "host"},
    {AssumptionSource::kOperator, "operator"},
};

}  // namespace

template <>
absl::Span<const KindWord<InputAs>> WordsOf() {
  return kInputAs;
}
template <>
absl::Span<const KindWord<OutputAs>> WordsOf() {
  return kOutputAs;
}
template <>
absl::Span<const KindWord<ControlValue>> WordsOf() {
  return kControlValues;
}
template <>
absl::Span<const KindWord<AllElements>> WordsOf() {
  return kAllElements;
}
template <>
absl::Span<const KindWord<DroppedValue>> WordsOf() {
  return kDroppedValues;
}
template <>
absl::Span<const KindWord<CacheRole>> WordsOf() {
  return kCacheRoles;
}
template <>
absl::Span<const KindWord<CacheAlias>> WordsOf() {
  return kCacheAliases;
}
template <>
absl::Span<const KindWord<UpdateKind>> WordsOf() {
  return kUpdateKinds;
}
template <>
absl::Span<const KindWord<BufferMode>> WordsOf() {
  return kBufferModes;
}
template <>
absl::Span<const KindWord<CacheRead>> WordsOf() {
  return kCacheReads;
}
template <>
absl::Span<const KindWord<PreconditionStatus>> WordsOf() {
  return kPreconditionStatuses;
}
template <>
absl::Span<const KindWord<ShownEquality>> WordsOf() {
  return kShownEqualities;
}
template <>
absl::Span<const KindWord<ShortSteps>> WordsOf() {
  return kShortSteps;
}
template <>
absl::Span<const KindWord<CompanionStep>> WordsOf() {
  return kCompanionSteps;
}
template <>
absl::Span<const KindWord<PositionSource>> WordsOf() {
  return kPositionSources;
}
template <>
absl::Span<const KindWord<AssumptionKind>> WordsOf() {
  return kAssumptionKinds;
}
template <>
absl::Span<const KindWord<AssumptionSource>> WordsOf() {
  return kAssumptionSources;
}

}  // namespace kvlift
