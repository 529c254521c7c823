#include "proof/layers/layer_names.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"

namespace kvlift {
namespace {

// Returns true if the character can be part of a name in a text; other characters separate names.
bool IsOfName(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '/' || c == ':';
}

}  // namespace

bool LayerNames::Add(const std::string& name, std::vector<std::string> others) {
  size_ = std::max(size_, others.size());
  longest_ = std::max(longest_, name.size());
  const auto [known, is_new] = others_.try_emplace(name, others);
  return is_new || known->second == others;
}

std::string LayerNames::Renamed(const std::string& text, size_t k) const {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const bool begins = at == 0 || !(IsOfName(text[at - 1]) || text[at - 1] == '.');
    size_t length = begins ? std::min(longest_, text.size() - at) : 0;
    for (; length > 0; --length) {
      const size_t end = at + length;
      if (end < text.size() && IsOfName(text[end])) continue;
      const auto found = others_.find(text.substr(at, length));
      if (found == others_.end()) continue;
      result += found->second[k];
      break;
    }
    if (length == 0) result += text[at];
    at += std::max<size_t>(length, 1);
  }
  return result;
}

bool LayerNames::SpeaksOfLayer(const Assumption& assumption) const {
  return size_ > 0 && !(InLayer(assumption, 1) == assumption);
}

Assumption LayerNames::InLayer(const Assumption& assumption, size_t k) const {
  if (k == 0) return assumption;
  Assumption other = assumption;
  other.subject = Renamed(assumption.subject, k - 1);
  other.condition = Renamed(assumption.condition, k - 1);
  return other;
}

void LayerNames::AddForFirst(size_t count, const Assumption& assumption, Assumptions* all) const {
  const bool speaks = SpeaksOfLayer(assumption);
  for (size_t k = 0; k < (speaks ? count : 1); ++k) all->Add(InLayer(assumption, k));
}

}  // namespace kvlift
