// Explains why a command line is refused.
#pragma once

#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace kvlift::cli {

// Returns what is wrong with a command line, in the words of a user, after `app` has refused it
// with `error`. args[0] is the program's name.
std::string UsageError(const CLI::App& app, const std::vector<std::string>& args,
                       const CLI::ParseError& error);

// Returns the known word that the first unknown command, flag or choice of a command line may have
// meant; empty if no word comes near.
std::string MeantWord(const CLI::App& app, const std::vector<std::string>& args);

}  // namespace kvlift::cli
