// States what operators require of the numbers in their operands: an operator refuses to run where
// a requirement does not hold. Requirements that its symbolic form already states as assumptions
// (sym/forms/forms.h) are not repeated.
#pragma once

#include <string>
#include <vector>

#include "sym/forms/forms.h"

namespace kvlift {

// One requirement.
struct Need {
  sym::Expr condition = nullptr;  // has to hold for all values of its indices
  sym::Facts facts;               // the extents of these indices
  // The requirement in words.
  std::string text;
};

// Returns the requirements of a node: extents of results are not negative, steps of Range and Slice
// and divisors of integers are not 0, the parts of a Split add up to its axis, which is not shorter
// than their number, a OneHot has a class, a TopK asks for no more elements than there are, the
// inner axes of a Gemm are equal and its summand is broadcast to the result, bounds of a Clip are
// scalars, a Reshape leaves no extent open beside one of 0, and a Pad by elements of the tensor
// finds enough of them. Requirements that always hold are left out.
std::vector<Need> NeedsOf(sym::Forms& forms, NodeId node);

// Returns true if NeedsOf, with the assumptions of the forms, states all that the operator
// requires. Other operators, such as a normalization, whose weights have to fit, may refuse to run
// for a reason that is not looked at.
bool StatesAllNeeds(sym::Forms& forms, NodeId node);

// Returns true if the form gives every extent of a result in terms of the operands. Otherwise it is
// not known whether the node runs.
bool TellsExtents(const sym::Forms& forms, ValueId result, const sym::Form& form);

}  // namespace kvlift
