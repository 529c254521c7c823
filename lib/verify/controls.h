// Runs the mutants of a converted model against what the source gave, and wrong relations.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "onnxio/model.h"
#include "verify/drive.h"
#include "verify/pace.h"
#include "verify/self_checks.h"
#include "verify/verify.h"

namespace kvlift {

struct ControlOptions {
  const Graph* source = nullptr;
  int threads = 0;
  std::string one_length;    // what allows one length per batch only; empty: lengths differ
  std::string last_slot;     // why no step reaches it; empty: one does
  std::string last_start;    // why no step begins in it
  bool many_tokens = false;  // some step has more than one new token
  bool pads = false;         // some step has pads in front
  bool everywhere = false;   // mutants of every layer
  // Mutants that differ in no more than this share of the nodes, or behind them, are run without
  // the rest (tail.h).
  double most_tail = 0.5;
  std::string unrefused;          // why a step outside the capacity is not refused; empty: it is
  bool proved = false;            // all facts of the model hold for all shapes
  Assumptions* ledger = nullptr;  // receives what excuses a mutant
  Pace* pace = nullptr;           // is told of each mutant that begins; never null
  // Steps outside the capacity, run by this model: they must be refused.
  std::function<SelfCheck(const Model& mutant)> overflow;
  // The verdict on the two models with another relation: why not equal, or empty.
  std::function<std::string(const Manifest& relation)> judge;
};

// One result for each mutant that could show. What takes away one of several things that hide the
// same keys shows only with the others gone.
std::vector<ControlResult> RunControls(const Driver& driver, const Model& model, const Graph& after,
                                       const Manifest& relation, const std::vector<Record>& records,
                                       const ControlOptions& options);

}  // namespace kvlift
