// The manifest of a conversion (OUT.kv.json): how the inputs and outputs of the converted model
// correspond to those of its source. The relation that `verify` drives both models by.
// Source: the project's contract, schema kvlift/manifest/1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/assumptions.h"
#include "nlohmann/json.hpp"
#include "onnx/onnx_pb.h"

namespace kvlift {

struct Select {
  int64_t axis = 0;
  int64_t index = 0;
};

struct SourceCache {
  std::string input, output;
  std::string kind;    // "concat", "scatter", ...
  std::string layout;  // "BNSD"; S is the sequence axis
  int64_t axis = 2;
  bool growing = true;
  std::vector<Select> select;
};

// The cache holds numbers in few bits: x = value * scale, one scale per group of elements along D,
// computed from the row when it is written. Source: docs/patterns.md, quantised caches.
struct CacheScales {
  std::string dtype;   // of the values: "int8", "float8e4m3fn"
  int64_t group = 0;   // elements that share a scale
  std::string scales;  // id of the cache that holds the scales
  std::string rows;    // type of what is quantised: "float32"
};

// The converted cache is a ring for the rows of a window: token t is in slot t mod C, where C is
// the cache's extent on its axis. A step takes C - window new tokens at most.
struct CacheRing {
  int64_t window = 0;  // rows that are read besides the new ones
};

struct ManifestCache {
  std::string id;  // "0.key"
  int64_t layer = 0;
  std::string role;  // "key", "value", "key_value"; of scales "key_scale", ...
  std::string input, output;
  std::string dtype;   // "float32"
  std::string layout;  // "BNSD"
  int64_t axis = 2;
  std::string alias;                 // "safe" or "copy"
  std::vector<std::string> readers;  // named readers of the past if alias is "copy"
  // The cache grows in AFTER as well. Never written: only a relation without a manifest says so.
  bool grows = false;
  std::optional<CacheRing> ring;            // JSON key "ring", present if any
  std::optional<CacheScales> quantization;  // JSON key "quantization", present if any
  SourceCache source;
};

struct ManifestInput {
  std::string name;
  std::string as;  // "same", "control", "cache", "pad_to_capacity", "renamed"
  // as == control: value "P" or "T", dtype, shape (["B"]).
  std::string value;
  std::string dtype;
  std::vector<std::string> shape;
  // as == pad_to_capacity
  int64_t axis = 0;
  int64_t fill = 0;
  std::string id;      // as == cache
  std::string source;  // as == renamed
  // What all its elements are, where the conversion relies on it: "ones", "zeros"; JSON key
  // "requires", present if any.
  std::string requires_text;
};

struct ManifestOutput {
  std::string name;
  std::string as;  // "same", "cache", "renamed"
  std::string id;
  std::string source;
};

struct DroppedInput {
  std::string name;
  std::string requires_text;  // "P..T-1", "ones", "zeros" or free text; JSON key "requires"
};

struct Precondition {
  std::string code;  // KV3xx
  std::string text;
  std::string status;  // "proved", "guarded", "assumed"
  // The input, dimension or cache that it is about, where a verdict rests on it: of KV307 the input
  // of the source that counts up. JSON key "subject", present if any.
  std::string subject = {};
};

// Something that was proved for all shapes, of caches (by id), attentions and outputs (by value).
struct ManifestFact {
  std::string text;
  std::vector<std::string> about;
};

// What the host keeps to, where a precondition says so in words; JSON key "limits", present if any.
struct ManifestLimits {
  // Most new tokens of a step that has a past: 1 where the source sees no causal order in them.
  std::optional<int64_t> new_tokens_with_past;

  friend bool operator==(const ManifestLimits&, const ManifestLimits&) = default;
};

// What a manifest says of a companion model that moves rows of caches (maintenance/maintenance.h);
// JSON key "maintenance", present in its manifest only.
struct ManifestMaintenance {
  std::vector<std::string> does;  // "reorder", "keep"
  // Where the model has the positions of new tokens from: "given" by position_inputs, and rows keep
  // those they were made at, wherever they go; "none" if it has none; empty without "keep".
  std::string positions;
  std::vector<std::string> position_inputs;
  std::vector<std::string> by_slot;  // inputs of the model whose entries move along
};

// JSON key "quantization", present if caches are quantised.
struct QuantizationSummary {
  struct Error {
    std::string output;
    double max_abs = 0, bound = 0;  // of what was measured
  };
  std::string scheme;                                // "int8:32"
  std::optional<int64_t> bytes_before, bytes_after;  // of all caches, per token
  std::vector<Error> errors;                         // as `verify` measured them
};

struct Manifest {
  std::string source_sha256;
  std::string target = "spec";
  std::string capacity_dim;               // "max_sequence_length"
  std::optional<int64_t> capacity_value;  // null where dynamic
  std::string mode = "linear";
  std::string read = "prefix";
  bool uniform = false;
  std::string uniform_reason;  // present when uniform
  std::vector<ManifestCache> caches;
  std::vector<ManifestInput> inputs;
  std::vector<ManifestOutput> outputs;
  std::vector<DroppedInput> dropped;
  std::vector<Precondition> preconditions;
  // What was shown of the conversion when it was made: "proved", "tested" or "unproved"; JSON key
  // "equality", present if any.
  std::string equality;
  std::vector<ManifestFact> proved;  // JSON key "proved", present if any
  Assumptions assumptions;           // what that rests on; JSON key "assumptions", present if any
  ManifestLimits limits;
  std::optional<ManifestMaintenance> maintenance;
  std::optional<QuantizationSummary> quantization;
};

// Rows go around the end of the cache's buffer.
bool IsCircular(const Manifest& manifest, const ManifestCache& cache);

nlohmann::ordered_json ToJson(const Manifest& manifest);
// InvalidArgument names the offending key.
absl::StatusOr<Manifest> ManifestFromJson(std::string_view text);
// The ledger, or a part of it, as the manifest and `verify --json` have it.
nlohmann::ordered_json ToJson(absl::Span<const Assumption> assumptions);
// Writes the essentials into metadata_props under "kvlift."; replaces older ones.
void StampMetadata(const Manifest& manifest, onnx::ModelProto* model);
// The manifest of a stamped model; NotFound if it has none.
absl::StatusOr<Manifest> ManifestFromMetadata(const onnx::ModelProto& model);
// "out.onnx" -> "out.kv.json".
std::string ManifestPathFor(const std::string& model_path);

}  // namespace kvlift
