// LIBS: sym onnxio
// Pasts that hold numbers of a type with fewer of them than the declared one.
#include <string>

#include "gtest/gtest.h"
#include "support/forms_fixture.h"
#include "sym/forms/keeps_value.h"

namespace kvlift::testing {
namespace {

using onnx::TensorProto;

int32_t TypeOfPast(const std::string& signature, const std::string& nodes) {
  FormsOfText m(ModelText(signature, nodes));
  return sym::NarrowerTypeOfPast(m.graph(), m.Find("past"));
}

constexpr char kGrowing[] =
    "(float[B,N,P,4] past, float16[B,N,S,4] rows) => (float[B,N,T,4] present)";

TEST(NarrowerPast, GrowsInHalf) {
  EXPECT_EQ(TypeOfPast(kGrowing,
                       "half = Cast <to = 10> (past)\n"
                       "length = Shape (past)\n"
                       "all = Concat <axis = 2> (half, rows)\n"
                       "present = Cast <to = 1> (all)"),
            TensorProto::FLOAT16);
}

TEST(NarrowerPast, IsReadAsItIs) {
  EXPECT_EQ(TypeOfPast(kGrowing,
                       "half = Cast <to = 10> (past)\n"
                       "wide = Cast <to = 1> (rows)\n"
                       "present = Concat <axis = 2> (past, wide)"),
            TensorProto::UNDEFINED);
}

TEST(NarrowerPast, TakesRowsOfTheDeclaredType) {
  EXPECT_EQ(TypeOfPast("(float[B,N,P,4] past, float[B,N,S,4] rows) => (float[B,N,T,4] present)",
                       "half = Cast <to = 10> (past)\n"
                       "back = Cast <to = 1> (half)\n"
                       "present = Concat <axis = 2> (back, rows)"),
            TensorProto::UNDEFINED);
}

TEST(NarrowerPast, IsChangedByArithmetic) {
  EXPECT_EQ(TypeOfPast("(float[B,N,P,4] past, float16[1] c) => (float[B,N,P,4] present)",
                       "half = Cast <to = 10> (past)\n"
                       "less = Mul (half, c)\n"
                       "present = Cast <to = 1> (less)"),
            TensorProto::UNDEFINED);
}

TEST(NarrowerPast, IsOfAnotherWidthThanTheResult) {
  EXPECT_EQ(TypeOfPast("(float[B,E,4] past) => (float[B,E,2,2] y)",
                       "half = Cast <to = 10> (past)\n"
                       "shape = Constant <value_ints = [0, 0, 2, 2]> ()\n"
                       "apart = Reshape (half, shape)\n"
                       "y = Cast <to = 1> (apart)"),
            TensorProto::UNDEFINED);
}

TEST(NarrowerPast, CastsToMoreNumbers) {
  EXPECT_EQ(TypeOfPast("(float[B,N,P,4] past, double[B,N,S,4] rows) => (float[B,N,T,4] present)",
                       "wide = Cast <to = 11> (past)\n"
                       "all = Concat <axis = 2> (wide, rows)\n"
                       "present = Cast <to = 1> (all)"),
            TensorProto::UNDEFINED);
}

TEST(NarrowerPast, ElementsAreSeenThroughTheCast) {
  const std::string text = ModelText(kGrowing,
                                     "half = Cast <to = 10> (past)\n"
                                     "all = Concat <axis = 2> (half, rows)\n"
                                     "present = Cast <to = 1> (all)");
  FormsOfText plain(text);
  EXPECT_EQ(plain.Element("present"), "i2 < P ? half[i0, i1, i2, i3] : rows[i0, i1, -P + i2, i3]");
  sym::FormsOptions options;
  options.narrower[plain.Find("past")] = TensorProto::FLOAT16;
  FormsOfText m(text, options);
  EXPECT_EQ(m.Element("present"), "i2 < P ? past[i0, i1, i2, i3] : rows[i0, i1, -P + i2, i3]");
  EXPECT_EQ(m.forms().NumbersOf(m.Find("past")), TensorProto::FLOAT16);
  EXPECT_EQ(m.forms().ElementType(m.Find("past")), TensorProto::FLOAT);
}

}  // namespace
}  // namespace kvlift::testing
