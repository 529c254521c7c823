// Gives caches the layout at the model's interface that --layout or the target asks for. Internal
// to lib/rewrite.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "onnx/onnx_pb.h"
#include "rewrite/plan_state.h"

namespace kvlift::internal {

// [B, M, Nk*D]: heads and their elements on one axis, D fastest, for targets with 3-D caches.
inline constexpr char kHeadsInLastAxis[] = "BS(ND)";

// Where the axes of a cache are in the result.
struct Placement {
  std::string layout;
  int axis = 0;        // the sequence axis
  bool moved = false;  // the layout differs from that of the source
};
Placement PlacementOf(const ConvertOptions& options, const CacheUpdate& update);

// Returns why caches cannot have the layout that the target and --layout ask for (KV229); nullopt
// if they can.
std::optional<Finding> JudgeLayouts(const PlanState& state);

// ToTargetLayout transposes or reshapes `value` from the layout of the source's cache to that of
// the result; ToSourceLayout does the reverse. Both return `value` itself if the layouts are the
// same.
std::string ToTargetLayout(PlanState& state, const CacheUpdate& update, const std::string& value);
std::string ToSourceLayout(PlanState& state, const CacheUpdate& update, const std::string& value);
// Returns [B, S, N*D] from [B, N, S, D].
std::string JoinHeads(PlanState& state, const std::string& value, int64_t heads, int64_t size);

// Returns a value of the source that has the new rows in the layout of the result's cache; kNoValue
// if there is none, or if the layout stays.
ValueId FindRowsInTargetLayout(PlanState& state, const CacheUpdate& update);

// Returns the declared type of a past or present in the layout of the result.
onnx::TypeProto TypeInTargetLayout(const PlanState& state, const CacheUpdate& update,
                                   const onnx::TypeProto& type);

}  // namespace kvlift::internal
