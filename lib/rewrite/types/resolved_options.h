// What the steps behind recognition read of the options: nothing in it is left open. The target has
// fixed what it prescribes, and each `auto` is replaced by what the target needs.
#pragma once

#include <cstdint>
#include <optional>

#include "rewrite/types/options.h"

namespace kvlift {

// The fields mean what they mean in ConvertOptions. Those of an enumeration with `kAuto` never hold
// it, but for `mask`: there it says that a mask is expressed by is_causal as far as possible.
struct ResolvedOptions {
  Target target = Target::kSpec;
  std::optional<int64_t> max_seq_len;
  Control control = Control::kInput;
  MaskForm mask = MaskForm::kAuto;
  ReadForm read = ReadForm::kPrefix;
  Padding padding = Padding::kKeep;
  WindowForm window = WindowForm::kFull;
  std::optional<int64_t> window_capacity;
  Layout layout = Layout::kKeep;
  CacheTensors cache_tensors = CacheTensors::kPerLayer;
  IoNames io_names = IoNames::kKeep;
  Rotary rotary = Rotary::kKeep;
  std::optional<CacheQuantization> quantize_cache;
  bool tree_mask = false;
};

ResolvedOptions Resolve(const ConvertOptions& options);

}  // namespace kvlift
