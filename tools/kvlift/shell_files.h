// Completion scripts and the man page, made from the program's own commands and flags.
#pragma once

#include <string>
#include <string_view>

#include "CLI/CLI.hpp"

namespace kvlift::cli {

// Returns a completion script for "bash", "zsh" or "fish".
std::string CompletionScript(const CLI::App& app, std::string_view shell);

// Returns kvlift(1) in man macros.
std::string ManPage(const CLI::App& app, std::string_view version);

}  // namespace kvlift::cli
