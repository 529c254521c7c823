// The manifest of a conversion (OUT.kv.json): how the inputs and outputs of the converted model
// correspond to those of its source. `verify` uses it as the relation by which it runs both models.
// Source: docs/schema/manifest.schema.json, schema kvlift/manifest/1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/assumptions.h"
#include "contract/manifest_entries.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Fixes one axis of a tensor at one index, such as the layer in a tensor that packs the caches of
// all layers.
struct Select {
  int64_t axis = 0;
  int64_t index = 0;
};

// A buffer of a fixed number C of slots that holds the newest tokens of a sequence for a sliding
// window of W tokens, W <= C. Slot i of the first RowsHeld(T) ones holds token T - RowsHeld(T) + i
// after T tokens, and the other slots hold arbitrary values. Source: GroupQueryAttention of
// com.microsoft with sliding_window_cache, ONNX Runtime 1.31.
struct SlidingBuffer {
  int64_t window = 0;               // W, 1 or more
  std::optional<int64_t> capacity;  // C; absent: the host chooses it

  // Returns C, or if the host chooses it the number that `verify` takes.
  int64_t slots() const { return capacity.value_or(window + 2); }
  // Returns how many tokens a buffer of slots() holds after T tokens. A full buffer drops so many
  // tokens at once that the newest W stay.
  int64_t RowsHeld(int64_t tokens) const;

  friend bool operator==(const SlidingBuffer&, const SlidingBuffer&) = default;
};

// A cache of the source: its input and output, before the conversion.
struct SourceCache {
  std::string input, output;
  UpdateKind kind = UpdateKind::kConcat;
  std::string layout;  // one letter per axis (contract/layout.h): "BNSD"
  int64_t axis = 2;
  // True if the cache grows by the new tokens of each step, or if the source holds the newest rows
  // of such a cache (`sliding`); false for a buffer of fixed capacity.
  bool growing = true;
  // Axes that are fixed at one index before the layouts are compared, such as the one for keys and
  // values in a tensor that packs both; empty: the cache is the whole tensor.
  std::vector<Select> select;
  std::optional<SlidingBuffer> sliding = std::nullopt;  // present if and only if `kind` is kSliding
};

// The cache is quantised: x = value * scale, with one scale per group of elements along D, computed
// from each row when it is written. Source: docs/patterns.md, quantised caches.
struct CacheScales {
  std::string dtype;   // element type of the stored values: "int8", "float8e4m3fn"
  int64_t group = 0;   // number of elements along D that share a scale
  std::string scales;  // id of the cache that holds the scales
  std::string rows;    // element type before quantisation: "float32"
};

// The converted cache is a ring buffer for a sliding window: token t is stored in slot t mod C,
// where C is the extent of the cache on its axis. A step takes at most C - window new tokens.
struct CacheRing {
  int64_t window = 0;  // number of past tokens that a step reads
};

// Returns the entry of the ledger that a cache with `sliding` holds the newest rows of its tokens.
Assumption HoldsNewest(const SourceCache& cache);

// A cache of the converted model.
struct ManifestCache {
  std::string id;  // unique: "0.key"
  int64_t layer = 0;
  CacheRole role = CacheRole::kKey;
  std::string input, output;
  std::string dtype;   // "float32"
  std::string layout;  // one letter per axis (contract/layout.h): "BNSD"
  int64_t axis = 2;
  CacheAlias alias = CacheAlias::kCopy;
  // Nodes besides the TensorScatter that read the past, if alias is kCopy; else empty.
  std::vector<std::string> readers;
  // The cache grows in the converted model as well. Only relations that are made without a manifest
  // set this; `convert` never does.
  bool grows = false;
  std::optional<CacheRing> ring;            // JSON key "ring"; absent: not a ring buffer
  std::optional<CacheScales> quantization;  // JSON key "quantization"; absent: not quantised
  SourceCache source;
};

// Returns true if the cache grows in the source and has a fixed capacity in the converted model.
inline bool BecomesBuffer(const ManifestCache& cache) {
  return cache.source.growing && !cache.grows;
}

// A condition under which the converted model does what the source does.
struct Precondition {
  std::string code;  // KV3xx
  std::string text;
  PreconditionStatus status = PreconditionStatus::kAssumed;
  // The input, dimension or cache that the condition is about, where a verdict rests on it; for
  // KV307 the input of the source that counts up. Empty: none. JSON key "subject".
  std::string subject = {};
};

