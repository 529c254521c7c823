// Judges whether an Attention-24 over the converted caches can replace a recognised attention, and
// what its operands and attributes are. Internal to lib/rewrite.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rewrite/judge/mask_safety.h"
#include "rewrite/judge/plan_basis.h"

namespace kvlift::internal {

// A Finding: why the attention stays. A PlanRefusal: why nothing may be converted.
using JudgedAttention = std::variant<PlannedAttention, Finding, PlanRefusal>;

class AttentionJudge {
 public:
  explicit AttentionJudge(const PlanBasis& basis) : s_(basis) {}

  // assumed: by padding mask, the value that all its elements are taken to have (--padding none) by
  // the attentions judged before.
  JudgedAttention Judge(const AttentionSite& site, const std::map<ValueId, int64_t>& assumed) const;

 private:
  // Why an attention stays, or why nothing may be converted; nullopt: there is no such reason.
  using Objection = std::optional<std::variant<Finding, PlanRefusal>>;

  Finding Reason(std::string_view code, std::string text, const AttentionSite& site,
                 std::vector<ValueId> values = {}) const;
  Objection JudgeOperands(const AttentionSite& site) const;
  Objection JudgeNumbers(const AttentionSite& site, int32_t type) const;
  // Returns true if a step writes one row per query, or if HasRowsOfOneToken.
  bool RowPerToken(const AttentionSite& site, const PlannedCache& key) const;
  // Returns true if a step has one token, and all rows of queries, such as the heads of a group,
  // see the same keys.
  bool HasRowsOfOneToken(const AttentionSite& site, const PlannedCache& key) const;
  std::optional<Finding> JudgeBiases(const AttentionSite& site, int32_t type) const;
  // Returns true if a query over a growing cache may see tokens of its step behind it. In a batch
  // of prompts of different lengths it would see the padding tokens behind the shorter ones.
  bool SeesLaterTokens(const MaskOfSite& mask) const;
  // Returns why Attention-24 cannot have the mask.
  Objection JudgeMask(const MaskOfSite& mask) const;
  // Returns why the columns of a mask of the host are not keys; nullopt if they are.
  std::optional<Finding> JudgeColumns(const MaskOfSite& mask) const;
  bool CountsNewTokens(const MaskOfSite& mask) const;
  KeysRead KeysOf(const MaskOfSite& mask) const;
  // Returns true if keys and values are written at the same slots.
  bool WrittenAlike(const PlannedCache& key, const PlannedCache& value) const;
  // Returns true if the cache holds the heads of this attention and nothing else.
  bool IsWhole(const CacheUpdate& update, const CacheView& view, int64_t head_dim) const;
  bool HasHeadsInLastAxis(const AttentionSite& site) const;
  bool HasGroupsAsTokens(const AttentionSite& site) const;
  // Returns true if the mask of `rest` and the biases has an axis of N heads.
  bool DrawsHeads(const AttentionSite& site, sym::Expr rest) const;
  void SetAttributes(const AttentionSite& site, int32_t type, PlannedAttention* planned) const;
  void PlanBiases(const AttentionSite& site, PlannedAttention* planned) const;
  sym::Emitter::Request BiasInRingOrder(const AttentionSite& site, const PlannedCache& key,
                                        ValueId bias) const;

  // Returns the mask operand that keeps the keys of `rest`, or why there are no nodes for it.
  std::variant<sym::Emitter::Request, Finding> MaskRequest(const AttentionSite& site,
                                                           const PlannedCache& key,
                                                           sym::Expr rest) const;
  // Returns the scores of the sink, or why there are no nodes for them.
  std::variant<sym::Emitter::Request, Finding> SinkRequest(const AttentionSite& site,
                                                           int32_t type) const;
  // Returns e with one expression for the past length, however the source names it.
  sym::Expr Normal(const PlannedCache& key, sym::Expr e) const;
  sym::Expr KeepOf(const AttentionSite& site, const PlannedCache& key, sym::Expr start) const;
  sym::Expr CapacityOf(const PlannedCache& key) const;
  // Returns the index of the first new row among the rows that the source's attention reads.
  sym::Expr FirstNewRow(const PlannedCache& key) const;
  // Returns true if no key at or behind the valid length is visible.
  bool HidesUnused(const MaskOfSite& mask) const;
  // Returns true if the mask alone hides those keys, so that the extent of the keys need not. A
  // ring needs this: its slots behind the new rows hold older tokens.
  bool MaskAloneHidesUnused(const MaskOfSite& mask) const;
  // Returns `keep` and the condition that the key is one of those that the source's attention
  // reads.
  sym::Expr OfSourceKeys(const MaskOfSite& mask, sym::Expr keep) const;
  // Returns `keep` and, unless `keep` implies it, the condition that the key is a valid row.
  sym::Expr OfValidKeys(const MaskOfSite& mask, sym::Expr keep) const;
  // Returns e, an expression of the source's rows (i3), as one of the buffer's slots.
  sym::Expr InSlots(const MaskOfSite& mask, sym::Expr e) const;
  sym::Expr InRingOrder(const PlannedCache& key, sym::Expr e) const;
  sym::Expr InWindowRing(const MaskOfSite& mask, const WindowRing& ring, sym::Expr e) const;
  // Returns the predicate without the conjuncts that hold if the masks of the host that they read
  // are all ones, or are all zeros, and adds that assumption to *assumed.
  sym::Expr WithoutPadding(sym::Expr rest, std::map<ValueId, int64_t>* assumed) const;
  bool AssumePadding(sym::Expr part, std::map<ValueId, int64_t>* assumed) const;
  bool ReadsPerQuery(sym::Expr part, absl::Span<const ValueId> masks) const;
  static bool ReadAtKeys(sym::Expr e, ValueId source);
  // Returns true if one of these axes of `source` has an extent that depends on data and may be 0.
  bool MayBeEmpty(ValueId source, absl::Span<const int> axes) const;
  // Returns the axes of `source` that e reads at the index of the key (i3), except axes of extent
  // new_length.
  std::vector<int> KeyAxes(sym::Expr e, ValueId source, sym::Expr new_length) const;

  const PlanBasis& s_;
};

}  // namespace kvlift::internal
