// Writes what a proof rests on as problems for an SMT solver, so that others can check it. Each
// equality of places, extents or masks that the proof took to hold becomes a script in SMT-LIB 2;
// the solver's answer `unsat` confirms it. For a fact that does not hold, the scripts are the
// equalities that could not be shown; if there are none, because the fact compares operators or
// constants, the script negates a free proposition that is named after the fact, so that no solver
// answers `unsat`.
//
// Indices and dimensions are integers. Tensors are uninterpreted functions of the indices. Division
// rounds down.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "sym/expr/expr.h"

namespace kvlift {

struct Obligation {
  std::string name;    // for a file: "0007-same", "0012-open"
  std::string script;  // SMT-LIB 2
};

// The claim that two expressions are equal wherever `known` and `premise` hold, for indices within
// the extents in `facts`. A null `known` or `premise` is true.
struct EqualityClaim {
  sym::Expr mine = nullptr, theirs = nullptr, known = nullptr, premise = nullptr;
  sym::Facts facts;
};

// Collects the obligations of a proof, each script once. No fact depends on it.
class Obligations {
 public:
  // Adds an equality that was shown. `names` gives the tensors' names for comments; may be null.
  void Same(const EqualityClaim& claim, sym::Pool& pool, const Graph* names);
  // Keeps an equality that was not shown, until TakeNotSeen is called for the fact that needed it.
  // At most the last 8 are kept.
  void NotSeen(const EqualityClaim& claim, sym::Pool& pool, const Graph* names);
  // Returns the equalities kept by NotSeen as scripts, and forgets them.
  std::vector<std::string> TakeNotSeen();
  // Adds a fact that does not hold, with the scripts of the equalities that were not shown. Without
  // scripts, adds the fact itself as a proposition.
  void Open(const std::string& about, const std::string& fact, const std::string& why_not,
            const std::vector<std::string>& not_seen);
  absl::Span<const Obligation> all() const { return all_; }

 private:
  void Add(const std::string& kind, std::string script);

  std::vector<Obligation> all_;
  absl::flat_hash_set<std::string> known_;  // scripts
  std::vector<std::string> not_seen_;
};

}  // namespace kvlift
