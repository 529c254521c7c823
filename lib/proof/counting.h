// Vectors of positions that a host feeds, taken to count up.
#pragma once

#include <string>
#include <vector>

#include "sym/forms.h"

namespace kvlift {

class Counting {
 public:
  explicit Counting(sym::Forms& forms) : forms_(forms) {}

  // e with every look-up in an integer input written as the first element of its row plus the
  // distance: pos[b, i2] becomes pos[b, 0] + i2. The inputs' names are added to `vectors`, each
  // once.
  sym::Expr CountedUp(sym::Expr e, const sym::Facts& facts, std::vector<std::string>* vectors);

 private:
  sym::Forms& forms_;
};

}  // namespace kvlift
