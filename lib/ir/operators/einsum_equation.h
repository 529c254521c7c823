// The equation of an Einsum with a label for each axis. Source: the text of ONNX's Einsum.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"

namespace kvlift {

struct EinsumEquation {
  std::vector<std::string> operands;  // the labels of each operand's axes
  std::string result;                 // those of the result's axes

  // Returns true if no term has a label twice.
  bool HasEachLabelOnce() const;
};

// Reads the equation of an Einsum whose operands have the given ranks; no ranks: they are not
// known, and an equation with an ellipsis is not read. Blanks are left out; the axes of an ellipsis
// get letters that the equation does not use, one for the same axis counted from the ellipsis' end;
// an equation without an arrow has the result that the operator's text gives it. Returns nullopt if
// the equation has anything else in it, does not fit the number of operands or their ranks, or
// needs more letters than there are.
std::optional<EinsumEquation> ReadEinsumEquation(std::string_view text,
                                                 absl::Span<const size_t> ranks);

}  // namespace kvlift
