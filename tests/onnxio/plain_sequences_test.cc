// LIBS: onnxio
// Sequences whose tensors are known.
#include "onnxio/model/plain_sequences.h"

#include <string>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "onnxio/model/model.h"

namespace kvlift {
namespace {

// Returns the nodes of the model's main graph without its sequences, each as text.
std::string Plain(const std::string& body, const std::string& signature = "(float[A] y)") {
  auto model = ParseModelText(
      fmt::format("<ir_version: 10, opset_import: [\"\" : 21]>\n"
                  "g (float[A] a, float[B] b, float[C] c, int64 where, bool flag) => {}\n"
                  "<int64 zero = {{0}}, int64 one = {{1}}, int64 last = {{-1}}> {{\n{}\n}}",
                  signature, body));
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  WithoutSequences(&*model);
  std::string text;
  for (const auto& node : model->graph().node()) {
    text += node.op_type() + "(";
    for (int k = 0; k < node.input_size(); ++k) text += (k > 0 ? ", " : "") + node.input(k);
    text += ") " + node.output(0) + ";";
    for (const auto& attribute : node.attribute()) {
      for (const auto& inner : attribute.g().node()) text += " " + inner.op_type();
    }
  }
  return text;
}

TEST(PlainSequences, TensorsThatAreTakenOut) {
  EXPECT_EQ(Plain("s = SequenceConstruct (a, b, c)\ny = SequenceAt (s, one)"), "Identity(b) y;");
  EXPECT_EQ(Plain("s = SequenceConstruct (a, b, c)\ny = SequenceAt (s, last)"), "Identity(c) y;");
  EXPECT_EQ(Plain("s = SequenceConstruct (a, b)\ny = ConcatFromSequence <axis = 0> (s)"),
            "Concat(a, b) y;");
  EXPECT_EQ(
      Plain("s = SequenceConstruct (a, a)\ny = ConcatFromSequence <axis = 0, new_axis = 1> (s)"),
      "Unsqueeze(a, y/axes) y/apart/0;Unsqueeze(a, y/axes') y/apart/1;"
      "Concat(y/apart/0, y/apart/1) y;");
  EXPECT_EQ(Plain("s = SequenceConstruct (a, b, c)\ny = SequenceLength (s)"), "Constant() y;");
}

TEST(PlainSequences, SequencesThatChange) {
  EXPECT_EQ(
      Plain("e = SequenceEmpty ()\ns = SequenceInsert (e, a)\nt = SequenceInsert (s, b, zero)\n"
            "y = ConcatFromSequence <axis = 0> (t)"),
      "Concat(b, a) y;");
  EXPECT_EQ(Plain("s = SequenceConstruct (a, b, c)\nt = SequenceErase (s, zero)\n"
                  "y = ConcatFromSequence <axis = 0> (t)"),
            "Concat(b, c) y;");
  EXPECT_EQ(Plain("s = SequenceConstruct (a, b, c)\nt = SequenceErase (s)\n"
                  "y = ConcatFromSequence <axis = 0> (t)"),
            "Concat(a, b) y;");
}

TEST(PlainSequences, BodiesReadTheTensors) {
  EXPECT_EQ(Plain("s = SequenceConstruct (a, b)\n"
                  "y = If (flag) <then_branch = t () => (float[D] u) {\n"
                  "  u = ConcatFromSequence <axis = 0> (s)\n"
                  "}, else_branch = e () => (float[E] v) { v = SequenceAt (s, zero) }>"),
            "If(flag) y; Concat Identity");
}

TEST(PlainSequences, AMapIsItsBodyForEachTensor) {
  EXPECT_EQ(Plain("s = SequenceConstruct (a, b)\n"
                  "m = SequenceMap (s) <body = each (float[D] x) => (float[D] z) {\n"
                  "  w = Neg (x)\n"
                  "  z = Add (w, c)\n"
                  "}>\n"
                  "y = ConcatFromSequence <axis = 0> (m)"),
            "Neg(a) m/0/w;Add(m/0/w, c) m/0/z;Neg(b) m/1/w;Add(m/1/w, c) m/1/z;"
            "Concat(m/0/z, m/1/z) y;");
}

TEST(PlainSequences, WhatIsNotKnownStays) {
  EXPECT_EQ(Plain("s = SequenceConstruct (a, b)\ny = SequenceAt (s, where)"),
            "SequenceConstruct(a, b) s;SequenceAt(s, where) y;");
  EXPECT_EQ(Plain("two = Constant <value_int = 2> ()\ns = SequenceConstruct (a, b)\n"
                  "y = SequenceAt (s, two)"),
            "Constant() two;SequenceConstruct(a, b) s;SequenceAt(s, two) y;");
  EXPECT_EQ(Plain("s = SplitToSequence <axis = 0> (a, one)\ny = SequenceAt (s, zero)"),
            "SplitToSequence(a, one) s;SequenceAt(s, zero) y;");
  EXPECT_EQ(Plain("s = SequenceConstruct (a, b)", "(seq(float[A]) s)"),
            "SequenceConstruct(a, b) s;");
}

}  // namespace
}  // namespace kvlift
