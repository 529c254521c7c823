// The options of a conversion. ResolvedOptions (rewrite/types/resolved_options.h) replaces each
// `auto` by what the target needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/kinds.h"
#include "contract/manifest.h"

namespace kvlift {

// The runtime whose rules the result must meet: the operator texts alone, ONNX Runtime,
// onnxruntime-genai with its dynamic or its static caches, TensorRT, or compilers that take neither
// nonpad_kv_seqlen nor masks of type bool.
enum class Target { kSpec, kOrt, kGenai, kGenaiStatic, kTensorRt, kPortable };
// Returns true for the targets that build an engine for fixed shapes.
constexpr bool IsCompiled(Target target) {
  return target == Target::kTensorRt || target == Target::kPortable;
}
// The origin of the write index of growing caches: it is derived from the width of an input of the
// source, or it is a new input. Auto: derived for Target::kGenai, else an input.
enum class Control { kAuto, kDerived, kInput };
// How a mask is expressed. Auto: by is_causal as far as possible. Causal: by is_causal alone, else
// a refusal (KV224). Explicit: as a mask operand. Additive: as a mask operand of numbers that are
// added to the scores, 0 for visible keys; it hides unused slots too, and Attention is given no
// nonpad_kv_seqlen. Target::kTensorRt and Target::kPortable prescribe it.
enum class MaskForm { kAuto, kCausal, kExplicit, kAdditive };
// The rows of a buffer that attention is given: the valid ones, or all. Auto: all for
// Target::kGenaiStatic, Target::kTensorRt and Target::kPortable and with static_shapes, else the
// valid ones.
enum class ReadForm { kAuto, kPrefix, kFull };
// Auto and keep: masks of the host stay. None: the host promises that no step holds padding tokens,
// and masks that only hide those are left out.
enum class Padding { kAuto, kKeep, kNone };
// The layout of caches at the interface: as in the source, [B, Nk, M, D], or [B, M, Nk*D].
enum class Layout { kKeep, kBnsd, kHeadsInLastAxis };
// Names of caches at the interface: as in the source, or key_cache.0, updated_key_cache.0, ...
enum class IoNames { kKeep, kStatic };
// RoPE that is spelt out: it stays, or becomes RotaryEmbedding (rewrite/emit/rotary.h). Auto: fused
// for Target::kOrt, else it stays.
enum class Rotary { kAuto, kKeep, kFused };
// For sources that hold the caches of all layers in one tensor: a cache per layer and role, or one
// tensor as in the source (rewrite/emit/pack_caches.h).
enum class CacheTensors { kPerLayer, kPacked };
// Whether attentions stay (kKeep) or are converted (kFree) where another rounding could change
// results by more than the last bit (KV248): their result is quantised by its range, or their
// caches of float32 hold half-precision numbers.
enum class Rounding { kKeep, kFree };
// The numbers of new tokens that the steps of a source may have: any number or one (kAny), or also
// a fixed number above 1 (kFixed), as in prefill graphs of static shapes (KV208).
enum class StepLength { kAny, kFixed };
// Whether caches whose rows wrap around or shift are converted, by TensorScatter's circular mode.
enum class WriteMode { kLinear, kCircular };
// For caches of which attention reads a sliding window: a buffer for all tokens, or a ring buffer
// (rewrite/plan/planned_cache.h).
enum class WindowForm { kFull, kCircular };

// How caches are quantised; see rewrite/emit/quantize_caches.h.
struct CacheQuantization {
  enum class Scheme { kInt8, kFloat8 };
  Scheme scheme = Scheme::kInt8;
  int64_t group = 0;  // elements of a head that share a scale; 0: all of a row's last axis
  std::string text;   // as the user wrote it: "int8:32"
};
// Reads "int8:G", "int8:channel" or "fp8". Returns nullopt for other texts.
std::optional<CacheQuantization> ReadCacheQuantization(const std::string& text);

struct ConvertOptions {
  Target target = Target::kSpec;
  // Capacity in tokens of what growing caches become; absent: the symbol max_sequence_length.
  std::optional<int64_t> max_seq_len;
  Control control = Control::kAuto;
  MaskForm mask = MaskForm::kAuto;
  ReadForm read = ReadForm::kAuto;
  Padding padding = Padding::kAuto;
  WriteMode mode = WriteMode::kLinear;
  WindowForm window = WindowForm::kFull;
  std::optional<int64_t> window_capacity;  // slots of a ring; absent: a symbol
  Layout layout = Layout::kKeep;
  CacheTensors cache_tensors = CacheTensors::kPerLayer;
  IoNames io_names = IoNames::kKeep;
  Rotary rotary = Rotary::kAuto;
  Rounding rounding = Rounding::kKeep;
  StepLength step_length = StepLength::kAny;
  std::optional<CacheQuantization> quantize_cache;  // absent: caches are not quantised
  // Shell patterns (fnmatch) of the caches to convert and to leave, by the name of past or present.
  // Empty `only`: all caches.
  std::vector<std::string> only, skip;
  bool allow_partial = false;  // convert the caches that can be converted if others cannot
  bool anew = false;           // convert caches that TensorScatter writes already
  bool static_shapes = false;  // shapes may not depend on P: attention reads whole buffers
  bool tree_mask = false;      // add an input that says which new tokens see one another
};

}  // namespace kvlift
