// Finds the switch between the branches of a merged decoder: an input that the host sets to true or
// false, or whether the length of a past is 0.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"
#include "rewrite/branches/if_branches.h"
#include "sym/expr/dim_symbol.h"

namespace kvlift {

struct Switch {
  std::string node;       // the name of an If that it decides
  std::string condition;  // the name of that If's operand
  std::string input;      // the input that the host sets; empty: `dim` decides
  sym::DimSymbol dim;     // the extent that is 0 or more than 0, if `input` is empty

  bool by_input() const { return !input.empty(); }
  // Returns a function that gives the value of a condition where the input equals `truth`, or where
  // the extent is more than 0 (truth) or 0 (not truth).
  ConditionFn Taken(bool truth) const;
};

// Returns the switch of the first If of the main graph whose condition depends on one input or one
// extent only and differs between its two cases; nullopt if there is none.
absl::StatusOr<std::optional<Switch>> FindSwitch(const onnx::ModelProto& model);

// Returns the value of a condition that is the same for all inputs; nullopt for all others.
std::optional<bool> ProvableCondition(sym::Forms& forms, ValueId condition);

}  // namespace kvlift
