// LIBS: report base
// Widths, tables, colours and names of layers told once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "report/collapse.h"
#include "report/style.h"
#include "report/table.h"
#include "report/text_width.h"

namespace kvlift {
namespace {

using testing::ElementsAre;

TEST(DisplayWidth, CountsColumns) {
  EXPECT_EQ(DisplayWidth(""), 0);
  EXPECT_EQ(DisplayWidth("abc"), 3);
  EXPECT_EQ(DisplayWidth("\u5c42\u7f13\u5b58"), 6);              // CJK
  EXPECT_EQ(DisplayWidth("\uff21"), 2);                          // full-width A
  EXPECT_EQ(DisplayWidth("\uff71"), 1);                          // half-width katakana
  EXPECT_EQ(DisplayWidth("e\u0301"), 1);                         // combining accent
  EXPECT_EQ(DisplayWidth("\u0928\u093f\u0928\u094d"), 3);        // Devanagari with a virama
  EXPECT_EQ(DisplayWidth("\U0001f680"), 2);                      // emoji
  EXPECT_EQ(DisplayWidth("\u200b"), 0);                          // zero width space
  EXPECT_EQ(DisplayWidth("\u1112\u1161\u11ab"), 2);              // Hangul in letters
  EXPECT_EQ(DisplayWidth("\u00e9\u03b1\u0416\u2192\u2500"), 5);  // narrow ones of many blocks
  EXPECT_EQ(DisplayWidth("\u0378"), 1);                          // of no character yet
}

TEST(WrapText, BreaksAtSpacesThenSeparatorsThenAnywhere) {
  EXPECT_THAT(WrapText("one two three", 8), ElementsAre("one two", "three"));
  EXPECT_THAT(WrapText("one two", 7), ElementsAre("one two"));
  EXPECT_THAT(WrapText("a/bcd.efgh", 7), ElementsAre("a/bcd.", "efgh"));
  EXPECT_THAT(WrapText("abcdefgh", 3), ElementsAre("abc", "def", "gh"));
  EXPECT_THAT(WrapText("\u5c42\u7f13\u5b58", 3), ElementsAre("\u5c42", "\u7f13", "\u5b58"));
  EXPECT_THAT(WrapText("", 5), ElementsAre(""));
}

TEST(WrapText, NoLineIsWiderAndNothingIsLost) {
  const std::string text = "past_key_values.12.\u5c42\u7f13/decoder:key e\u0301e\u0301e\u0301 x";
  for (int width = 2; width < 50; ++width) {
    std::string joined;
    for (const std::string& line : WrapText(text, width)) {
      EXPECT_LE(DisplayWidth(line), width);
      joined += line;
    }
    std::string expected;
    for (const char c : text) {
      if (c != ' ') expected += c;
    }
    std::erase(joined, ' ');
    EXPECT_EQ(joined, expected) << width;
  }
}

TEST(FormatTable, AlignsByWidthAndEndsLinesWithoutSpaces) {
  EXPECT_EQ(FormatTable({"name", {"n", Align::kRight}, "note"},
                        {{"\u5c42", "1", "x"}, {"abcde", "1000", ""}}),
            "name      n  note\n"
            "\u5c42        1  x\n"
            "abcde  1000\n");
}

TEST(FormatTable, FitsIntoTheWidth) {
  const std::string name(60, 'n');
  for (const int width : {60, 80, 120}) {
    const std::string text =
        FormatTable({"a", "b", "c"}, {{name, name, "1"}}, Style{.width = width});
    size_t letters = 0;
    std::string line;
    for (const char c : text + "\n") {
      letters += c == 'n' ? 1 : 0;
      if (c != '\n') {
        line += c;
        continue;
      }
      EXPECT_LE(DisplayWidth(line), width);
      line.clear();
    }
    EXPECT_EQ(letters, 120u);
  }
}

TEST(FormatTable, EscapesAndShortensCells) {
  const std::string text = FormatTable({"a"}, {{"\x1b[31m"}, {std::string(100000, 'x')}});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_LT(text.size(), 1000u);
}

TEST(FormatTable, ColoursDoNotCount) {
  const Style plain, colored{.color = true};
  const auto tone = [](std::string_view cell) {
    return cell == "yes" ? Tone::kGood : Tone::kPlain;
  };
  const std::vector<std::vector<std::string>> rows = {{"yes", "1"}, {"no", "2"}};
  std::string text = FormatTable({"a", "b"}, rows, colored, tone);
  EXPECT_NE(text.find("\x1b[32myes\x1b[0m"), std::string::npos);
  for (size_t at = 0; (at = text.find('\x1b')) != std::string::npos;) {
    text.erase(at, text.find('m', at) - at + 1);
  }
  EXPECT_EQ(text, FormatTable({"a", "b"}, rows, plain, tone));
}

TEST(Style, NoTerminalHasEightyColumnsAndNoColour) {
  const Style style = StyleOf(-1, ColorChoice::kAuto);
  EXPECT_EQ(style.width, 80);
  EXPECT_FALSE(style.color);
  EXPECT_TRUE(StyleOf(-1, ColorChoice::kAlways).color);
  EXPECT_EQ(style.Paint(Tone::kBad, "x"), "x");
}

TEST(Collapse, RangesOfNumbers) {
  EXPECT_EQ(Ranges({3, 1, 0, 2, 7, 9, 8, 8}), "0-3,7-9");
  EXPECT_EQ(Ranges({5}), "5");
  EXPECT_EQ(Ranges({}), "");
}

TEST(Collapse, NamesThatDifferInNumbers) {
  EXPECT_EQ(MergedName({"a.0.k1", "a.1.k1", "a.2.k1"}, Numbers::kRanges), "a.{0-2}.k1");
  EXPECT_EQ(MergedName({"a.0.k1", "a.5.k1"}, Numbers::kStar), "a.*.k1");
  EXPECT_EQ(MergedName({"0.key", "1.key"}, Numbers::kBareRanges), "0-1.key");
  EXPECT_EQ(MergedName({"same"}, Numbers::kStar), "same");
}

TEST(Collapse, OtherNamesHaveOtherPatterns) {
  EXPECT_NE(NamePattern("a1"), NamePattern("a#"));
  EXPECT_NE(NamePattern("a1"), NamePattern("a\\#"));
  EXPECT_NE(NamePattern("a1b"), NamePattern("a01b"));  // leading zeros are no numbers
  EXPECT_NE(NamePattern("a1"), NamePattern("a" + std::string(40, '9')));
  EXPECT_EQ(NamePattern("a1b22"), NamePattern("a333b4"));
}

TEST(Collapse, RowsKeepTheirOrderAndWhatDiffers) {
  const auto rows = CollapseRows({{"0.k", "concat", "p0"},
                                  {"0.v", "concat", "q0"},
                                  {"1.k", "concat", "p1"},
                                  {"2.k", "scatter", "p2"}},
                                 {{0, Numbers::kBareRanges}, {2, Numbers::kStar}});
  EXPECT_THAT(rows,
              ElementsAre(ElementsAre("0-1.k", "concat", "p*"), ElementsAre("0.v", "concat", "q0"),
                          ElementsAre("2.k", "scatter", "p2")));
}

}  // namespace
}  // namespace kvlift
