// Makes the manifest of a planned conversion.
#pragma once

#include <map>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "contract/manifest.h"
#include "rewrite/planned_cache.h"

namespace kvlift {

// The decisions of the plan. Names are those of inputs of the result.
struct ManifestFacts {
  std::string write_indices;                    // empty: the graph derives the write index
  std::string nonpad_kv_seqlen;                 // empty: the graph computes the valid length
  std::string tree_mask;                        // empty: there is no such input
  bool uniform = false;                         // all sequences of a batch have the same length
  bool prefix = true;                           // attention is given the valid rows only
  bool masks_padded = true;                     // the host pads them to the capacity
  std::map<std::string, int> key_length_masks;  // masks, with the axis that is as long as the keys
  std::map<std::string, int64_t> assumed;       // masks all of whose elements are this number
  absl::flat_hash_set<std::string> dropped;     // masks that the result does not have
};

// Returns the name of the dim symbol for the extent of a ring.
std::string RingDimension(absl::Span<const PlannedCache> caches, const WindowRing& ring);

// Returns the manifest without source_sha256. caches: of PlanBuffers. The analysis must have at
// least one update.
Manifest MakeManifest(Analysis& analysis, absl::Span<const PlannedCache> caches,
                      const ConvertOptions& options, const ManifestFacts& facts);

// Returns the part of genai_config.json that the model decides, as JSON text. Vocabulary, special
// tokens and lengths are left to the caller. Caches whose names follow no pattern with one number
// are left out.
std::string GenaiFragment(const Analysis& analysis, const Manifest& manifest);

}  // namespace kvlift
