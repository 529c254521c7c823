// What the relation and the ledger of the proof require of the feeds of a pair of models.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "contract/assumptions.h"
#include "contract/manifest.h"
#include "onnx/onnx_pb.h"
#include "proof/proof.h"

namespace kvlift::soundness {

struct Restrictions {
  bool one_length = false;  // all sequences have one length
  bool one_token_with_past = false;
  bool no_padding = false;           // no token of a step is padding
  bool tokens_visible = false;       // every token sees itself
  std::vector<std::string> counted;  // inputs that hold positions P..T-1
  std::vector<std::string> ones, zeros, binary;
  std::vector<std::string> sizes;  // comparisons such as "T = P + S", "0 < B"
  bool tame = false;               // no large numbers
  bool may_stop = false;   // the source may fail, since values inside it must stay in some range
  bool reordered = false;  // an input `beams` says which past sequence each sequence continues
};

Restrictions RestrictionsOf(const onnx::ModelProto& before, const Manifest& manifest,
                            const Assumptions& assumptions);

// Returns the assumptions that a proof and its facts rest on.
Assumptions LedgerOf(const Proof& proof);

// Returns true if an entry is about values inside the source, which feeds do not show.
bool IsHidden(const Assumption& entry);

// Sizes by name: "S", "P of the sequence", "mask.shape[1]".
using Sizes = std::map<std::string, int64_t>;

// Returns whether a comparison of sums of sizes holds; nullopt if the text is not one, or has
// unknown sizes.
std::optional<bool> Holds(const std::string& condition, const Sizes& sizes);

}  // namespace kvlift::soundness
