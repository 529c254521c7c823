// The result of a proof that a converted model equals its source (proof/prove/prove_conversion.h):
// facts, each with its status and what it rests on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "contract/assumptions.h"
#include "contract/fed_rules.h"

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

// A bound on the lengths of a step that the ledger of assumptions names.
struct LengthLimit {
  int64_t past = 0, tokens = 0, most = 0;  // past * P + tokens * S <= most
  std::string condition;                   // the entry's text

  bool Allows(int64_t past_tokens, int64_t new_tokens) const {
    return past * past_tokens + tokens * new_tokens <= most;
  }
};

// An output of the source that is no cache, and the axis on which it holds the slots of one.
struct SlotOutput {
  std::string output;
  int axis = 0;

  friend bool operator==(const SlotOutput&, const SlotOutput&) = default;
};

struct Proof {
  std::vector<ProofFact> facts;
  std::string not_tried;    // why the models could not be compared; empty if they were
  Assumptions assumptions;  // everything that the facts rest on, taken together
  // The assumptions that bound the lengths of a step. A converted model may refuse longer steps,
  // which the source may run with rows missing.
  std::vector<LengthLimit> lengths;
  // What `assumptions` say of the numbers and sizes that the source is fed, as data.
  FedRules fed;
  std::vector<SlotOutput> slot_outputs;
};

// Returns true if the models were compared, there is at least one fact, and every fact holds.
bool HoldsWhole(const Proof& proof);

}  // namespace kvlift
