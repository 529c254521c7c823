// LIBS: sym onnxio
// When all elements of a vector are taken to pass a test: only where those that fail are rows that
// a buffer drops.
#include <string>

#include "gtest/gtest.h"
#include "support/forms_fixture.h"

namespace kvlift {
namespace {

using testing::FormsOfText;
using testing::ModelText;

// Keeps the elements of `places` that lie in 0..7, and then `use`.
std::string Kept(const std::string& use, const std::string& inputs = "float[8,4] buffer") {
  return ModelText("(int64[S] places, " + inputs + ", float[S,4] rows) => (float[8,4] y)",
                   "zero = Constant<value = int64 {0}>() last = Constant<value = int64 {7}>()\n"
                   "front = Constant<value = int64[1] {0}>()\n"
                   "axis = Constant<value = int64[1] {-1}>()\n"
                   "low = GreaterOrEqual(places, zero) high = LessOrEqual(places, last)\n"
                   "inside = And(low, high) found = NonZero(inside) flat = Squeeze(found, front)\n"
                   "kept = Gather(places, flat) kept_rows = Gather(rows, flat)\n"
                   "column = Unsqueeze(kept, axis)\n" +
                       use);
}

std::string AssumedBy(const std::string& text) {
  FormsOfText model(text);
  model.Of("kept");
  return model.Assumed();
}

TEST(NonZero, RowsOutsideOfABufferAreDropped) {
  EXPECT_EQ(AssumedBy(Kept("y = ScatterND(buffer, column, kept_rows)")),
            "0 <= places[i0];places[i0] <= 7;");
}

// A count, or a histogram of special tokens, says nothing about where they lie.
TEST(NonZero, NumbersThatAreNoPlacesInABufferOfTheHostMayFail) {
  EXPECT_EQ(AssumedBy(Kept("real = Cast<to = 1>(column) y = Add(real, buffer)")), "");
  EXPECT_EQ(AssumedBy(Kept("zeros = Sub(buffer, buffer)\n"
                           "y = ScatterND(zeros, column, kept_rows)")),
            "");
}

// The same numbers choose rows of a table that has more of them, as token ids do.
TEST(NonZero, RowsOfALongerTableMayFail) {
  const std::string write = "y = ScatterND(buffer, column, kept_rows)\n";
  const std::string buffer = "float[8,4] buffer, ";
  EXPECT_EQ(AssumedBy(Kept(write + "word = Gather(table, places)", buffer + "float[300,4] table")),
            "");
  EXPECT_NE(AssumedBy(Kept(write + "word = Gather(table, places)", buffer + "float[8,4] table")),
            "");
}

}  // namespace
}  // namespace kvlift
