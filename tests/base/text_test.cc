// LIBS: base
#include <limits>
#include <string>

#include "base/checked.h"
#include "base/escape.h"
#include "base/sha256.h"
#include "gtest/gtest.h"

namespace kvlift {
namespace {

std::string Sha(const std::string& bytes) {
  Sha256 sha;
  sha.Update(bytes);
  return sha.FinishHex();
}

// Source: FIPS 180-4 examples.
TEST(Sha256, KnownVectors) {
  EXPECT_EQ(Sha(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Sha(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesDoNotMatter) {
  for (size_t size : {55, 56, 57, 63, 64, 65, 119, 120, 128, 200}) {
    const std::string bytes(size, 'x');
    Sha256 sha;
    for (char c : bytes) sha.Update({&c, 1});
    EXPECT_EQ(sha.FinishHex(), Sha(bytes)) << size;
  }
}

TEST(EscapeTerminal, ControlsBecomeVisible) {
  EXPECT_EQ(EscapeTerminal("plain /layers.0/key \\n"), "plain /layers.0/key \\n");
  EXPECT_EQ(EscapeTerminal("\x1b]0;x\a"), "\\x1b]0;x\\x07");
  EXPECT_EQ(EscapeTerminal("a\nb\tc\r"), "a\\nb\\tc\\x0d");
  EXPECT_EQ(EscapeTerminal(std::string("\0\x7f", 2)), "\\x00\\x7f");
  EXPECT_EQ(EscapeTerminal("\xc2\x9b"), "\\u009b");  // CSI as one character
  EXPECT_EQ(EscapeTerminal("\xe2\x80\xae"
                           "abc"),
            "\\u202eabc");  // right-to-left override
  EXPECT_EQ(EscapeTerminal("\xe2\x81\xa6\xd8\x9c"), "\\u2066\\u061c");
}

TEST(EscapeTerminal, KeepsOtherUnicode) {
  EXPECT_EQ(EscapeTerminal("\xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x99\x82"),
            "\xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x99\x82");
}

TEST(EscapeTerminal, IllFormedBytesBecomeVisible) {
  EXPECT_EQ(EscapeTerminal("\xff"), "\\xff");
  EXPECT_EQ(EscapeTerminal("\xc0\xaf"), "\\xc0\\xaf");           // overlong
  EXPECT_EQ(EscapeTerminal("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // surrogate
  EXPECT_EQ(EscapeTerminal("\xe2\x80"), "\\xe2\\x80");           // cut off
}

TEST(ToValidUtf8, ReplacesOnlyIllFormedBytes) {
  EXPECT_EQ(ToValidUtf8("a\xff\xc3\xa9\n"), "a\xef\xbf\xbd\xc3\xa9\n");
  EXPECT_EQ(ToValidUtf8("\xf4\x90\x80\x80"),
            "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");  // above U+10FFFF
}

TEST(Checked, OverflowIsNothing) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(CheckedAdd(kMax - 1, 1), kMax);
  EXPECT_EQ(CheckedAdd(kMax, 1), std::nullopt);
  EXPECT_EQ(CheckedMul(int64_t{1} << 31, int64_t{1} << 31), int64_t{1} << 62);
  EXPECT_EQ(CheckedMul(int64_t{1} << 32, int64_t{1} << 31), std::nullopt);
  EXPECT_EQ(CheckedMul(std::numeric_limits<int64_t>::min(), -1), std::nullopt);
}

}  // namespace
}  // namespace kvlift
