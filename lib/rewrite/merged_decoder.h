// Merged decoders: one graph for the first call and for all later ones, with an If around two
// decoders. The branch with a past takes over alone if it is proved to be the other one where the
// past is empty.
#pragma once

#include "absl/status/status.h"
#include "rewrite/normalise.h"

namespace kvlift {

// Inlines branches whose condition is known, and unmerges. Where the branches differ only in that
// the one with a past lacks the causal order of new tokens, that is added to it, and steps with a
// past are limited to one new token. Where neither can be shown, a refusal is added.
absl::Status Unmerge(Normalised* result);

}  // namespace kvlift
