// The options behind `--`, which `fleet` hands to the command that it runs for each model.
#pragma once

#include <string>
#include <vector>

namespace kvlift::cli {

// Returns why the command does not take these options, or why they are not the user's to give;
// empty if they are fine.
std::string WhyNotOptions(const std::string& command, const std::vector<std::string>& options);

// Returns true if the command writes no model and no report with these options.
bool StopsEarly(const std::vector<std::string>& options);

}  // namespace kvlift::cli
