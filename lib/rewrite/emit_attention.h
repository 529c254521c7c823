// Replaces each recognised attention by one Attention-24 over the converted caches.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "rewrite/control.h"
#include "rewrite/pads.h"
#include "rewrite/plan_state.h"
#include "rewrite/visibility.h"

namespace kvlift::internal {

class AttentionEmitter {
 public:
  AttentionEmitter(PlanState& state, Control& control) : s_(state), control_(control) {}

  // Adds the nodes for the site and marks the node that they replace. Returns nullopt, or the
  // reason why the attention has to stay; nodes that were added before it was known stay unused. A
  // refusal of the whole conversion is left in the plan. number: the site's index in
  // Analysis::attention.
  absl::StatusOr<std::optional<Finding>> Emit(int number, const AttentionSite& site);

 private:
  Finding Reason(std::string_view code, std::string text, const AttentionSite& site,
                 std::vector<ValueId> values = {}) const;
  bool OneType(const AttentionSite& site, int32_t type);
  // Returns the rows of a cache as Attention reads them: [B, Nk, W, D], or [B, W, Nk*D] with
  // heads_in_last_axis.
  std::string ReadCache(int layer, std::string_view role, const PlannedCache& update,
                        const CacheView& view, int64_t head_dim, bool heads_in_last_axis,
                        const Slots& slots);
  std::string Decoded(const std::string& rows, const CacheView& view);
  std::string Spread(ValueId constant, ValueId spread, const std::string& rows);
  bool IsWhole(const CacheUpdate& update, const CacheView& view, int64_t head_dim) const;
  bool HasHeadsInLastAxis(const AttentionSite& site) const;
  // Returns [B, Nk, W, D] from [B, W, Nk*D], or from [B*Nk, W, D] if the view has
  // batch_times_heads.
  std::string SplitHeads(const std::string& value, const CacheView& view, int64_t head_dim,
                         const Slots& slots);
  // Adds the Attention and what makes the site's output of its result.
  void EmitResult(const AttentionSite& site, const NodeBuilder::Inputs& inputs,
                  const std::string& role, NodeBuilder::Attributes attributes);
  bool HasGroupsAsTokens(const AttentionSite& site) const;
  std::string Query(const AttentionSite& site);
  std::string QueryExtent(const AttentionSite& site);
  std::string GroupsAsTokens(const std::string& query, const AttentionSite& site);
  std::string MaskOfGroupsAsTokens(const std::string& mask, const AttentionSite& site,
                                   bool has_heads);
  // Returns true if the mask of `rest` and the biases has an axis of N heads.
  bool DrawsHeads(const AttentionSite& site, sym::Expr rest) const;
  // Returns true if no key at or behind the valid length is visible.
  bool HidesUnused(const MaskOfSite& mask);
  // Returns true if the mask alone hides those keys, without the extent of the keys. A ring needs
  // that, since it holds other tokens where another buffer ends.
  bool SaysWhatIsUnused(const MaskOfSite& mask);
  std::optional<Finding> JudgeBiases(const AttentionSite& site, const PlannedCache& key,
                                     int32_t type);
  absl::StatusOr<std::string> MaskOfBiases(const AttentionSite& site, const PlannedCache& key,
                                           const Slots& slots, const std::string& mask);
  absl::StatusOr<std::string> BiasInRingOrder(const AttentionSite& site, const PlannedCache& key,
                                              ValueId bias);
  std::string SplitBatchAndHeads(const std::string& value, int64_t heads);
  // Returns why Attention-24 cannot have the mask; nullopt if it can, or if the plan is refused.
  std::optional<Finding> JudgeMask(const MaskOfSite& mask);
  // Returns why the columns of a mask of the host are not keys; nullopt if they are.
  std::optional<Finding> JudgeColumns(const MaskOfSite& mask);
  // Returns e with one expression for the past length, however the source names it.
  sym::Expr Normal(const PlannedCache& key, sym::Expr e);
  sym::Expr KeepOf(const AttentionSite& site, const PlannedCache& key, sym::Expr start);
  sym::Expr CapacityOf(const PlannedCache& key);
  // Returns the index of the first new row among the rows that the source's attention reads.
  sym::Expr FirstNewRow(const PlannedCache& key);
  // Returns true if both are written at the same slots.
  bool WrittenAlike(const PlannedCache& key, const PlannedCache& value);
  // Returns e, an expression of the source's rows (i3), as one of the buffer's slots.
  sym::Expr InSlots(const MaskOfSite& mask, sym::Expr e);
  sym::Expr InRingOrder(const PlannedCache& key, sym::Expr e);
  sym::Expr InWindowRing(const MaskOfSite& mask, const WindowRing& ring, sym::Expr e);
  // Returns true if a step writes one row per token.
  bool RowPerToken(const AttentionSite& site, const PlannedCache& key);
  sym::Expr WithoutPadding(sym::Expr rest);
  bool ReadsPerQuery(sym::Expr part, absl::Span<const ValueId> masks) const;
  // If `part` holds where all masks of the host that it reads are ones, or are zeros: records that
  // assumption and returns true.
  bool AssumePadding(sym::Expr part);
  bool ReadAtKeys(sym::Expr e, ValueId source) const;
  // Returns the axes of a source that e reads at the index of the key.
  std::vector<int> KeyAxes(sym::Expr e, ValueId source) const;
  // Returns a bool mask [B or 1, N or 1, S, W], or sets *reason.
  absl::StatusOr<std::string> DrawMask(const AttentionSite& site, const PlannedCache& key,
                                       const Slots& slots, sym::Expr rest,
                                       std::optional<Finding>* reason);

  // Returns the mask and the --tree-mask input combined; `mask` may be empty.
  std::string WithTree(const std::string& mask, const Slots& slots);

  PlanState& s_;
  Control& control_;
};

}  // namespace kvlift::internal
