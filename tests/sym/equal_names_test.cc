// LIBS: sym onnxio
// Names of sizes that operators make equal.
#include "sym/sizes/equal_names.h"

#include "gtest/gtest.h"
#include "support/forms_fixture.h"

namespace kvlift::testing {
namespace {

sym::SizeNames NamesOf(std::string_view signature, std::string_view body, const std::string& of) {
  FormsOfText m(ModelText(std::string(signature), std::string(body)));
  m.Of(of);
  return sym::EqualNamesOf(m.forms());
}

TEST(EqualNames, AreThoseOfOperandsOfConcat) {
  EXPECT_EQ(NamesOf("(float[A,2,P,4] past, float[B,2,1,4] rows) => (float[A,2,Q,4] y)",
                    "y = Concat <axis = 2> (past, rows)", "y"),
            (sym::SizeNames{{"B", "A"}}));
}

TEST(EqualNames, AreThoseOfPlacesAndRowsOfAScatter) {
  EXPECT_EQ(NamesOf("(float[8,4] past, int64[A,1] places, float[B,4] rows) => (float[8,4] y)",
                    "y = ScatterND (past, places, rows)", "y"),
            (sym::SizeNames{{"B", "A"}}));
}

TEST(EqualNames, LeadToTheFirstOfAChain) {
  EXPECT_EQ(NamesOf("(float[A,1] a, float[B,1] b, float[C,1] c) => (float[A,3] y)",
                    "late = Concat <axis = 1> (b, c)\ny = Concat <axis = 1> (a, late)", "y"),
            (sym::SizeNames{{"B", "A"}, {"C", "A"}}));
}

TEST(EqualNames, AreNotThoseOfOperandsThatBroadcast) {
  EXPECT_TRUE(
      NamesOf("(float[A,2] a, float[B,2] b) => (float[N,2] y)", "y = Add (a, b)", "y").empty());
}

TEST(EqualNames, AreThoseOfABroadcastThatAnotherOperatorDemandsAsWell) {
  EXPECT_EQ(NamesOf("(float[A,2] a, float[B,2] b) => (float[N,4] y)",
                    "sum = Add (a, b)\nboth = Concat <axis = 1> (a, b)\n"
                    "y = Concat <axis = 1> (both, sum)",
                    "y"),
            (sym::SizeNames{{"B", "A"}}));
}

TEST(EqualNames, AreNotThoseOfNodesThatNoOutputDependsOn) {
  EXPECT_TRUE(NamesOf("(float[A,2] a, float[B,2] b) => (float[A,2] y)",
                      "dead = Concat <axis = 1> (a, b)\ny = Identity (a)", "dead")
                  .empty());
}

sym::SizeNames RowNamesOf(std::string_view signature, std::string_view body) {
  FormsOfText m(ModelText(std::string(signature), std::string(body)));
  return sym::RowNamesOf(m.forms());
}

// Statements that read rows 0 to n - 1 of the mask as another type, n being the first extent of
// `of`.
std::string RowsOfMask(const std::string& of, int to = onnx::TensorProto::BOOL) {
  return "zero = Constant <value_int = 0> ()\none = Constant <value_int = 1> ()\n"
         "dims = Shape (" +
         of +
         ")\nn = Gather <axis = 0> (dims, zero)\nrows = Range (zero, n, one)\n"
         "own = Gather <axis = 0> (mask, rows)\ny = Cast <to = " +
         std::to_string(to) + "> (own)";
}

TEST(RowNames, AreTheBatchsWhereOneRowIsReadForEachSequence) {
  EXPECT_EQ(RowNamesOf("(float[B,S,4] x, int64[X,24] mask) => (bool[N,24] y)", RowsOfMask("x")),
            (sym::SizeNames{{"X", "B"}}));
}

// TensorFlow gives the batch of each input a name of its own, and selects between rows and a cache.
TEST(RowNames, AreTheBatchsWhereNewRowsMeetACache) {
  const auto names = [](const std::string& inputs, const std::string& rows) {
    FormsOfText m(
        ModelText("(" + inputs + ", float[Y,5,8] past, bool[5,1] here) => (float[N,5,8] y)",
                  rows + "\ny = Where (here, rows, past)"));
    m.Of("y");
    return sym::RowNamesOf(m.forms());
  };
  EXPECT_EQ(names("int64[X,1] ids, float[2,8] x", "rows = Gather <axis = 0> (x, ids)"),
            sym::SizeNames{});
  EXPECT_EQ(names("int64[X,1] ids",
                  "own = Constant <value = float[2,8] {0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5}> ()\n"
                  "rows = Gather <axis = 0> (own, ids)"),
            (sym::SizeNames{{"Y", "X"}}));
  // Positions of one sequence may be those of all, where token ids name the batch.
  EXPECT_EQ(names("int64[X,1] positions, int64[Y,1] ids",
                  "own = Constant <value = float[2,8] {0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5}> ()\n"
                  "of_ids = Gather <axis = 0> (own, ids)\n"
                  "rows = Gather <axis = 0> (own, positions)"),
            sym::SizeNames{});
  // Rows of a real input may be those of one sequence for all.
  EXPECT_EQ(names("float[X,1,8] other", "rows = Neg (other)"), sym::SizeNames{});
}

// Llama's own code reads cache[:batch]; the exporter by torch.export names each batch apart.
TEST(RowNames, AreTheBatchsWhereACacheIsCutToIt) {
  const auto names = [](const std::string& inputs, const std::string& first) {
    FormsOfText m(
        ModelText("(" + inputs + ", float[Y,5,8] past) => (float[N,5,8] y)",
                  "own = Constant <value = float[2,8] {0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5}> ()\n"
                  "rows = Gather <axis = 0> (own, ids)\nzero = Constant <value_ints = [0]> ()\n"
                  "size = Shape <start = 0, end = 1> (" +
                      first + ")\ny = Slice (past, zero, size, zero)"));
    m.Of("y");
    m.Of("rows");
    return sym::RowNamesOf(m.forms());
  };
  EXPECT_EQ(names("int64[X,1] ids", "ids"), (sym::SizeNames{{"Y", "X"}}));
  EXPECT_EQ(names("int64[X,1] ids, float[Z,4] other", "other"), sym::SizeNames{});
  EXPECT_EQ(names("int64[1,X] ids, float[X,4] other", "other"), sym::SizeNames{});
}

// Without tokens, a past that an output keeps has the rows of the step; a table may have others.
TEST(RowNames, AreThoseThatAPastIsCutToWithoutTokens) {
  const auto names = [](const std::string& result) {
    FormsOfText m(ModelText("(float[X,1,8] queries, float[Y,5,8] past) => (float[N,L,8] y)",
                            "zero = Constant <value_ints = [0]> ()\n"
                            "size = Shape <start = 0, end = 1> (queries)\n"
                            "own = Slice (past, zero, size, zero)\n" +
                                result));
    m.Of("y");
    return sym::RowNamesOf(m.forms());
  };
  EXPECT_EQ(names("y = Concat <axis = 1> (own, queries)"), (sym::SizeNames{{"Y", "X"}}));
  EXPECT_EQ(names("y = Add (own, queries)"), sym::SizeNames{});
}

// A mask with a row for each query may have rows for more queries than a step has.
TEST(RowNames, AreNotThoseOfTheTokens) {
  EXPECT_TRUE(RowNamesOf("(float[B,S,4] x, int64[S] places, int64[X,24] mask) => (bool[N,24] y)",
                         RowsOfMask("places"))
                  .empty());
}

// The sum of all tags is another one than that of the tags of as many rows as sequences.
TEST(RowNames, AreNotThoseOfNumbers) {
  EXPECT_TRUE(RowNamesOf("(float[B,S,4] x, int64[X,24] mask) => (float[N,24] y)",
                         RowsOfMask("x", onnx::TensorProto::FLOAT))
                  .empty());
}

// Tokens of several sequences may stand in the rows of a matrix.
TEST(RowNames, AreNotThoseOfTokensInOneRow) {
  EXPECT_TRUE(RowNamesOf("(float[B,2,4] past, float[L,16] q) => (float[B,S,4,4] y)",
                         "n = Shape <start = 0, end = 1> (past)\n"
                         "rest = Constant <value_ints = [-1, 4, 4]> ()\n"
                         "shape = Concat <axis = 0> (n, rest)\n y = Reshape (q, shape)")
                  .empty());
}

// A table may have more rows than there are sequences.
TEST(RowNames, AreNotThoseOfRealNumbers) {
  EXPECT_TRUE(
      RowNamesOf("(float[B,S,4] x, float[X,24] mask) => (bool[N,24] y)", RowsOfMask("x")).empty());
}

TEST(EqualNames, ReplaceNamesAtInputs) {
  FormsOfText m(
      ModelText("(float[A,2] a, float[B,2] b) => (float[A,4] y)", "y = Concat <axis = 1> (a, b)"));
  onnx::ModelProto model = m.forms().graph().model();
  sym::RenameSizes({{"B", "A"}}, model.mutable_graph());
  EXPECT_EQ(model.graph().input(1).type().tensor_type().shape().dim(0).dim_param(), "A");
}

}  // namespace
}  // namespace kvlift::testing
