// The layout of --help: one screen, with an example that works as it is.
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

// Returns the values that an option lists; empty if it takes any value.
std::vector<std::string> ChoicesOf(const CLI::Option& option);

// Returns command lines that show what a command is for, one a line; empty if it has none.
std::string_view ExampleLinesOf(std::string_view command);
// Returns the examples below the help of a command; empty if it has none.
std::string ExamplesOf(std::string_view command);

}  // namespace kvlift::cli
