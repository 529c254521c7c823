// LIBS: base
// Names of models as scalars of YAML. tests/metadata_test.py reads such files by PyYAML.
#include "base/quote_yaml.h"

#include <string>

#include "gtest/gtest.h"

namespace kvlift {
namespace {

TEST(QuoteYaml, Examples) {
  EXPECT_EQ(QuoteYaml(""), R"("")");
  EXPECT_EQ(QuoteYaml("past_key_values.0.key"), R"("past_key_values.0.key")");
  EXPECT_EQ(QuoteYaml("a: b # 'c' - {d} &e *f %g"), R"("a: b # 'c' - {d} &e *f %g")");
  EXPECT_EQ(QuoteYaml("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(QuoteYaml("a\nb\tc\rd"), R"("a\nb\tc\x0dd")");
  EXPECT_EQ(QuoteYaml(std::string("\0\x1b\x7f", 3)), R"("\x00\x1b\x7f")");
}

TEST(QuoteYaml, BeyondAscii) {
  EXPECT_EQ(QuoteYaml("\u00e9\u0085"), R"("\xe9\x85")");
  EXPECT_EQ(QuoteYaml("\u2028\u202e\ufeff\uffff"), R"("\u2028\u202e\ufeff\uffff")");
  EXPECT_EQ(QuoteYaml("\U0001f600"), R"("\U0001f600")");
  EXPECT_EQ(QuoteYaml("a\xff\xc3"), R"("a\ufffd\ufffd")");
}

}  // namespace
}  // namespace kvlift
