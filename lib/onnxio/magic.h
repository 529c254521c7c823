// Files that are often taken for a model.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace kvlift {

// "this is a zip archive ...", or nothing if the bytes may be a ModelProto.
std::optional<std::string> WhatItLooksLike(absl::string_view bytes);

}  // namespace kvlift
