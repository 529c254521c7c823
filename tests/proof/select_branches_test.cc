// LIBS: onnxio proof
// An If as a choice between two values that are both computed (proof/prove/select_branches.h):
// which Ifs are written so, and which stay, since a branch that is not taken could change what
// runs.
#include "proof/prove/select_branches.h"

#include <string>

#include "gtest/gtest.h"
#include "onnxio/model/model.h"

namespace kvlift {
namespace {

// Returns the operators of the result, in order, for an If whose branches have these statements,
// each of which gives `a` or `b`.
std::string Operators(const std::string& then_branch, const std::string& else_branch,
                      const std::string& condition = "c") {
  const auto model = ParseModelText(
      "<ir_version: 8, opset_import: [\"\" : 17]>\n"
      "g (bool c, bool[1] d, bool[B] each, float[B,S,4] x, float[B,L,4] z, float[4] w, int64[S] n,"
      " float16[B,S,4] h)"
      " => (float[B,S,4] y)\n<float two = {2}, int64[1] ones = {1}, int64[1] zeros = {0}> {\n"
      "  y = If (" +
      condition + ") <then_branch = yes () => (float[B,S,4] a) {" + then_branch +
      "}, else_branch = no () => (float[B,S,4] b) {" + else_branch + "}>\n}\n");
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return "";
  const auto selected = SelectBranches(*model);
  EXPECT_TRUE(selected.ok()) << selected.status();
  if (!selected.ok()) return "";
  std::string operators;
  for (const onnx::NodeProto& node : selected->graph().node()) operators += node.op_type() + " ";
  return operators;
}

constexpr char kPlain[] = "b = Identity (x)";

TEST(Branches, OfEqualExtentsAreBothComputed) {
  EXPECT_EQ(Operators("a = Mul (x, two)", kPlain), "Mul Identity Where ");
  EXPECT_EQ(Operators("m = Mul (x, w)\na = Add (m, two)", kPlain), "Mul Add Identity Where ");
  EXPECT_EQ(Operators("a = Mul (x, two)", kPlain, "d"), "Mul Identity Where ");
}

TEST(Branches, OfOtherExtentsOrTypesStay) {
  EXPECT_EQ(Operators("a = Identity (z)", kPlain), "If ");
  EXPECT_EQ(Operators("a = Identity (h)", kPlain), "If ");
  EXPECT_EQ(Operators("a = Identity (w)", kPlain), "If ");
}

// A Where broadcasts a condition, and an If refuses it.
TEST(Branches, OfAConditionPerSequenceStay) {
  EXPECT_EQ(Operators("a = Mul (x, two)", kPlain, "each"), "If ");
}

// In steps that take the other branch, these operators would not run, or not with these extents.
TEST(Branches, ThatMayRefuseToRunStay) {
  EXPECT_EQ(Operators("a = Add (x, z)", kPlain), "If ");
  EXPECT_EQ(Operators("s = Add (x, z)\nm = ReduceMean <axes = [1], keepdims = 1> (s)\n"
                      "o = Sub (m, m)\na = Add (x, o)",
                      kPlain),
            "If ");
  EXPECT_EQ(Operators("d = Div (ones, n)\nf = Cast <to = 1> (d)\nr = ReduceMax <keepdims = 0> (f)\n"
                      "a = Mul (x, r)",
                      kPlain),
            "If ");
  EXPECT_EQ(
      Operators("r = Gather (w, n)\nm = ReduceMax <keepdims = 0> (r)\na = Mul (x, m)", kPlain),
      "If ");
  EXPECT_EQ(Operators("a = Softmax (x)", kPlain), "If ");
  // There is a third number where S is 3 or more.
  EXPECT_EQ(Operators("third = Constant <value_int = 2> ()\nr = Gather (n, third)\n"
                      "f = Cast <to = 1> (r)\na = Mul (x, f)",
                      kPlain),
            "If ");
}

TEST(Branches, WithBodiesOfTheirOwnStay) {
  EXPECT_EQ(Operators("a = If (c) <then_branch = p () => (float[B,S,4] e) { e = Identity (x) },"
                      " else_branch = q () => (float[B,S,4] f) { f = Identity (x) }>",
                      kPlain),
            "If ");
}

}  // namespace
}  // namespace kvlift
