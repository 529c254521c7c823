// Finds reasons to refuse a model before it is planned, and reasons why all sequences of a batch
// must have one length. Internal to lib/rewrite.
#pragma once

#include <optional>
#include <string>

#include "absl/types/span.h"
#include "rewrite/plan/conversion_plan.h"

namespace kvlift::internal {

// Returns a reason to refuse that holds under every scheme; nullopt if there is none.
std::optional<Finding> RefuseBeforePlanning(const Analysis& analysis,
                                            absl::Span<const PlannedCache> caches,
                                            const ResolvedOptions& options);

// Returns KV251 if padding tokens behind a prompt would change the results of its real tokens,
// since no mask prevents that. Models with states are accepted: their hosts must avoid padding
// tokens in any case, since a state keeps what it has read. Plans whose steps cannot have such
// tokens are accepted too: all sequences have one length, and an input of the host has a column for
// each of their tokens.
std::optional<Finding> PadsChangeRows(const Analysis& analysis, const ConversionPlan& plan);

// Returns why a step must not have padding tokens; nullopt if it may.
std::optional<NoPadding> ForbidsPadding(const Analysis& analysis);

// Returns true if masks of the host may hide all keys from a query of some attention.
// has_key_length_masks: some mask of the host is as long as the keys.
bool MayHideAllKeys(const Analysis& analysis, bool has_key_length_masks);

// Returns why the sequences of a batch must have one length; nullopt if no reason is known.
std::optional<std::string> NeedsUniform(const Analysis& analysis);

// For sources in which no cache grows: returns why their buffers are written at one slot for all
// sequences, or why all sequences must hold the same number of tokens; nullopt if neither holds.
std::optional<std::string> UniformBuffers(const Analysis& analysis);

}  // namespace kvlift::internal
