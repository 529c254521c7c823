// LIBS: report
// Places that Graphviz gives, and what else a program of its name may say.
#include "report/html/graphviz.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "fmt/format.h"
#include "gtest/gtest.h"

namespace kvlift::html {
namespace {

namespace fs = std::filesystem;

GraphSizes Chain() { return {36, {72, 144, 72}, {{0, 1}, {1, 2}, {0, 2}, {0, 1}}}; }

constexpr char kPlain[] = R"(graph 1 2 3
node n0 1 2.5 1 0.5 "" solid box black lightgrey
node n1 1 1.5 2 0.5 "" solid box black lightgrey
node n2 1 0.5 1 0.5 "" solid box black lightgrey
edge n0 n1 4 1 2 1 1.9 1 1.8 1 1.7 solid black
edge n0 n1 4 1.1 2 1.1 1.9 1.1 1.8 1.1 1.7 solid black
edge n1 n2 4 1 1 1 0.9 1 0.8 1 0.7 solid black
edge n0 n2 7 0.5 2 0.4 1.9 0.4 1.8 0.4 1.7 0.4 1.6 0.4 1.5 0.5 0.7 solid black
stop
)";

TEST(Graphviz, PlainPlacesAreRead) {
  const auto places = ReadPlainPlaces(kPlain, Chain());
  ASSERT_TRUE(places.has_value());
  EXPECT_DOUBLE_EQ(places->width, 144);
  EXPECT_DOUBLE_EQ(places->height, 216);
  EXPECT_DOUBLE_EQ(places->centres[0].y, 36);
  EXPECT_DOUBLE_EQ(places->centres[2].y, 180);
  EXPECT_EQ(places->edges[2].size(), 7u);
  // Two edges between the same boxes have a way each.
  EXPECT_NE(places->edges[0][0].x, places->edges[3][0].x);
}

TEST(Graphviz, WhatIsNoDrawingOfTheGraphIsRefused) {
  const std::string plain = kPlain;
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = plain;
    text.replace(text.find(from), from.size(), to);
    return ReadPlainPlaces(text, Chain()).has_value();
  };
  EXPECT_TRUE(changed("solid", "dashed"));
  EXPECT_FALSE(changed("stop", "end"));
  EXPECT_FALSE(changed("node n2", "node n7"));
  EXPECT_FALSE(changed("1 2.5", "nan 2.5"));
  EXPECT_FALSE(changed("1 2.5", "x 2.5"));
  EXPECT_FALSE(changed("edge n0 n2 7", "edge n2 n0 7"));
  EXPECT_FALSE(changed("edge n0 n2 7", "edge n0 n2 6"));
  EXPECT_FALSE(changed("edge n0 n2 7", "edge n0 n2 8"));
  EXPECT_FALSE(changed("node n2 1 0.5 1 0.5 \"\" solid box black lightgrey\n", ""));
  EXPECT_FALSE(changed("graph 1 2 3", "graph 1 1e99 3"));
  EXPECT_FALSE(ReadPlainPlaces("", Chain()).has_value());
}

class GraphvizProgram : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("kvlift-dot-{}", getpid());
    fs::create_directories(folder_);
    path_ = std::getenv("PATH");
  }
  void TearDown() override {
    setenv("PATH", path_.c_str(), 1);
    fs::remove_all(folder_);
  }

  // The only `dot` there is.
  void Install(const std::string& script) {
    const fs::path file = folder_ / "dot";
    std::ofstream(file) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(file, fs::perms::owner_all);
    setenv("PATH", folder_.c_str(), 1);
  }

  fs::path folder_;
  std::string path_;
};

TEST_F(GraphvizProgram, NoneIsNoPlaces) {
  setenv("PATH", folder_.c_str(), 1);
  EXPECT_FALSE(PlaceByGraphviz(Chain()).has_value());
}

TEST_F(GraphvizProgram, SaysPlaces) {
  Install(fmt::format("/bin/cat <<'END'\n{}END", kPlain));
  EXPECT_TRUE(PlaceByGraphviz(Chain()).has_value());
}

TEST_F(GraphvizProgram, FailureIsNoPlaces) {
  Install(fmt::format("/bin/cat <<'END'\n{}END\nexit 1", kPlain));
  EXPECT_FALSE(PlaceByGraphviz(Chain()).has_value());
}

TEST_F(GraphvizProgram, EndlessOnesAreEnded) {
  Install("while :; do :; done");
  EXPECT_FALSE(PlaceByGraphviz(Chain()).has_value());
}

TEST_F(GraphvizProgram, TheRealOne) {
  const auto places = PlaceByGraphviz(Chain());
  if (!places) GTEST_SKIP() << "no dot is installed";
  EXPECT_LT(places->centres[0].y, places->centres[1].y);
  EXPECT_LT(places->centres[1].y, places->centres[2].y);
  for (const auto& edge : places->edges) EXPECT_GE(edge.size(), 4u);
}

}  // namespace
}  // namespace kvlift::html
