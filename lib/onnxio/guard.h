// ONNX and protobuf report errors by throwing. Whatever calls them goes through Guard: the only
// place where exceptions become values.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace kvlift {

// The message of an error of ONNX: its first lines, escaped, joined by "; ".
std::string FirstLines(std::string_view message);

// The status of the exception that is being handled. ResourceExhausted for lack of memory, else
// InvalidArgument: "WHAT: message".
absl::Status StatusOfCurrentException(std::string_view what);

// Runs `body`, which returns nothing. Exceptions become a status that starts with `what`.
template <typename Body>
absl::Status Guard(std::string_view what, Body&& body) {
  try {
    std::forward<Body>(body)();
    return absl::OkStatus();
  } catch (...) {
    return StatusOfCurrentException(what);
  }
}

}  // namespace kvlift
