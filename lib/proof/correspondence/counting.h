// Simplifies expressions under the assumption that position inputs count up from their first
// element.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sym/forms/forms.h"

namespace kvlift {

class Counting {
 public:
  explicit Counting(sym::Forms& forms) : forms_(forms) {}

  using Predicate = std::function<bool(const std::string& input)>;

  // Returns e with each look-up in an integer graph input for whose name `counts_up` returns true
  // replaced by the first element of its row plus the distance: pos[b, i2] becomes pos[b, 0] + i2.
  // Adds the names of these inputs to `vectors`, each once. Null stays null. The caller must state
  // the assumption.
  sym::Expr CountedUp(sym::Expr e, const Predicate& counts_up, const sym::Facts& facts,
                      std::vector<std::string>* vectors);

 private:
  sym::Forms& forms_;
};

}  // namespace kvlift
