// Caches that get another layout at the model's interface: what --layout asks for and targets
// demand. Internal to lib/rewrite.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "onnx/onnx_pb.h"
#include "rewrite/plan_state.h"

namespace kvlift::internal {

// Heads and their elements on one axis, [B, M, Nk*D], D fastest: what targets with 3-D caches take.
inline constexpr char kFoldedLayout[] = "BS(ND)";

// The layout of a cache in the result, and the axis of its sequence there.
struct Placement {
  std::string layout;
  int axis = 0;
  bool moved = false;  // another one than in the source
};
Placement PlacementOf(const ConvertOptions& options, const CacheUpdate& update);

// Why caches cannot be as the target and --layout want them; absent if they can.
std::optional<Finding> JudgeLayouts(const PlanState& state);

// `value`, in the layout of the source's cache, as the result's; and back.
std::string Placed(PlanState& state, const CacheUpdate& update, const std::string& value);
std::string Unplaced(PlanState& state, const CacheUpdate& update, const std::string& value);
// [B, N, S, D] to [B, S, N*D].
std::string FoldHeads(PlanState& state, const std::string& value, int64_t heads, int64_t size);

// The new rows as an existing value that lies as the result's cache; kNoValue if there is none.
ValueId FindPlacedRows(PlanState& state, const CacheUpdate& update);

// The declared type of a past or present, placed.
onnx::TypeProto PlacedType(const PlanState& state, const CacheUpdate& update,
                           const onnx::TypeProto& type);

}  // namespace kvlift::internal
