// LIBS: onnxio
// Sinks that gate the result of an attention (onnxio/model/gated_sinks.h): what becomes the score
// of a key, and what is another gate and stays.
#include "onnxio/model/gated_sinks.h"

#include <string>

#include "gtest/gtest.h"
#include "onnxio/model/model.h"

namespace kvlift {
namespace {

// Returns true if the product y of these statements is replaced.
bool IsKeyed(const std::string& statements) {
  const auto model = ParseModelText(
      "<ir_version: 10, opset_import: [\"\" : 18]>\n"
      "g (float[B,4,S,T] scores, float[B,4,S,T] other, float[B,4,T,8] v, float[4,1] sink,"
      " float[4,1,1] sink3, float[8] channels) => (float[B,4,S,8] y)\n"
      "<int64[1] last = {-1}, int64[1] heads = {1}> {\n" +
      statements + "\n}\n");
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return false;
  const auto keyed = KeyGatedSinks(*model);
  EXPECT_TRUE(keyed.ok()) << keyed.status();
  return keyed.ok() && keyed->replaced.size() == 1;
}

constexpr char kResult[] = "p = Softmax <axis = -1> (scores)\nc = MatMul (p, v)\n";

TEST(GatedSinks, AreScoresOfAKey) {
  const std::string result = kResult;
  EXPECT_TRUE(IsKeyed(result +
                      "l = ReduceLogSumExp <keepdims = 0> (scores, last)\nd = Sub (l, sink)\n"
                      "g = Sigmoid (d)\ng4 = Unsqueeze (g, last)\ny = Mul (c, g4)"));
  EXPECT_TRUE(IsKeyed(result + "l = ReduceLogSumExp (scores, last)\nd = Sub (l, sink3)\n"
                               "g = Sigmoid (d)\ny = Mul (g, c)"));
}

// A gate that is rounded, or cut to whole numbers, is another one; so is one that differs between
// the elements of a value.
TEST(GatedSinks, OfOtherNumbersStay) {
  const std::string result = std::string(kResult) + "l = ReduceLogSumExp (scores, last)\n";
  const std::string gate = "d = Sub (l, sink3)\ng = Sigmoid (d)\n";
  for (const char* type : {"7", "9", "10", "17"}) {
    SCOPED_TRACE(type);
    EXPECT_FALSE(IsKeyed(result + gate + "r = Cast <to = " + type +
                         "> (g)\nb = Cast <to = 1> (r)\ny = Mul (c, b)"));
    EXPECT_FALSE(IsKeyed("q = Softmax <axis = -1> (scores)\nr = Cast <to = " + std::string(type) +
                         "> (q)\np = Cast <to = 1> (r)\nc = MatMul (p, v)\n"
                         "l = ReduceLogSumExp (scores, last)\n" +
                         gate + "y = Mul (c, g)"));
  }
  EXPECT_FALSE(IsKeyed(result + "d = Sub (l, channels)\ng = Sigmoid (d)\ny = Mul (c, g)"));
}

TEST(GatedSinks, OfOtherScoresStay) {
  const std::string result = kResult,
                    behind = "d = Sub (l, sink3)\ng = Sigmoid (d)\ny = Mul (g, c)";
  EXPECT_FALSE(IsKeyed(result + "l = ReduceLogSumExp (other, last)\n" + behind));
  EXPECT_FALSE(IsKeyed(result + "l = ReduceLogSumExp (scores, heads)\n" + behind));
  EXPECT_FALSE(
      IsKeyed("p = Softmax <axis = 1> (scores)\nc = MatMul (p, v)\n"
              "l = ReduceLogSumExp (scores, last)\n" +
              behind));
}

TEST(GatedSinks, AreNoOtherGates) {
  const std::string result = std::string(kResult) + "l = ReduceLogSumExp (scores, last)\n";
  EXPECT_FALSE(IsKeyed(result + "d = Sub (sink3, l)\ng = Sigmoid (d)\ny = Mul (g, c)"));
  EXPECT_FALSE(IsKeyed(result + "d = Add (l, sink3)\ng = Sigmoid (d)\ny = Mul (g, c)"));
  EXPECT_FALSE(IsKeyed(result + "d = Sub (l, sink3)\ng = Tanh (d)\ny = Mul (g, c)"));
  EXPECT_FALSE(IsKeyed(result + "d = Sub (l, sink3)\ng = Sigmoid (d)\ny = Add (g, c)"));
}

}  // namespace
}  // namespace kvlift
