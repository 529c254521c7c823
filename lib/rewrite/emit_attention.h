// One Attention-24 per recognised attention.
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

  // Adds the nodes and marks what they replace; or gives the reason why the attention has to stay,
  // and has then left no trace but unused nodes.
  absl::StatusOr<std::optional<Finding>> Emit(int number, const AttentionSite& site);

 private:
  Finding Reason(std::string_view code, std::string text, const AttentionSite& site,
                 std::vector<ValueId> values = {}) const;
  int LayerOf(int update_index) const;
  bool OneType(const AttentionSite& site, int32_t type);
  // The cache as Attention reads it: [B, Nk, W, D], or [B, W, Nk*D] if it folds heads.
  std::string ReadCache(int layer, std::string_view role, const CacheUpdate& update,
                        const CacheView& view, int64_t head_dim, bool folds, const Slots& slots);
  std::string Decoded(const std::string& rows, const CacheView& view);
  std::string Spread(ValueId constant, ValueId spread, const std::string& rows);
  // Of what attention reads.
  bool IsWhole(const CacheUpdate& update, const CacheView& view, int64_t head_dim) const;
  bool Folds(const AttentionSite& site) const;
  // [B, W, Nk*D], or [B*Nk, W, D] if folded, to [B, Nk, W, D].
  std::string SplitHeads(const std::string& value, const CacheView& view, int64_t head_dim,
                         const Slots& slots);
  // The node's result from the Attention's.
  void EmitResult(const AttentionSite& site, const NodeBuilder::Inputs& inputs,
                  const std::string& role, NodeBuilder::Attributes attributes);
  bool StacksGroups(const AttentionSite& site) const;
  std::string Query(const AttentionSite& site);
  std::string QueryExtent(const AttentionSite& site);
  std::string Stacked(const std::string& query, const AttentionSite& site);
  std::string StackedMask(const std::string& mask, const AttentionSite& site, bool has_heads);
  // Is the mask of rest and biases drawn with an axis of heads?
  bool DrawsHeads(const AttentionSite& site, sym::Expr rest) const;
  // No key at or behind the valid length is visible.
  bool HidesUnused(const MaskOfSite& mask);
  // The same of the mask alone: a ring has other tokens there, no end.
  bool SaysWhatIsUnused(const MaskOfSite& mask);
  std::optional<Finding> JudgeBiases(const AttentionSite& site, const CacheUpdate& key,
                                     int32_t type);
  absl::StatusOr<std::string> MaskOfBiases(const AttentionSite& site, const CacheUpdate& key,
                                           const Slots& slots, const std::string& mask);
  absl::StatusOr<std::string> TurnedBias(const AttentionSite& site, const CacheUpdate& key,
                                         ValueId bias);
  std::string Unfold(const std::string& value, int64_t heads);
  // Why the mask cannot be taken over; absent if it can.
  std::optional<Finding> JudgeMask(const MaskOfSite& mask);
  // Why the columns of a host's mask are not keys; absent if they are.
  std::optional<Finding> JudgeColumns(const MaskOfSite& mask);
  // The site's mask and start with one name for the past's length.
  sym::Expr Normal(const CacheUpdate& key, sym::Expr e);
  sym::Expr KeepOf(const AttentionSite& site, const CacheUpdate& key, sym::Expr start);
  sym::Expr CapacityOf(const CacheUpdate& key);
  // A predicate of the source's rows, of the buffer's slots.
  sym::Expr Turned(const CacheUpdate& key, sym::Expr e);
  sym::Expr InRing(const MaskOfSite& mask, sym::Expr e);
  // A step writes one row per token.
  bool RowPerToken(const AttentionSite& site, const CacheUpdate& key);
  sym::Expr WithoutPadding(sym::Expr rest);
  bool ReadsPerQuery(sym::Expr part, absl::Span<const ValueId> masks) const;
  // Whether the part holds where the masks that it reads are all ones, or all zeros; then they are
  // assumed to be.
  bool AssumePadding(sym::Expr part);
  bool ReadAtKeys(sym::Expr e, ValueId source) const;
  // The axes of a source that some part of e reads at the key's index.
  std::vector<int> KeyAxes(sym::Expr e, ValueId source) const;
  // [B or 1, N or 1, S, W] bool.
  absl::StatusOr<std::string> DrawMask(const AttentionSite& site, const CacheUpdate& key,
                                       const Slots& slots, sym::Expr rest,
                                       std::optional<Finding>* reason);

  // The same, and new tokens see only those that the input of trees lets them see.
  std::string WithTree(const std::string& mask, const Slots& slots);

  PlanState& s_;
  Control& control_;
};

}  // namespace kvlift::internal
