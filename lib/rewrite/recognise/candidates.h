// Finds the graph inputs and outputs that look like the past and the present of a cache, before any
// rule judges them.
#pragma once

#include <optional>
#include <vector>

#include "base/findings.h"
#include "contract/kinds.h"
#include "rewrite/types/rule.h"
#include "sym/forms/forms.h"

namespace kvlift {

inline constexpr int kMinCacheRank = 3;

struct Candidate {
  CachePair pair;
  // The next three fields are guesses; the update of a matching rule has what is certain.
  UpdateKind kind = UpdateKind::kConcat;
  bool growing = false;    // the extents of past and present differ
  int axis = 0;            // where they differ, or that of a TensorScatter; else 0
  Finding if_unmatched;    // the finding to report if no rule matches
  bool hidden = false;     // an operator with a past of its own, or a branch, makes the present
  bool converted = false;  // a TensorScatter makes the present: there is nothing to convert
};

struct Candidates {
  std::vector<Candidate> pairs;      // in the order of the graph outputs
  std::vector<CachePair> states;     // of recurrences, and of rank 2: they stay as they are
  std::vector<Finding> near_misses;  // states and scatters that are not caches
};

// Considers graph outputs of rank 3 or more (of rank 2 if they append to an input) and graph inputs
// of the same rank and element type.
Candidates FindCandidates(sym::Forms& forms);

// Returns the rank of a value by its form, or else by its declaration; -1 if it is not known.
int RankOf(sym::Forms& forms, ValueId v);
// Returns the first node whose result has an unknown rank, on the way to the operands of the node
// that makes `v`; kNoNode if they have known ranks.
NodeId FirstOfUnknownRank(sym::Forms& forms, ValueId v);
// Returns true for ScatterND and ScatterElements.
bool IsScatter(const Graph& graph, NodeId n);

// Returns the axes on which the extents of an input and an output differ. Axes on which one extent
// is a number and the other a name are returned only if there are no others. Returns nullopt if the
// ranks differ or are not known.
std::optional<std::vector<int>> DifferingAxes(sym::Forms& forms, ValueId input, ValueId output);
// Returns true if e, an element, reads some element of the past at another place than its own.
bool MovesPast(ValueId past, sym::Expr e);
// Returns true if this output holds rows of the past, but another output of its rank and type has
// the past's name in the style of presents, and this one has not: the host feeds back the other.
bool HasNamesake(const Graph& graph, const CachePair& pair);
// Returns the finding for a quantiser that rounds the rows of the past that the present holds.
Finding RoundsAgain(const Graph& graph, const CachePair& pair, NodeId quantizer);
// Returns a candidate by what its form says, with the finding to report if no rule matches.
Candidate DescribeCandidate(sym::Forms& forms, const CachePair& pair);

}  // namespace kvlift
