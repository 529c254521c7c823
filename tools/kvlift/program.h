// The program as one function, which main and the Python package call.
#pragma once

#include <string>
#include <vector>

namespace kvlift::cli {

// Runs the command line `words`, whose first word is the program's name. Returns the exit code. It
// sets signal handlers and limits of the process, so the caller should do nothing else afterwards.
int Program(const std::vector<std::string>& words);

}  // namespace kvlift::cli
