// LIBS: base
// SRCS: support/escape_checks.cc fuzz/mutate.cc
// Names of models in every sink: examples by hand, the canaries, and texts at random.
#include "base/escape.h"

#include <iterator>
#include <random>
#include <string>

#include "fuzz/mutate.h"
#include "gtest/gtest.h"
#include "support/escape_checks.h"

namespace kvlift {
namespace {

TEST(Escape, Markup) {
  EXPECT_EQ(EscapeMarkup("</script><b a='\"&'>"),
            "&lt;/script&gt;&lt;b a=&#39;&quot;&amp;&#39;&gt;");
  EXPECT_EQ(EscapeMarkup(std::string("a\0\x1b]]>\xff", 7)), "a\\x00\\x1b]]&gt;\\xff");
  EXPECT_EQ(EscapeMarkup("\xef\xbf\xbe\xef\xbf\xbf"), "\\ufffe\\uffff");  // not allowed in XML
}

TEST(Escape, JsonInScript) {
  EXPECT_EQ(EscapeJsonInScript(R"({"a":"</script>&"})"), R"({"a":"\u003c/script\u003e\u0026"})");
}

TEST(Escape, Github) {
  EXPECT_EQ(EscapeGithubData("50%\r\n::error::x"), "50%25%0D%0A::error::x");
  EXPECT_EQ(EscapeGithubProperty("a,b::c%\n"), "a%2Cb%3A%3Ac%25\\n");
}

TEST(Escape, UriPath) {
  EXPECT_EQ(EscapeUriPath("a b/c:d%.onnx"), "a%20b/c%3Ad%25.onnx");
  EXPECT_EQ(EscapeUriPath("//host/x"), "/.//host/x");
  EXPECT_EQ(EscapeUriPath("javascript:x"), "javascript%3Ax");
}

TEST(Escape, PythonLiteral) {
  EXPECT_EQ(PythonLiteral("a\"\\\n\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x99\x82\xff"),
            R"("a\"\\\x0a\xe9\u6f22\U0001f642\udcff")");
}

TEST(Escape, CppLiteral) {
  EXPECT_EQ(CppLiteral(std::string(1, '\0') + "1\"\\?"
                                              "?/\xff"),
            R"("\0001\042\134\077\077/\377")");
}

TEST(Escape, Shorten) {
  EXPECT_EQ(Shorten("abc", 3), "abc");
  EXPECT_EQ(Shorten("abcd", 3), "abc... (1 bytes more)");
  EXPECT_EQ(Shorten("ab\xe6\xbc\xa2z", 4), "ab... (4 bytes more)");
}

TEST(Escape, CanariesDoNothingAnywhere) {
  for (const std::string& canary : fuzz::Canaries()) EXPECT_EQ(BrokenEscape(canary), "") << canary;
  EXPECT_EQ(BrokenEscape(std::string(1 << 20, '<')), "");
}

TEST(Escape, TextsAtRandomDoNothingAnywhere) {
  const std::string kPieces[] = {"a",
                                 "0",
                                 "\\",
                                 "\"",
                                 "'",
                                 "<",
                                 ">",
                                 "&",
                                 "&amp;",
                                 "&#39;",
                                 "%",
                                 "%0A",
                                 ":",
                                 ",",
                                 "?",
                                 "|",
                                 "\n",
                                 "\r",
                                 "\t",
                                 "\x1b",
                                 "\xc2\x9b",
                                 "\x7f",
                                 "\xff",
                                 "\xed\xa0",
                                 "\xe2\x80",
                                 "\xae",
                                 "\xb3",
                                 "\x80",
                                 "//",
                                 "\xc3\xa9",
                                 "u0041",
                                 "x41",
                                 "101",
                                 "\xf0\x9f\x99\x82",
                                 std::string(1, '\0')};
  std::mt19937 rng(1);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (size_t n = rng() % 12; n > 0; --n) text += kPieces[rng() % std::size(kPieces)];
    ASSERT_EQ(BrokenEscape(text), "") << EscapeTerminal(text);
  }
}

}  // namespace
}  // namespace kvlift
