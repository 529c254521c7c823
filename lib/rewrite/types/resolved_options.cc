#include "rewrite/types/resolved_options.h"

namespace kvlift {

ResolvedOptions Resolve(const ConvertOptions& options) {
  const Target target = options.target;
  const bool static_shapes = target == Target::kGenaiStatic || target == Target::kTensorRt;
  ResolvedOptions resolved;
  resolved.target = target;
  resolved.max_seq_len = options.max_seq_len;
  resolved.control = options.control;
  if (options.control == Control::kAuto) {
    resolved.control = target == Target::kGenai ? Control::kDerived : Control::kInput;
  }
  resolved.mask = options.mask;
  resolved.read = options.read;
  if (options.read == ReadForm::kAuto) {
    resolved.read = static_shapes ? ReadForm::kFull : ReadForm::kPrefix;
  }
  resolved.padding = options.padding == Padding::kNone ? Padding::kNone : Padding::kKeep;
  resolved.window = options.window;
  resolved.window_capacity = options.window_capacity;
  resolved.layout = options.layout;
  if (target == Target::kTensorRt) resolved.layout = Layout::kBnsd;
  if (target == Target::kGenaiStatic) resolved.layout = Layout::kHeadsInLastAxis;
  resolved.cache_tensors = options.cache_tensors;
  resolved.io_names = target == Target::kGenaiStatic ? IoNames::kStatic : options.io_names;
  resolved.rotary = options.rotary;
  if (options.rotary == Rotary::kAuto) {
    resolved.rotary = target == Target::kOrt ? Rotary::kFused : Rotary::kKeep;
  }
  resolved.quantize_cache = options.quantize_cache;
  resolved.tree_mask = options.tree_mask;
  return resolved;
}

}  // namespace kvlift
