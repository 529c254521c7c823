// What shells and man know of the program, drawn from its own table of commands and flags.
#pragma once

#include <string>
#include <string_view>

#include "CLI/CLI.hpp"

namespace kvlift::cli {

// A completion script for "bash", "zsh" or "fish".
std::string CompletionScript(const CLI::App& app, std::string_view shell);

// kvlift(1), in the man macros.
std::string ManPage(const CLI::App& app, std::string_view version);

}  // namespace kvlift::cli
