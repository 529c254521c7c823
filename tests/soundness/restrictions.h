// What may be fed to a pair of models: what the relation and the ledger of the proof ask for.
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
  bool one_length = false;  // of all sequences
  bool one_token_with_past = false;
  bool tokens_visible = false;       // no token is hidden from itself
  std::vector<std::string> counted;  // inputs that hold P..T-1
  std::vector<std::string> ones, zeros, binary;
  std::vector<std::string> sizes;  // "T = P + S", "0 < B": comparisons
  bool tame = false;               // no large numbers
  bool may_stop = false;           // values inside the source keep to some range
  bool reordered = false;          // an input `beams` says from which sequences a step goes on
};

Restrictions RestrictionsOf(const onnx::ModelProto& before, const Manifest& manifest,
                            const Assumptions& assumptions);

// What a proof and its facts rest on.
Assumptions LedgerOf(const Proof& proof);

// Whether an entry speaks of values inside the source, which nothing that is fed shows.
bool IsHidden(const Assumption& entry);

// Sizes by their names: "S", "P of the sequence", "mask.shape[1]".
using Sizes = std::map<std::string, int64_t>;

// Whether a comparison of sums of sizes holds; nullopt if it is none, or speaks of others.
std::optional<bool> Holds(const std::string& condition, const Sizes& sizes);

}  // namespace kvlift::soundness
