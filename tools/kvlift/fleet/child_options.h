// The options behind `--`, which `fleet` and `reduce` hand to the command that they run for each
// model.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvlift::cli {

// Returns why the command does not take these options, or why they are not the user's to give;
// empty if they are fine. by: the command that runs it, "fleet".
std::string WhyNotOptions(std::string_view by, const std::string& command,
                          const std::vector<std::string>& options);

// Returns true if the command writes no model and no report with these options.
bool StopsEarly(const std::vector<std::string>& options);

}  // namespace kvlift::cli
