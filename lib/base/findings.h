// The one table of finding codes, and the value that carries an occurrence of one.
//
// Ranges: KV0xx reading, KV1xx ONNX and operator rules, KV2xx not convertible, KV3xx
// preconditions, KV4xx verification, KV5xx writing. Codes are never reused.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"

namespace kvlift {

struct FindingInfo {
  std::string_view code;     // "KV214"
  std::string_view name;     // kebab-case, stable: "past-read-after-write"
  std::string_view message;  // one line
  std::string_view why;      // why it matters
  std::string_view remedy;   // what the user can do
};

// Returns the entries of all codes, sorted by code.
absl::Span<const FindingInfo> AllFindings();

// Returns the entry of a code; nullptr if the table has no such code.
const FindingInfo* FindFinding(std::string_view code);

// One occurrence: what was found, where. `text` says what the rule needs and what the graph has.
struct Finding {
  std::string code;
  std::string text;
  std::vector<std::string> nodes;   // node names; for a node without one, its first output's
  std::vector<std::string> values;  // value names

  friend bool operator==(const Finding&, const Finding&) = default;
};

}  // namespace kvlift