// Something that was proved for all shapes. `about` holds ids of caches and names of attention
// nodes and outputs.
struct ManifestFact {
  std::string text;
  std::vector<std::string> about;
};

// Limits that the host must respect and that a precondition states in words; JSON key "limits".
struct ManifestLimits {
  // The largest number of new tokens in a step that has a past: 1 if the source applies no causal
  // mask among them. Absent: no limit.
  std::optional<int64_t> new_tokens_with_past;

  friend bool operator==(const ManifestLimits&, const ManifestLimits&) = default;
};

// A dimension of inputs that was frozen: its name, or "INPUT.shape[AXIS]" if it has none.
struct FrozenDimension {
  std::string name;
  int64_t size = 1;
};

// The sizes of a model whose shapes are all static; JSON key "frozen", absent for other models.
struct FrozenShape {
  int64_t batch = 1, tokens = 1;      // B and S of every step
  std::vector<FrozenDimension> dims;  // dimensions that became numbers at the inputs; may be empty
  ShortSteps short_steps = ShortSteps::kNone;
};

// The part of a manifest that describes a companion model, which moves rows of caches
// (maintenance/maintenance.h); JSON key "maintenance", present in such manifests only.
struct ManifestMaintenance {
  std::vector<CompanionStep> does;
  std::optional<PositionSource> positions;   // absent if `does` lacks kKeep
  std::vector<std::string> position_inputs;  // inputs that take positions, if they are kGiven
  // Inputs with an entry per slot, whose entries the host moves as well.
  std::vector<std::string> by_slot;
};

// A summary of quantised caches; JSON key "quantization", absent if no cache is quantised.
struct QuantizationSummary {
  struct Error {
    std::string output;
    double max_abs = 0, bound = 0;  // largest measured difference, and its bound
  };
  // "int8:G" (groups of G), "int8:channel" or "fp8".
  std::string scheme;
  std::optional<int64_t> bytes_before, bytes_after;  // of all caches, per token; absent if unknown
  // The errors that `verify` measured; empty if it did not run.
  std::vector<Error> errors;
};

struct Manifest {
  std::string source_sha256;
  std::string target = "spec";
  // The symbolic dimension of capacities: "max_sequence_length".
  std::string capacity_dim;
  std::optional<int64_t> capacity_value;  // M in tokens; absent: the host chooses it
  BufferMode mode = BufferMode::kLinear;  // of all buffers; rings are circular in either mode
  CacheRead read = CacheRead::kPrefix;
  // All sequences of a batch must have the same number of past tokens.
  bool uniform = false;
  std::string uniform_reason;  // why, if uniform; may be empty
  std::vector<ManifestCache> caches;
  std::vector<ManifestInput> inputs;
  std::vector<ManifestOutput> outputs;
  std::vector<DroppedInput> dropped;
  std::vector<Precondition> preconditions;
  std::optional<ShownEquality> equality;  // JSON key "equality"; absent: unknown
  std::vector<ManifestFact> proved;       // JSON key "proved"; may be empty
  Assumptions assumptions;                // the assumptions of `equality`; JSON key "assumptions"
  ManifestLimits limits;
  std::optional<FrozenShape> frozen;
  std::optional<ManifestMaintenance> maintenance;
  std::optional<QuantizationSummary> quantization;
};

// Returns true if rows wrap around the end of the cache's buffer.
bool IsCircular(const Manifest& manifest, const ManifestCache& cache);
// Returns true if a cache of the converted model grows by the new tokens of each step.
bool HasGrowingCaches(const Manifest& relation);

// Parses the text of a manifest. Returns InvalidArgument, with the name of the key, if the text is
// not JSON, the schema is another one, or a key that is required is missing, has the wrong type or
// an unknown value. Keys that are not known are ignored. Does not compare the manifest with a
// model.
absl::StatusOr<Manifest> ManifestFromJson(std::string_view text);
// Stores the schema's name and the whole manifest in metadata_props of the model, under keys that
// start with "kvlift.". Removes older properties with such keys.
void StampMetadata(const Manifest& manifest, onnx::ModelProto* model);
// Returns the manifest that a model carries in its metadata. Returns NotFound if it carries none,
// and InvalidArgument as ManifestFromJson does.
absl::StatusOr<Manifest> ManifestFromMetadata(const onnx::ModelProto& model);
// Returns the path of the manifest beside a model: "out.onnx" -> "out.kv.json".
std::string ManifestPathFor(const std::string& model_path);

}  // namespace kvlift
