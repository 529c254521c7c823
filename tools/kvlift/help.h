// How --help looks: one screen, with an example that works as it stands.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "CLI/CLI.hpp"

namespace kvlift::cli {

// Groups that only --help-all shows.
inline constexpr char kReadingGroup[] = "Reading";
inline constexpr char kLimitsGroup[] = "Limits";
inline constexpr char kOperatorsGroup[] = "Operators";

std::shared_ptr<CLI::FormatterBase> MakeHelpFormatter();

// What a value may be, where the option lists it; empty if it takes any.
std::vector<std::string> ChoicesOf(const CLI::Option& option);

// What stands under the help of a command; empty if it has no example.
std::string ExamplesOf(std::string_view command);

}  // namespace kvlift::cli
