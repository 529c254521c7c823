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
#include "contract/manifest.h"
#include "onnxio/model.h"
#include "rewrite/rule.h"

namespace kvlift {

enum class Target { kSpec, kOrt, kGenai, kGenaiStatic, kTensorRt };
enum class Control { kAuto, kDerived, kInput };
enum class MaskForm { kAuto, kCausal, kExplicit };
enum class ReadForm { kAuto, kPrefix, kFull };
enum class Padding { kAuto, kKeep, kNone };
// Of the caches at the interface: as in the source, [B, Nk, M, D], or [B, M, Nk*D].
enum class Layout { kKeep, kBnsd, kFolded };
enum class IoNames { kKeep, kStatic };       // static: key_cache.0, updated_key_cache.0, ...
enum class Rotary { kAuto, kKeep, kFused };  // auto: fused for ONNX Runtime, see rewrite/rotary.h
enum class CacheTensors { kPerLayer, kPacked };  // of sources that pack all layers in one
enum class WriteMode { kLinear, kCircular };     // circular: where linear does not do
// Of caches that keep the last W rows: a buffer for all tokens, or a ring of W rows and a step's.
enum class WindowForm { kFull, kCircular };

// How caches are kept in few bits; see rewrite/quantize_caches.h.
struct CacheQuantization {
  enum class Scheme { kInt8, kFloat8 };
  Scheme scheme = Scheme::kInt8;
  int64_t group = 0;  // head elements that share a scale; 0: all of a row
  std::string text;   // "int8:32"
};
// "int8:G", "int8:channel" or "fp8"; absent if it is none of them.
std::optional<CacheQuantization> ReadCacheQuantization(const std::string& text);

struct ConvertOptions {
  Target target = Target::kSpec;
  std::optional<int64_t> max_seq_len;  // absent: symbolic max_sequence_length
  Control control = Control::kAuto;
  MaskForm mask = MaskForm::kAuto;
  ReadForm read = ReadForm::kAuto;
  Padding padding = Padding::kAuto;
  WriteMode mode = WriteMode::kLinear;
  WindowForm window = WindowForm::kFull;
  std::optional<int64_t> window_capacity;  // of rings; absent: symbolic
  Layout layout = Layout::kKeep;
  CacheTensors cache_tensors = CacheTensors::kPerLayer;
  IoNames io_names = IoNames::kKeep;
  Rotary rotary = Rotary::kAuto;
  std::optional<CacheQuantization> quantize_cache;
  // Names of caches to convert and to leave, with wildcards as a shell has them; none: all.
  std::vector<std::string> only, skip;
  bool allow_partial = false;
  bool tree_mask = false;  // an input says which new tokens see one another
};

// One cache as `inspect` lists it. Keys as in the contract's JSON.
struct CacheReport {
  std::string id;
  int64_t layer = 0;
  std::string role;
  std::string input, output;
  std::string kind;
  int64_t axis = 0;
  std::string layout;
  std::string dtype;
  bool growing = false;
  std::string capacity;     // expression, empty if growing
  std::string update;       // value name
  std::string write_start;  // expression
  bool converted = false;
  std::optional<Finding> reason;  // absent: convertible
};

struct AttentionReport {
  std::string id;    // "0", "1", ... by layer
  std::string form;  // "decomposed" or "op"
  int64_t q_heads = 0, kv_heads = 0, head_dim = 0, v_head_dim = 0;
  double scale = 0;
  double softcap = 0;
  std::string mask;  // "causal+padding", ...
  bool converted = false;
  std::optional<Finding> reason;
  std::vector<std::string> nodes;
};

struct Inspection {
  int64_t nodes = 0;
  int64_t opset = 0;
  std::vector<CacheReport> caches;
  std::vector<AttentionReport> attention;
  std::vector<Finding> near_misses;  // nodes[0] is the node
};

enum class ConvertStatus { kConverted, kPartial, kRefused, kNothing };

struct Conversion {
  ConvertStatus status = ConvertStatus::kNothing;
  Inspection inspection;                  // `converted` flags set
  std::optional<onnx::ModelProto> model;  // present when converted or partial; not yet stamped
  std::shared_ptr<const onnx::ModelProto> source;  // holds what the spans in `model` point to
  Manifest manifest;                               // valid when model is
  std::string genai;                               // OUT.genai.json, for targets of genai
};

// Broken models are errors; what cannot be converted is in the result.
// `rules`: AllRules() (rewrite/rule.h).
using RuleTable = absl::Span<const Rule* const>;
absl::StatusOr<Inspection> Inspect(const Model& model, RuleTable rules);
absl::StatusOr<Conversion> Convert(const Model& model, const ConvertOptions& options,
                                   RuleTable rules);
// Why a node did or did not match: one line per rule that looked at it. NotFound: no such node.
absl::StatusOr<std::vector<std::string>> ExplainNode(const Model& model, const std::string& node,
                                                     RuleTable rules);

}  // namespace kvlift
