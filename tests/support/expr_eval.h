// Evaluates a symbolic expression at concrete indices, dims and data. Tests check forms with it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "sym/expr/expr.h"

namespace kvlift::testing {

struct Environment {
  std::map<std::string, int64_t> dims;
  std::vector<int64_t> indices;
  // Returns an element of a tensor; nullopt if the indices are out of range.
  std::function<std::optional<double>(ValueId, absl::Span<const int64_t>)> load;
};

// Returns nullopt if a part has no value: an index outside a tensor, a division by zero, an unknown
// function or symbol. Branches of selects that are not taken are not evaluated.
std::optional<double> Evaluate(sym::Expr e, const Environment& environment);

}  // namespace kvlift::testing
