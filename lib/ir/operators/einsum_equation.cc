#include "ir/operators/einsum_equation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace kvlift {
namespace {

constexpr std::string_view kEllipsis = "...";

bool HasLabelsOnly(std::string_view term) {
  return std::all_of(term.begin(), term.end(), absl::ascii_isalpha);
}

// Returns the letters that the text does not use.
std::string LettersLeft(std::string_view text) {
  std::string left;
  for (char letter = 'Z'; letter >= 'A'; --letter) {
    if (text.find(letter) == std::string_view::npos) left += letter;
  }
  for (char letter = 'z'; letter >= 'a'; --letter) {
    if (text.find(letter) == std::string_view::npos) left += letter;
  }
  return left;
}

// Puts the first `count` of the letters, the last of them first, in the place of an ellipsis.
void SpellEllipsis(std::string_view letters, size_t count, std::string* term) {
  const size_t at = term->find(kEllipsis);
  if (at == std::string::npos) return;
  std::string spelled(letters.substr(0, count));
  std::reverse(spelled.begin(), spelled.end());
  term->replace(at, kEllipsis.size(), spelled);
}

// Returns the result of an equation without an arrow: the axes of the ellipsis, and the labels that
// occur once, in the order of the alphabet.
std::string ImpliedResult(std::string_view left) {
  std::string result;
  if (left.find(kEllipsis) != std::string_view::npos) result = kEllipsis;
  std::string once;
  for (char label : left) {
    if (absl::ascii_isalpha(label) && std::count(left.begin(), left.end(), label) == 1) {
      once += label;
    }
  }
  std::sort(once.begin(), once.end());
  return result + once;
}

}  // namespace

bool EinsumEquation::HasEachLabelOnce() const {
  const auto has_each_once = [](std::string term) {
    std::sort(term.begin(), term.end());
    return std::adjacent_find(term.begin(), term.end()) == term.end();
  };
  return std::all_of(operands.begin(), operands.end(), has_each_once) && has_each_once(result);
}

std::optional<EinsumEquation> ReadEinsumEquation(std::string_view text,
                                                 absl::Span<const size_t> ranks) {
  std::string compact(text);
  std::erase(compact, ' ');
  const std::vector<std::string> sides = absl::StrSplit(compact, "->");
  if (sides.size() > 2) return std::nullopt;
  EinsumEquation equation;
  equation.operands = absl::StrSplit(sides[0], ',');
  equation.result = sides.size() == 2 ? sides[1] : ImpliedResult(sides[0]);
  const bool has_ranks = !ranks.empty();
  if (has_ranks && equation.operands.size() != ranks.size()) return std::nullopt;
  const std::string letters = LettersLeft(compact);
  size_t widest = 0;
  for (size_t k = 0; k < equation.operands.size(); ++k) {
    std::string& term = equation.operands[k];
    if (has_ranks && term.find(kEllipsis) != std::string::npos) {
      const size_t labels = term.size() - kEllipsis.size();
      if (ranks[k] < labels || ranks[k] - labels > letters.size()) return std::nullopt;
      widest = std::max(widest, ranks[k] - labels);
      SpellEllipsis(letters, ranks[k] - labels, &term);
    }
    if ((has_ranks && term.size() != ranks[k]) || !HasLabelsOnly(term)) return std::nullopt;
  }
  SpellEllipsis(letters, widest, &equation.result);
  if (!HasLabelsOnly(equation.result)) return std::nullopt;
  return equation;
}

}  // namespace kvlift
