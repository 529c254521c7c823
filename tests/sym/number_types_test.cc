// LIBS: sym onnxio
// Caches that are declared with more bits than their numbers have: NumbersOfCaches and
// Forms::AssumeNumbersOf.
#include "gtest/gtest.h"
#include "support/forms_fixture.h"
#include "sym/forms/keeps_value.h"

namespace kvlift::testing {
namespace {

using onnx::TensorProto;

constexpr char kInputs[] = "(float[B,P,8] past, float[B,S,8] k) => (float[B,T,8] present)";
constexpr char kHalfRows[] =
    "k16 = Cast <to = 10> (k)\n"
    "past16 = Cast <to = 10> (past)\n"
    "all16 = Concat <axis = 1> (past16, k16)\n";

// Returns the type that NumbersOfCaches gives the past; 0 if it gives none.
int32_t TypeFor(const std::string& body) {
  FormsOfText m(ModelText(kInputs, body));
  const Graph& graph = m.forms().graph();
  const ValueId past = graph.Find("past");
  const auto types = sym::NumbersOfCaches(graph, {{past, graph.Find("present")}});
  const auto it = types.find(past);
  return it == types.end() ? 0 : it->second.type;
}

TEST(NumbersOfCaches, APastThatIsOnlyReadRoundedAndAPresentOfRoundedRows) {
  EXPECT_EQ(TypeFor(std::string(kHalfRows) + "present = Cast <to = 1> (all16)"),
            TensorProto::FLOAT16);
  EXPECT_EQ(TypeFor("same = Identity (past)\n"
                    "past16 = Cast <to = 16> (same)\n"
                    "k16 = Cast <to = 16> (k)\n"
                    "all16 = Concat <axis = 1> (past16, k16)\n"
                    "length = Shape (past)\n"
                    "wide = Cast <to = 1> (all16)\n"
                    "present = Identity (wide)"),
            TensorProto::BFLOAT16);
}

TEST(NumbersOfCaches, NoneIfTheNumbersThemselvesAreRead) {
  EXPECT_EQ(TypeFor(std::string(kHalfRows) + "present = Cast <to = 1> (all16)\n"
                                             "sum = Add (past, past)"),
            0);
  EXPECT_EQ(TypeFor("present = Concat <axis = 1> (past, k)"), 0);
}

TEST(NumbersOfCaches, NoneIfThePastIsReadInTwoTypes) {
  EXPECT_EQ(TypeFor(std::string(kHalfRows) + "present = Cast <to = 1> (all16)\n"
                                             "other = Cast <to = 16> (past)"),
            0);
}

TEST(NumbersOfCaches, NoneIfThePresentHasRowsOfTheDeclaredType) {
  EXPECT_EQ(TypeFor("past16 = Cast <to = 10> (past)\n"
                    "wide = Cast <to = 1> (past16)\n"
                    "present = Concat <axis = 1> (wide, k)"),
            0);
}

TEST(NumbersOfCaches, NoneIfTheCastWidens) {
  EXPECT_EQ(TypeFor("past64 = Cast <to = 11> (past)\n"
                    "k64 = Cast <to = 11> (k)\n"
                    "all64 = Concat <axis = 1> (past64, k64)\n"
                    "present = Cast <to = 1> (all64)"),
            0);
}

TEST(NumbersOfCaches, CastsChangeNothingUnderTheAssumption) {
  const std::string body = std::string(kHalfRows) + "present = Cast <to = 1> (all16)";
  FormsOfText plain(ModelText(kInputs, body));
  EXPECT_EQ(plain.Element("present"), "i1 < P ? past16[i0, i1, i2] : k16[i0, -P + i1, i2]");
  FormsOfText assumed(ModelText(kInputs, body));
  sym::Forms& forms = assumed.forms();
  const ValueId past = forms.graph().Find("past");
  forms.AssumeNumbersOf(past, {TensorProto::FLOAT16, std::nullopt});
  EXPECT_EQ(assumed.Element("present"), "i1 < P ? past[i0, i1, i2] : k16[i0, -P + i1, i2]");
  EXPECT_EQ(forms.NumbersOf(past).type, TensorProto::FLOAT16);
  EXPECT_EQ(forms.ElementType(past), TensorProto::FLOAT);
}

}  // namespace
}  // namespace kvlift::testing
