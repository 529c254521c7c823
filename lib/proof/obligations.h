// What the facts of a proof rest on, as problems for a solver of one's own: each equality of
// places, extents and masks that the proof took to hold, as a script in SMT-LIB 2. `unsat` means
// that it holds. Of a fact that is not proved there are the equalities that the proof did not see;
// a fact that compares operators or constants is a proposition of which nothing is known.
//
// Indices and dimensions are integers, tensors are functions of the places in them, of which
// nothing is known but that equal places have equal elements. Division rounds down.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "sym/expr.h"

namespace kvlift {

struct Obligation {
  std::string name;    // "0007-same", "0012-open": a name for its file
  std::string script;  // SMT-LIB 2
};

// Two expressions that are one wherever `known` and `premise` hold, under facts about indices.
struct EqualityClaim {
  sym::Expr mine = nullptr, theirs = nullptr, known = nullptr, premise = nullptr;
  sym::Facts facts;
};

// Collects the obligations of a proof, each once. It only listens: no fact depends on it.
class Obligations {
 public:
  // names: of the tensors, for comments; may be null.
  void Same(const EqualityClaim& claim, sym::Pool& pool, const Graph* names);
  // Keeps an equality that was asked for and not seen until the fact that it is about.
  void NotSeen(const EqualityClaim& claim, sym::Pool& pool, const Graph* names);
  // The equalities that were not seen since the last call, as scripts.
  std::vector<std::string> TakeNotSeen();
  // Adds a fact that is not proved, and the equalities that were not seen.
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
