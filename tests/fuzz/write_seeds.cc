// write_seeds TARGET FOLDER: one file per seed and regression of a target.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/sha256.h"
#include "fuzz/seeds.h"

int main(int argc, char** argv) {
  const auto* target = argc == 3 ? kvlift::fuzz::FindTarget(argv[1]) : nullptr;
  if (target == nullptr) {
    std::fprintf(stderr, "usage: write_seeds TARGET FOLDER; targets:");
    for (const auto& t : kvlift::fuzz::Targets()) {
      std::fprintf(stderr, " %s", std::string(t.name).c_str());
    }
    std::fprintf(stderr, "\n");
    return 2;
  }
  std::filesystem::create_directories(argv[2]);
  std::vector<std::string> all = kvlift::fuzz::Seeds(*target);
  for (auto& [name, bytes] : kvlift::fuzz::Regressions(*target)) all.push_back(std::move(bytes));
  for (const std::string& bytes : all) {
    kvlift::Sha256 sha;
    sha.Update(bytes);
    std::ofstream file(std::filesystem::path(argv[2]) / sha.FinishHex(), std::ios::binary);
    file << bytes;
    if (!file.flush()) return 1;
  }
  return 0;
}
