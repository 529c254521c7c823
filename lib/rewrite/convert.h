// Finds the caches and attentions of a model and rewrites them to TensorScatter-24 plus
// Attention-24. All or nothing unless partial conversion is allowed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/findings.h"
#include "contract/kinds.h"
#include "contract/manifest.h"
#include "onnxio/model.h"
#include "rewrite/rule.h"
#include "rewrite/steps.h"

namespace kvlift {

// The runtime whose rules the result must meet: the operator texts alone, ONNX Runtime,
// onnxruntime-genai with its dynamic or its static caches, TensorRT.
enum class Target { kSpec, kOrt, kGenai, kGenaiStatic, kTensorRt };
// The origin of the write index of growing caches: it is derived from the width of an input of the
// source, or it is a new input. Auto: derived for Target::kGenai, else an input.
enum class Control { kAuto, kDerived, kInput };
// How a mask is expressed. Auto: by is_causal as far as possible. Causal: by is_causal alone, else
// a refusal (KV224). Explicit: as a mask operand.
enum class MaskForm { kAuto, kCausal, kExplicit };
// The rows of a buffer that attention is given: the valid ones, or all. Auto: all for
// Target::kGenaiStatic and Target::kTensorRt, else the valid ones.
enum class ReadForm { kAuto, kPrefix, kFull };
// Auto and keep: masks of the host stay. None: the host promises that no step holds padding tokens,
// and masks that only hide those are left out.
enum class Padding { kAuto, kKeep, kNone };
// The layout of caches at the interface: as in the source, [B, Nk, M, D], or [B, M, Nk*D].
enum class Layout { kKeep, kBnsd, kHeadsInLastAxis };
// Names of caches at the interface: as in the source, or key_cache.0, updated_key_cache.0, ...
enum class IoNames { kKeep, kStatic };
// RoPE that is spelt out: it stays, or becomes RotaryEmbedding (rewrite/rotary.h). Auto: fused for
// Target::kOrt, else it stays.
enum class Rotary { kAuto, kKeep, kFused };
// For sources that hold the caches of all layers in one tensor: a cache per layer and role, or one
// tensor as in the source (rewrite/pack_caches.h).
enum class CacheTensors { kPerLayer, kPacked };
// Whether caches whose rows wrap around or shift are converted, by TensorScatter's circular mode.
enum class WriteMode { kLinear, kCircular };
// For caches of which attention reads a sliding window: a buffer for all tokens, or a ring buffer
// (rewrite/planned_cache.h).
enum class WindowForm { kFull, kCircular };

// How caches are quantised; see rewrite/quantize_caches.h.
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
  std::optional<CacheQuantization> quantize_cache;  // absent: caches are not quantised
  // Shell patterns (fnmatch) of the caches to convert and to leave, by the name of past or present.
  // Empty `only`: all caches.
  std::vector<std::string> only, skip;
  bool allow_partial = false;  // convert the caches that can be converted if others cannot
  bool tree_mask = false;      // add an input that says which new tokens see one another
};

// One cache as `inspect` lists it. The JSON has the same keys.
struct CacheReport {
  std::string id;  // "0.key": layer and role
  int64_t layer = 0;
  CacheRole role = CacheRole::kKey;
  std::string input, output;  // names in the source
  UpdateKind kind = UpdateKind::kConcat;
  int64_t axis = 0;    // the sequence axis
  std::string layout;  // one letter per axis (rewrite/layout.h); empty: not known
  std::string dtype;   // "float32"
  bool growing = false;
  std::string capacity;     // an expression, in tokens; empty if the cache grows
  std::string update;       // the value that holds the new rows; empty: no single value does
  std::string write_start;  // an expression; empty: not known
  bool converted = false;
  std::optional<Finding> reason;  // why it cannot be converted; absent if it can
};

struct AttentionReport {
  std::string id;    // "0", "1", ... in the order of the nodes
  std::string form;  // "decomposed" or "op"
  // N, Nk, D and Dv; 0, as scale is, if no rule reads the attention.
  int64_t q_heads = 0, kv_heads = 0, head_dim = 0, v_head_dim = 0;
  double scale = 0;
  double softcap = 0;  // 0: no softcap
  std::string mask;    // "causal+padding", ...; see DescribeMask
  bool converted = false;
  std::optional<Finding> reason;  // why it stays; absent if it can be converted
  std::vector<std::string> nodes;
};

struct Inspection {
  int64_t nodes = 0;  // of the source's main graph
  int64_t opset = 0;  // the source's version of the default domain; 0: not declared
  std::vector<CacheReport> caches;
  std::vector<AttentionReport> attention;
  std::vector<Finding> near_misses;
};

// kPartial: some caches stay as they are. kRefused: no model is made; the reports say why.
// kNothing: the model has no cache to convert, or all are converted. kStopped: the conversion ended
// behind the step that StepTrace::stop_after names, which did not refuse; no model is made.
enum class ConvertStatus { kConverted, kPartial, kRefused, kNothing, kStopped };

struct Conversion {
  ConvertStatus status = ConvertStatus::kNothing;
  Inspection inspection;                  // with the `converted` flags set
  std::optional<onnx::ModelProto> model;  // set for kConverted and kPartial; not yet stamped
  std::shared_ptr<const onnx::ModelProto> source;  // owns what the spans in `model` point to
  Manifest manifest;                               // valid if `model` is set
  std::string genai;  // the text of OUT.genai.json; empty for other targets
};

// Errors of the functions below: InvalidArgument for a broken model, and of Convert also for names
// of inputs and outputs that are not UTF-8; OutOfRange if the model takes more than sym::MaxSteps()
// of symbolic arithmetic. What cannot be converted is in the result.
// `rules` is AllRules() (rewrite/rule.h).
using RuleTable = absl::Span<const Rule* const>;
// Lists what Convert would find and refuse with default options. Makes no model.
absl::StatusOr<Inspection> Inspect(const Model& model, RuleTable rules);
// Runs the steps from lower to emit. Does not check the result and proves nothing of it: see
// pipeline/pipeline.h. Errors of trace.take are returned as they are.
absl::StatusOr<Conversion> Convert(const Model& model, const ConvertOptions& options,
                                   RuleTable rules, const StepTrace& trace = {});
// Takes the model away from a conversion that ends behind a step, as was asked.
void StopConversion(Conversion* conversion);
// Returns the forms of a node's outputs, and one line per rule that says whether it matches the
// node. NotFound: the model has no such node.
absl::StatusOr<std::vector<std::string>> ExplainNode(const Model& model, const std::string& node,
                                                     RuleTable rules);

}  // namespace kvlift
