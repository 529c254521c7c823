// Evaluates a symbolic expression at concrete indices, dims and data: the judge of the forms.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "sym/expr.h"

namespace kvlift::testing {

struct Environment {
  std::map<std::string, int64_t> dims;
  std::vector<int64_t> indices;
  // Element of a tensor; nullopt if the indices are outside of it.
  std::function<std::optional<double>(ValueId, absl::Span<const int64_t>)> load;
};

// nullopt: something has no value (an index outside a tensor, a division by zero, an unknown
// function or symbol). Branches of selects that are not taken do not matter.
std::optional<double> Evaluate(sym::Expr e, const Environment& environment);

}  // namespace kvlift::testing
