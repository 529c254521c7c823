// The manifest of a planned conversion.
#pragma once

#include <map>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "contract/manifest.h"
#include "rewrite/analysis.h"

namespace kvlift {

struct ManifestFacts {
  std::string write_indices;     // empty: derived in the graph
  std::string nonpad_kv_seqlen;  // empty: computed in the graph
  std::string tree_mask;         // empty: none
  bool uniform = false;
  bool prefix = true;
  bool masks_padded = true;                  // wide inputs are as long as the capacity
  std::map<std::string, int> wide_inputs;    // mask inputs and the axis that is as long as the keys
  std::map<std::string, int64_t> assumed;    // of these: the number that all elements are
  absl::flat_hash_set<std::string> dropped;  // of these: no input any more
};

// What the extent of a ring is called.
std::string RingDimension(const Analysis& analysis, const CacheUpdate& update);

// Without source_sha256.
Manifest MakeManifest(Analysis& analysis, const ConvertOptions& options,
                      const ManifestFacts& facts);

// What belongs into genai_config.json for a drop-in conversion, as JSON text: all that the model
// decides. Vocabulary, special tokens and lengths are the caller's.
std::string GenaiFragment(const Analysis& analysis, const Manifest& manifest);

}  // namespace kvlift
