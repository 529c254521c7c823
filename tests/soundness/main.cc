// soundness SECONDS|PAIRSp|BASEb [SEED [FOLDER]]: see campaign.h.
#include <cstdlib>
#include <string>

#include "fmt/core.h"
#include "soundness/campaign.h"

int main(int argc, char** argv) {
  const std::string much = argc > 1 ? argv[1] : "";
  char* end = nullptr;
  const double number = std::strtod(much.c_str(), &end);
  const std::string unit = end;
  if (number <= 0 || (!unit.empty() && unit != "p" && unit != "b") || argc > 4) {
    fmt::print(stderr, "usage: soundness SECONDS|PAIRSp|BASEb [SEED [FOLDER]]\n");
    return 2;
  }
  kvlift::soundness::Limits limits;
  if (unit == "p") limits.pairs = static_cast<int64_t>(number);
  if (unit.empty()) limits.seconds = number;
  if (unit == "b") limits.base = std::strtoull(much.c_str(), nullptr, 10);
  if (argc > 2) limits.seed = std::strtoull(argv[2], nullptr, 10);
  if (argc > 3) limits.folder = argv[3];
  const kvlift::soundness::Tally tally = kvlift::soundness::Run(limits);
  fmt::print("{}", tally.Text());
  for (const auto& [what, kind] : tally.unjudged_kinds) {
    fmt::print("not judged: {} x {} (seed {})\n", kind.count, what, kind.seed);
  }
  return tally.failures.empty() ? 0 : 1;
}
