// The options as the steps after recognition read them, without any that is left open. The target
// has fixed what it prescribes, and each `auto` is replaced by what the target needs.
#pragma once

#include "rewrite/types/options.h"

namespace kvlift {

// Fields of an enumeration with `kAuto` never hold it, but for `mask`: there it says that a mask is
// expressed by is_causal as far as possible.
struct ResolvedOptions : ConvertOptions {
  ResolvedOptions() : ResolvedOptions(ConvertOptions()) {}
  explicit ResolvedOptions(const ConvertOptions& options);
};

// Returns true if `anew` is set, or if the options ask for a form of the result that a model with
// TensorScatter may not have: a target, or anything about the interface, the index, masks, reads or
// the stored rows that is not the default.
bool AsksForForm(const ConvertOptions& options);

}  // namespace kvlift
