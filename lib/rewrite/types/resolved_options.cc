#include "rewrite/types/resolved_options.h"

#include <tuple>

namespace kvlift {

ResolvedOptions::ResolvedOptions(const ConvertOptions& options) : ConvertOptions(options) {
  const bool compiled = IsCompiled(target);
  static_shapes = static_shapes || target == Target::kGenaiStatic || compiled;
  if (control == Control::kAuto) {
    control = target == Target::kGenai ? Control::kDerived : Control::kInput;
  }
  if (read == ReadForm::kAuto) read = static_shapes ? ReadForm::kFull : ReadForm::kPrefix;
  if (padding == Padding::kAuto) padding = Padding::kKeep;
  if (rotary == Rotary::kAuto) {
    rotary = target == Target::kOrt ? Rotary::kFused : Rotary::kKeep;
  }
  if (compiled) {
    layout = Layout::kBnsd;
    mask = MaskForm::kAdditive;
  }
  if (target == Target::kGenaiStatic) {
    layout = Layout::kHeadsInLastAxis;
    io_names = IoNames::kStatic;
  }
}

bool AsksForForm(const ConvertOptions& options) {
  const auto form = [](const ResolvedOptions& o) {
    return std::tuple(o.target, o.control, o.mask, o.read, o.padding, o.window, o.layout,
                      o.cache_tensors, o.io_names, o.rotary, o.static_shapes, o.tree_mask,
                      o.quantize_cache.has_value());
  };
  return options.anew || form(ResolvedOptions(options)) != form(ResolvedOptions());
}

}  // namespace kvlift
