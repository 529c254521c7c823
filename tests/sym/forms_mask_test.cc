// LIBS: sym onnxio
// Masks as exporters compute them, in the arithmetic of their type.
#include "gtest/gtest.h"
#include "support/forms_fixture.h"

namespace kvlift::testing {
namespace {

// Padding written into a causal mask: the lowest number where minimum + mask is 0 (transformers).
std::string PaddedCausal(const std::string& type, const std::string& lowest) {
  return ModelText("(int64[B,T] mask, " + type + "[B,S,4] x) => (" + type + "[B,1,S,T] y)",
                   "zero = Constant <value_int = 0> ()\n"
                   "one = Constant <value_int = 1> ()\n"
                   "ax0 = Constant <value_ints = [0]> ()\n"
                   "ax12 = Constant <value_ints = [1, 2]> ()\n"
                   "xs = Shape (x)\n"
                   "s = Gather (xs, one)\n"
                   "ms = Shape (mask)\n"
                   "t = Gather (ms, one)\n"
                   "rows = Range (zero, s, one)\n"
                   "columns = Range (zero, t, one)\n"
                   "r = Unsqueeze (rows, one1)\n"
                   "after = Greater (columns, r)\n"
                   "gate0 = CastLike (after, x)\n"
                   "low = Constant <value = float {" +
                       lowest +
                       "}> ()\n"
                       "least = CastLike (low, x)\n"
                       "causal = Mul (least, gate0)\n"
                       "four = Unsqueeze (causal, ax01)\n"
                       "m4 = Unsqueeze (mask, ax12)\n"
                       "real = CastLike (m4, x)\n"
                       "sum = Add (four, real)\n"
                       "none0 = Constant <value = float {0}> ()\n"
                       "none = CastLike (none0, x)\n"
                       "padded = Equal (sum, none)\n"
                       "y = Where (padded, least, four)");
}

std::string WithAxes(std::string text) {
  const std::string mark = "rows = Range";
  text.insert(text.find(mark),
              "one1 = Constant <value_ints = [1]> ()\n"
              "ax01 = Constant <value_ints = [0, 1]> ()\n");
  return text;
}

TEST(FormsMask, TheLowestFloatAbsorbsAMask) {
  FormsOfText m(WithAxes(PaddedCausal("float", "-3.4028234663852886e38")));
  EXPECT_EQ(m.Element("y"), "(i3 <= i2 and mask[i0, i3] != 0) ? 0 : -3.4028234663852886e+38");
  EXPECT_EQ(m.Assumed(), "");
}

TEST(FormsMask, TheLowestHalfAbsorbsASmallMask) {
  FormsOfText m(WithAxes(PaddedCausal("float16", "-65504")));
  EXPECT_EQ(m.Element("y"), "(i3 <= i2 and mask[i0, i3] != 0) ? 0 : -65504");
  EXPECT_EQ(m.Assumed(),
            "0 <= mask[i0, i3] + 2048 and mask[i0, i3] <= 2048;"
            "0 <= mask[i0, i3] + 15 and mask[i0, i3] <= 15;");
}

}  // namespace
}  // namespace kvlift::testing
