// The steps of a conversion (docs/passes.md). A caller can end the conversion after one of them,
// and can see the result of each. No decision of a conversion depends on this.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace kvlift {

// The steps in the order in which they run.
enum class Step { kLower, kRecognise, kPlan, kEmit, kCheck, kProve };

// Returns the word for a step in options and file names: "lower", "recognise", ...
std::string_view WordOf(Step step);
// Returns the step of a word; nullopt for any other word.
std::optional<Step> ReadStep(std::string_view word);

// The result of one step as a text file. `name` has the step's number in front: "3-plan.txt".
struct StepText {
  std::string name, text;
};

struct StepTrace {
  // The conversion ends after this step, without a model; absent: all steps run.
  std::optional<Step> stop_after;
  // Receives the texts of each step that ran, also of one that refused. An error ends the
  // conversion. Null: no texts are made.
  std::function<absl::Status(std::vector<StepText>)> take;

  bool ends(Step step) const { return stop_after == step; }
  // Hands the texts that `make` returns to `take`, if there is one.
  absl::Status Take(const std::function<std::vector<StepText>()>& make) const {
    return take ? take(make()) : absl::OkStatus();
  }
};

}  // namespace kvlift
