// Which graph inputs and outputs look like the two ends of a cache, before any rule is asked.
#pragma once

#include <string>
#include <vector>

#include "base/findings.h"
#include "rewrite/rule.h"
#include "sym/forms.h"

namespace kvlift {

struct Candidate {
  CachePair pair;
  std::string kind;  // as in the contract; a guess where no rule will match
  bool growing = false;
  int axis = 0;            // that differs, or a guess
  Finding if_unmatched;    // what to say if no rule matches
  bool hidden = false;     // updated inside an operator or a branch
  bool converted = false;  // written by TensorScatter already: nothing to do, and no obstacle
};

struct Candidates {
  std::vector<Candidate> pairs;      // in the order of the graph outputs
  std::vector<Finding> near_misses;  // things that resemble a cache but are none
};

Candidates FindCandidates(sym::Forms& forms);

}  // namespace kvlift
