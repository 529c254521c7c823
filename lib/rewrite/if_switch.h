// What decides between the branches of a merged decoder: an input of the host that is true or
// false, or the length of a past.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"
#include "rewrite/if_branches.h"
#include "sym/dim_symbol.h"

namespace kvlift {

struct Switch {
  std::string node;       // an If it decides: its name
  std::string condition;  // its value
  std::string input;      // set: the host's decision
  sym::DimSymbol dim;     // else: the extent that is 0 or more than 0

  bool by_input() const { return !input.empty(); }
  // The values of conditions where the input is true, or where the extent is more than 0; and
  // where it is not.
  ConditionFn Taken(bool truth) const;
};

// The switch of the first If of the main graph that has one.
absl::StatusOr<std::optional<Switch>> FindSwitch(const onnx::ModelProto& model);

// Conditions that are the same for all inputs.
std::optional<bool> ProvableCondition(sym::Forms& forms, ValueId condition);

}  // namespace kvlift
