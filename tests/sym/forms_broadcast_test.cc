// Which extents broadcasts take to be equal. At run time an axis of one element is stretched,
// whatever the other operand has, so an extent that may be 1 by itself is no other extent.
#include "gtest/gtest.h"
#include "support/forms_fixture.h"

namespace kvlift::testing {
namespace {

constexpr const char* kUnknown = "[y.shape[0], y.shape[1]]";

// [B, P + S] rows, and what the steps of several tests read.
std::string Rows(const std::string& inputs, const std::string& body) {
  return ModelText("(float[B,P] past, float[B,S] x" + inputs + ") => (float[C,R] y)",
                   "all = Concat <axis = 1> (past, x)\n"
                   "zero = Constant <value_int = 0> ()\n"
                   "one = Constant <value_int = 1> ()\n"
                   "from = Constant <value_ints = [0]> ()\n"
                   "axis_0 = Constant <value_ints = [0]> ()\n"
                   "axis_1 = Constant <value_ints = [1]> ()\n"
                   "lengths = Shape (all)\n"
                   "length = Gather <axis = 0> (lengths, one)\n" +
                       body);
}

TEST(FormsBroadcast, ColumnsThatAreOneAsARuleAreNotTheKeys) {
  FormsOfText m(Rows("",
                     "far = Constant <value_int = 1000> ()\n"
                     "columns = Range (zero, length, far)\n"
                     "real = Cast <to = 1> (columns)\n"
                     "y = Add (all, real)"));
  EXPECT_EQ(m.Shape("y"), kUnknown);
}

TEST(FormsBroadcast, ColumnsThatAreOneAsARuleAreNotThoseOfAMask) {
  FormsOfText m(Rows(", bool[B,T] mask",
                     "end = Min (length, one)\n"
                     "columns = Range (zero, end, one)\n"
                     "seen = LessOrEqual (columns, length)\n"
                     "y = And (seen, mask)"));
  EXPECT_EQ(m.Shape("y"), kUnknown);
}

TEST(FormsBroadcast, AWindowIsNotTakenToBeAsLongAsAMask) {
  FormsOfText m(Rows(", float[B,T] mask",
                     "last = Constant <value_ints = [-5]> ()\n"
                     "to = Constant <value_ints = [9223372036854775807]> ()\n"
                     "rows = Slice (all, last, to, axis_1)\n"
                     "y = Add (rows, mask)"));
  EXPECT_EQ(m.Shape("y"), kUnknown);
}

TEST(FormsBroadcast, AMaskIsAsLongAsThereAreKeys) {
  FormsOfText m(Rows(", float[B,T] mask", "y = Add (all, mask)"));
  EXPECT_EQ(m.Shape("y"), "[B, P + S]");
  EXPECT_NE(m.Assumed().find('T'), std::string::npos);
}

TEST(FormsBroadcast, AMaskThatIsAsLongAsThereAreKeysIsNotAsLongAsTheStep) {
  FormsOfText m(Rows(", float[B,T] mask",
                     "full = Add (all, mask)\n"
                     "y = Add (x, mask)"));
  EXPECT_EQ(m.Shape("full"), "[B, P + S]");
  EXPECT_EQ(m.Shape("y"), kUnknown);
}

// A mask of the samples of a sound, of which an encoder makes one row each.
TEST(FormsBroadcast, EveryFourthElementOfAMaskIsAsLongAsThereAreKeys) {
  FormsOfText m(Rows(", int64[B,A] mask",
                     "four = Constant <value_ints = [4]> ()\n"
                     "to = Constant <value_ints = [9223372036854775807]> ()\n"
                     "fourth = Slice (mask, from, to, axis_1, four)\n"
                     "end = Unsqueeze (length, axis_0)\n"
                     "cut = Slice (fourth, from, end, axis_1)\n"
                     "real = Cast <to = 1> (cut)\ny = Add (all, real)"));
  EXPECT_EQ(m.Shape("y"), "[B, P + S]");
  EXPECT_NE(m.Assumed().find('A'), std::string::npos);
}

// The last row is one, or none where there are no rows: then nothing would be computed at all.
TEST(FormsBroadcast, TheLastRowIsThere) {
  const std::string last =
      "last = Constant <value_ints = [-1]> ()\n"
      "to = Constant <value_ints = [9223372036854775807]> ()\n"
      "row = Slice (past, last, to, axis_1)\n";
  FormsOfText m(Rows(", float[B,1] gate", last + "y = Mul (row, gate)"));
  EXPECT_EQ(m.Shape("y"), "[B, 1]");
  EXPECT_NE(m.Assumed().find("0 < P"), std::string::npos) << m.Assumed();
  // A constant broadcasts to no rows as well, as in the past of a first step.
  FormsOfText constant(Rows("", last + "two = Constant <value = float[1,1] {2.0}> ()\n"
                                       "y = Mul (row, two)"));
  EXPECT_EQ(constant.Shape("y"), constant.Shape("row"));
  EXPECT_EQ(constant.Assumed(), "");
}

TEST(FormsBroadcast, ANumberOfAHostIsNoConstant) {
  FormsOfText m(Rows(", int64[1] end, float[B,4] four",
                     "part = Slice (four, from, end, axis_1)\n"
                     "y = Add (four, part)"));
  EXPECT_EQ(m.Shape("y"), kUnknown);
}

TEST(FormsBroadcast, ANumberOfAHostIsNotHowManySequencesThereAre) {
  FormsOfText m(Rows(", int64[B] ids, int64[1] end",
                     "part = Slice (x, from, end, axis_0)\n"
                     "y = Add (x, part)"));
  EXPECT_EQ(m.Shape("y"), kUnknown);
}

TEST(FormsBroadcast, ANumberOfAHostMayBeHowManyTokensItFeeds) {
  FormsOfText m(Rows(", int64[N] ids, int64[1] end, float[64] table",
                     "part = Slice (table, from, end, axis_0)\n"
                     "real = Cast <to = 1> (ids)\n"
                     "sum = Add (real, part)\n"
                     "y = Unsqueeze (sum, axis_0)"));
  EXPECT_EQ(m.Shape("y"), "[1, N]");
}

TEST(FormsBroadcast, WhoeverComparesANodeIsGivenItsAssumption) {
  sym::FormsOptions options;
  options.compared.assign(20, true);
  FormsOfText m(Rows(", int64[1] end, float[B,4] four",
                     "part = Slice (four, from, end, axis_1)\n"
                     "y = Add (four, part)"),
                options);
  EXPECT_EQ(m.Shape("y"), "[B, 4]");
  EXPECT_NE(m.Assumed().find("end[0]"), std::string::npos);
}

}  // namespace
}  // namespace kvlift::testing
