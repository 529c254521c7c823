// Proves for all shapes that a converted model equals its source: the number of sequences B, of new
// tokens S, of past tokens P and of cache slots M stay symbols. The proof reads the two graphs and
// the manifest, and does not know which rewrite rules made the converted model.
//
// Facts say which cache rows are written and read, and which keys each query sees. A fact about
// each output says that outside the attentions both graphs apply the same operators to the same
// values. See docs/proof.md.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "contract/assumptions.h"
#include "contract/manifest.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

enum class FactStatus {
  kProved,  // the fact holds for all shapes
  kGiven,   // the fact holds for all shapes under the assumptions that it lists in `given`
  // The fact is neither shown nor refuted; `why_not` says what stands in the way.
  kOpen,
  // The fact is shown to be false: the models hold other numbers at the same place, such as a
  // weight, a scale or the axes of a reduction.
  kRefuted,
};

// Returns the word for a status in reports: "proved", "given", "open" or "refuted".
std::string_view WordOf(FactStatus status);

struct ProofFact {
  // The id of a cache, or the name of a value of the converted model: the result of an attention,
  // an output, or the result of a node whose operands may not fit.
  std::string about;
  // The statement, in words for people.
  std::string text;
  FactStatus status = FactStatus::kOpen;
  std::vector<std::string> lemmas;  // the names of the lemmas used (docs/proof.md)
  std::vector<Assumption> given;    // the ledger entries that the fact rests on
  std::string why_not;              // for open and refuted facts; otherwise empty

  // Returns true if the fact is proved, with or without assumptions.
  bool holds() const { return status == FactStatus::kProved || status == FactStatus::kGiven; }
};

struct Proof {
  std::vector<ProofFact> facts;
  std::string not_tried;    // why the models could not be compared; empty if they were
  Assumptions assumptions;  // everything that the facts rest on, taken together
};

class Obligations;

// Returns true if the models were compared, there is at least one fact, and every fact holds.
bool HoldsWhole(const Proof& proof);

// Compares `before` (the source) with `after` (the converted model) under the relation in
// `manifest`. Neither model is changed. Failures are not a Status: `not_tried` says why the models
// could not be compared (opsets below 7, functions that cannot be inlined, branches that are not
// understood). Arithmetic on float tensors is taken as real arithmetic, so rounding is not checked.
// `obligations` receives the equalities that the facts rest on (proof/obligations.h); null if they
// are not wanted.
Proof ProveConversion(const onnx::ModelProto& before, const onnx::ModelProto& after,
                      const Manifest& manifest, Obligations* obligations = nullptr);

}  // namespace kvlift
