#include "kvlift/fleet/child_options.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "fmt/format.h"
#include "kvlift/cli.h"

namespace kvlift::cli {
namespace {

// Options that name one file for all models, or that decide what is printed.
constexpr auto kReserved = std::to_array<std::string_view>(
    {"-o", "--output", "--json", "--format", "--report", "--manifest", "--save-failure", "--save",
     "--explorer", "--obligations", "--dump-dir", "--color", "--quiet", "--verbose", "-h", "--help",
     "--help-all"});

bool IsReserved(std::string_view word) {
  if (word.rfind("-o", 0) == 0) return true;  // its value may be in the same word
  return std::find(kReserved.begin(), kReserved.end(), word) != kReserved.end();
}

}  // namespace

std::string WhyNotOptions(std::string_view by, const std::string& command,
                          const std::vector<std::string>& options) {
  for (const std::string& option : options) {
    const std::string word = option.substr(0, option.find('='));
    if (word == "--threads" || word == "--force") {
      return fmt::format("{}: give it to {} itself, in front of --", word, by);
    }
    if (IsReserved(word)) return fmt::format("{}: {} decides this itself for each model", word, by);
  }
  std::vector<std::string> line = {"kvlift", command, "model.onnx"};
  if (command == "convert") line.insert(line.end(), {"-o", "out.onnx"});
  // The fleet has a report of each model made, unless a model ends early.
  if (by == "fleet" && command == "convert" && !StopsEarly(options)) {
    line.insert(line.end(), {"--report", "out.html"});
  }
  if (command == "verify") line.emplace_back("out.onnx");
  line.insert(line.end(), options.begin(), options.end());
  return WhyNotUsable(line);
}

bool StopsEarly(const std::vector<std::string>& options) {
  return std::any_of(options.begin(), options.end(), [](std::string_view option) {
    const std::string_view word = option.substr(0, option.find('='));
    return word == "--stop-after" || word == "--dry-run";
  });
}

}  // namespace kvlift::cli
