#include "hostloop/template.h"

namespace kvlift::internal {

std::string WithFacts(std::string_view text, std::string_view facts) {
  const size_t first = text.rfind('\n', text.find("---- facts")) + 1;
  const size_t last = text.find('\n', text.find("---- end of facts")) + 1;
  return std::string(text.substr(0, first)) + std::string(facts) + std::string(text.substr(last));
}

}  // namespace kvlift::internal
