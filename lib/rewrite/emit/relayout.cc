#include "rewrite/emit/relayout.h"

#include <string_view>
#include <vector>

namespace kvlift::internal {
namespace {

// Returns the axes of `from` in the order of `to`; both have the same letters.
std::vector<int64_t> PermOf(std::string_view from, std::string_view to) {
  std::vector<int64_t> perm;
  for (char letter : to) perm.push_back(static_cast<int64_t>(from.find(letter)));
  return perm;
}

std::string Permute(EmitState& s, const std::string& value, std::string_view from,
                    std::string_view to) {
  if (from == to) return value;
  return s.nodes.Add("Transpose", {value}, "placed", {MakeAttribute("perm", PermOf(from, to))});
}

// Returns [B, S, width] from a layout of four axes.
std::string Join(EmitState& s, const std::string& value, std::string_view from, int64_t width) {
  const std::string permuted = Permute(s, value, from, "BSND");
  return s.nodes.Add("Reshape", {permuted, s.nodes.Int64s({0, 0, width})}, "folded");
}

}  // namespace

std::string JoinHeads(EmitState& s, const std::string& value, int64_t heads, int64_t size) {
  return Join(s, value, kHeadsFirst, heads * size);
}

std::string ToTargetLayout(EmitState& s, const PlannedCache& cache, const std::string& value) {
  const Placement& place = cache.placement;
  if (!place.moved) return value;
  if (place.split_heads > 0) {
    const std::string shape = s.nodes.Int64s({0, 0, place.split_heads, -1});
    return Permute(s, s.nodes.Add("Reshape", {value, shape}, "heads"), "BSND", kHeadsFirst);
  }
  if (place.layout == kHeadsFirst) return Permute(s, value, cache.layout, kHeadsFirst);
  return Join(s, value, cache.layout,
              ExtentOf(s.forms, cache, 'N') * ExtentOf(s.forms, cache, 'D'));
}

std::string ToSourceLayout(EmitState& s, const PlannedCache& cache, const std::string& value) {
  const Placement& place = cache.placement;
  if (!place.moved) return value;
  if (place.split_heads > 0) return Join(s, value, kHeadsFirst, ExtentOf(s.forms, cache, 'D'));
  if (place.layout == kHeadsFirst) return Permute(s, value, kHeadsFirst, cache.layout);
  const std::string shape =
      s.nodes.Int64s({0, 0, ExtentOf(s.forms, cache, 'N'), ExtentOf(s.forms, cache, 'D')});
  return Permute(s, s.nodes.Add("Reshape", {value, shape}, "heads"), "BSND", cache.layout);
}

}  // namespace kvlift::internal
