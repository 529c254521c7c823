// Merged decoders: one graph for the first call and for all later ones, with an If around two
// decoders. The branch with a past replaces the If if it is proved to equal the other branch where
// the past is empty.
#pragma once

#include "absl/status/status.h"
#include "rewrite/types/normalised.h"

namespace kvlift {

// Inlines branches whose condition is known, then replaces the If of a merged decoder. If the
// branch with a past differs only in that it lacks the causal order of new tokens, the causal order
// is added to it, and steps with a past are limited to one new token (KV320). If neither can be
// proved, the refusal KV225 is added and the If stays.
absl::Status Unmerge(Normalised* result);

}  // namespace kvlift
