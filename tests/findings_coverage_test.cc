// LIBS: base
// Every code of the findings table is produced by the code and expected by a test. A code is
//   produced where it stands in lib/, rewrites/ or tools/, outside comments and the table;
//   expected where it stands in quotes in a *_test.cc or *_test.py that expects things, or
//   behind code:, also:, unproved: or preconditions: in a case of testdata/rewrites.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "base/findings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvlift {
namespace {

namespace fs = std::filesystem;

// Code -> a file that holds it.
using Occurrences = std::map<std::string, std::string>;

std::string Read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

fs::path Root() { return fs::path(KVLIFT_TESTDATA_DIR).parent_path(); }

void Collect(const fs::path& path, const std::string& text, const std::regex& pattern,
             Occurrences* found) {
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
    found->try_emplace((*it)[1], fs::relative(path, Root()).string());
  }
}

// "KV110", or "warning KV110".
const std::regex& Quoted() {
  static const auto* const pattern = new std::regex("\"(?:[a-z]+ )?(KV[0-9]{3})\"");
  return *pattern;
}

Occurrences Produced() {
  Occurrences found;
  for (const char* folder : {"lib", "rewrites", "tools/kvlift"}) {
    for (const auto& entry : fs::recursive_directory_iterator(Root() / folder)) {
      const fs::path& path = entry.path();
      if (path.extension() != ".cc" && path.extension() != ".h") continue;
      if (path.filename() == "findings.cc") continue;
      static const std::regex comment("//[^\n]*"), code("\\b(KV[0-9]{3})\\b");
      Collect(path, std::regex_replace(Read(path), comment, ""), code, &found);
    }
  }
  return found;
}

Occurrences Expected() {
  Occurrences found;
  const std::set<std::string> no_evidence = {"findings_coverage_test.cc", "findings_test.cc"};
  for (const auto& entry : fs::recursive_directory_iterator(Root() / "tests")) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with("_test.cc") && !name.ends_with("_test.py")) continue;
    const std::string text = Read(entry.path());
    const bool expects =
        text.find("EXPECT_") != std::string::npos || text.find("self.assert") != std::string::npos;
    if (expects && !no_evidence.contains(name)) Collect(entry.path(), text, Quoted(), &found);
  }
  const std::regex line("\n(?:code|also|unproved|preconditions): *([^\n]*)"), code("(KV[0-9]{3})");
  for (const auto& entry : fs::directory_iterator(Root() / "testdata" / "rewrites")) {
    const std::string text = Read(entry.path());
    for (std::sregex_iterator it(text.begin(), text.end(), line), end; it != end; ++it) {
      Collect(entry.path(), (*it)[1], code, &found);
    }
  }
  return found;
}

TEST(FindingsCoverage, EveryCodeIsProduced) {
  const Occurrences produced = Produced();
  for (const FindingInfo& info : AllFindings()) {
    EXPECT_TRUE(produced.contains(std::string(info.code)))
        << info.code << " " << info.name << " is produced nowhere";
  }
}

TEST(FindingsCoverage, EveryCodeIsExpected) {
  const Occurrences expected = Expected();
  for (const FindingInfo& info : AllFindings()) {
    EXPECT_TRUE(expected.contains(std::string(info.code)))
        << info.code << " " << info.name << " is expected by no test";
  }
}

TEST(FindingsCoverage, EveryCodeIsInTheTable) {
  for (const auto& [code, file] : Produced()) {
    EXPECT_NE(FindFinding(code), nullptr) << code << " of " << file << " is not in the table";
  }
}

}  // namespace
}  // namespace kvlift
