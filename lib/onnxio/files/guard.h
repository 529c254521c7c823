// ONNX and protobuf report errors by exceptions. Code that calls them does so through Guard, the
// only place where exceptions become statuses.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace kvlift {

// Returns the first non-empty lines of an error message of ONNX, escaped for terminals, joined by
// "; ".
std::string FirstLines(std::string_view message);

// Returns a status for the exception that is being handled, "WHAT: message": ResourceExhausted if
// memory ran out, else InvalidArgument.
absl::Status StatusOfCurrentException(std::string_view what);

// Runs `body`, which returns nothing. An exception becomes a status that starts with `what`.
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
