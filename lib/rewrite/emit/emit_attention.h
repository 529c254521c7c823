// Replaces each attention of the plan by one Attention-24 over the converted caches. Internal to
// lib/rewrite.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rewrite/emit/control.h"
#include "rewrite/emit/emit_state.h"

namespace kvlift::internal {

class AttentionEmitter {
 public:
  AttentionEmitter(EmitState& state, Control& control) : s_(state), control_(control) {}

  // Adds the nodes for an attention and marks the node that they replace. number: its index in
  // Analysis::attention.
  absl::Status Emit(int number, const PlannedAttention& planned);

 private:
  // Returns the rows of a cache as Attention reads them: [B, Nk, W, D], or [B, W, Nk*D] with
  // heads in the last axis.
  std::string ReadCache(int layer, std::string_view role, const CacheOperand& operand,
                        int64_t head_dim, const PlannedAttention& planned, const Slots& slots);
  // Adds a row of zeros, the sink's, behind keys [B, Nk, W, D] and values [B, Nk, W, Dv], or
  // [B, W, Nk * D] and [B, W, Nk * Dv] with heads in the last axis.
  void AddRowsOfSink(const AttentionSite& site, const PlannedAttention& planned, std::string* keys,
                     std::string* values);
  // Returns the number of keys for each sequence, int64 [B].
  std::string LengthOfAll(const std::string& queries, const std::string& keys,
                          const PlannedAttention& planned);
  std::string RowsAsRead(const std::string& rows, const CacheView& view);
  std::string Decoded(const std::string& rows, const ComputedRows& computed);
  std::string Spread(ValueId constant, ValueId spread, const std::string& rows);
  // Returns [B, Nk, W, D] from [B, W, Nk*D], or from [B*Nk, W, D] if the view has
  // batch_times_heads.
  std::string SplitHeads(const std::string& value, const CacheView& view, int64_t head_dim,
                         const Slots& slots);
  // Adds the Attention and the nodes that turn its result into the site's output.
  void EmitResult(const AttentionSite& site, const PlannedAttention& planned,
                  const NodeBuilder::Inputs& inputs, const std::string& role,
                  NodeBuilder::Attributes attributes);
  static NodeBuilder::Attributes AttributesOf(const AttentionSite& site,
                                              const PlannedAttention& planned);
  // Returns the queries in the layout that the Attention reads.
  std::string Query(const AttentionSite& site, const PlannedAttention& planned);
  std::string QueryExtent(const AttentionSite& site);
  // Returns the mask operand; empty if the Attention gets no mask.
  absl::StatusOr<std::string> Mask(const AttentionSite& site, const PlannedAttention& planned,
                                   const Slots& slots);
  std::string MaskOfGroupsAsTokens(const std::string& mask, const AttentionSite& site,
                                   bool has_heads);
  absl::StatusOr<std::string> MaskOfBiases(const AttentionSite& site,
                                           const PlannedAttention& planned, const Slots& slots,
                                           const std::string& mask);
  // Returns an additive mask [., N, S, W + 1]: the additive mask [., 1 or N, S, W], or zeros if
  // `mask` is empty, with the scores of the sink as its last column.
  absl::StatusOr<std::string> WithSink(const std::string& mask, const AttentionSite& site,
                                       const PlannedAttention& planned, const Slots& slots);
  std::string SplitBatchAndHeads(const std::string& value, int64_t heads);
  std::string JoinAxesOfHeads(const std::string& value, int64_t heads);
  // Returns the mask and the --tree-mask input combined; `mask` may be empty.
  std::string WithTree(const std::string& mask, const Slots& slots);

  EmitState& s_;
  Control& control_;
};

}  // namespace kvlift::internal
