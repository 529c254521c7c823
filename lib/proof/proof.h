// What can be said of a conversion for all shapes at once: B sequences, S new tokens, P past ones,
// M slots stay symbols. Read from the two graphs and the relation alone; nothing here knows which
// rules made the conversion.
//
// The facts are about places: which rows are written, which are read, which keys are visible. That
// equal places hold equal numbers is a fact of its own: outside the attentions both graphs apply
// the same operators to the same values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "contract/assumptions.h"
#include "contract/manifest.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

enum class FactStatus {
  kProved,   // holds for all shapes
  kGiven,    // holds for all shapes under the assumptions of `given`, all of them in the ledger
  kOpen,     // not shown; `why_not` says what stands in the way, which is nothing against the fact
  kRefuted,  // shown to be false: other weights, other constants, another operator
};

// The word that reports use: "proved", "given", "open", "refuted".
std::string_view WordOf(FactStatus status);

struct ProofFact {
  std::string about;  // a cache's id, an attention's result, or an output
  std::string text;
  FactStatus status = FactStatus::kOpen;
  std::vector<std::string> lemmas;  // names of the lemmas that it rests on (docs/proof.md)
  std::vector<Assumption> given;    // entries of the ledger that it rests on
  std::string why_not;              // of open and refuted ones

  // Proved, or proved given assumptions.
  bool holds() const { return status == FactStatus::kProved || status == FactStatus::kGiven; }
};

struct Proof {
  std::vector<ProofFact> facts;
  std::string not_tried;    // why no fact was looked at
  Assumptions assumptions;  // what the facts rest on, whatever the fact
};

class Obligations;

// Every fact holds, and there is one.
bool HoldsWhole(const Proof& proof);

// obligations: receives what the facts rest on (proof/obligations.h); may be null.
Proof ProveConversion(const onnx::ModelProto& before, const onnx::ModelProto& after,
                      const Manifest& manifest, Obligations* obligations = nullptr);

}  // namespace kvlift
