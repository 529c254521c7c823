// Recognises files of other types that are often passed as a model.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace kvlift {

// Returns a text such as "this is a zip archive ...", or nullopt if the bytes may be a ModelProto.
std::optional<std::string> DescribeOtherFileType(absl::string_view bytes);

}  // namespace kvlift
