#include "rewrite/types/steps.h"

#include <array>

namespace kvlift {
namespace {

constexpr std::array<std::string_view, 6> kStepWords = {"lower", "recognise", "plan",
                                                        "emit",  "check",     "prove"};

}  // namespace

std::string_view WordOf(Step step) { return kStepWords[static_cast<size_t>(step)]; }

std::optional<Step> ReadStep(std::string_view word) {
  for (size_t k = 0; k < kStepWords.size(); ++k) {
    if (kStepWords[k] == word) return static_cast<Step>(k);
  }
  return std::nullopt;
}

}  // namespace kvlift
