// LIBS: proof rewrites
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// Operators of the conversion that may refuse to run for a reason that depends on sizes, far beyond
// those that plans try: a number of valid keys, a write, or an operator whose needs are not stated.
#include <string>

#include "support/proof_pair.h"

namespace kvlift {
namespace {

constexpr char kShape[] = "[\"/kvlift/shared/S\"] \"/kvlift/shared/S\" = Shape";

// The conversion with statements that make the tensor `made`, which nothing else reads.
std::string OpenBeside(const std::string& statements) {
  return Unproved(ProofOfPair(
      kCase, {},
      {{kConstants, std::string(kConstants) +
                        " int64[1] at_0 = {0}, int64[1] at_1 = {1}, int64[1] five = {5},"
                        " int64[3] box = {1, 5, 1}, int64[3] row = {1, 1, 1},"},
       {std::string(kShape) + " <start: int = 1, end: int = 2> (q)",
        "n = Shape <start: int = 1, end: int = 2> (q)\nreal = Cast <to: int = 1> (five)\n" +
            statements + "\n" + kShape + " <start: int = 1, end: int = 2> (q)"}}));
}

TEST(Needs, OperatorsWhoseNeedsAreNotStatedAreOpen) {
  EXPECT_EQ(OpenBeside("made = Relu (real)"), "");
  EXPECT_NE(OpenBeside("made = LayerNormalization (real, real)"), "");
  EXPECT_NE(OpenBeside("made = RMSNormalization (real, real)"), "");
  EXPECT_NE(OpenBeside("made = ArgMax (real)"), "");
  EXPECT_NE(OpenBeside("made = PRelu (real, real)"), "");
}

TEST(Needs, ScalesFitWhatTheyScale) {
  const std::string many =
      "many = ConstantOfShape (n)\nreals = Cast <to: int = 1> (many)\n"
      "codes = Cast <to: int = 3> (many)\nfew = Cast <to: int = 3> (five)\n";
  EXPECT_EQ(OpenBeside(many + "made = DequantizeLinear <axis: int = 0> (codes, reals)"), "");
  EXPECT_EQ(OpenBeside(many + "made = DequantizeLinear <axis: int = 0> (few, real)"), "");
  EXPECT_NE(OpenBeside(many + "made = DequantizeLinear <axis: int = 0> (few, reals)"), "");
  EXPECT_NE(OpenBeside(many + "made = QuantizeLinear <axis: int = 0> (real, reals)"), "");
}

TEST(Needs, TheAxisOfACumSumIsInside) {
  EXPECT_EQ(OpenBeside("made = CumSum (real, at_0)"), "");
  EXPECT_NE(OpenBeside("made = CumSum (real, at_1)"), "");
  EXPECT_NE(OpenBeside("last = Sub (n, at_1)\nmade = CumSum (real, last)"), "");
}

// From 1000 tokens on, `few` is 0 and `more` is 2; both are 1 before.
std::string OpenBesideFew(const std::string& statements) {
  return OpenBeside(
      "limit = Constant <value = int64[1] {1000}> ()\ntwo = Constant <value = int64[1] {2}> ()\n"
      "minus = Constant <value = int64[1] {-1}> ()\nless = Less (n, limit)\n"
      "few = Where (less, at_1, at_0)\nmore = Where (less, at_1, two)\n"
      "few_dims = Concat <axis = 0> (few, five)\nz = ConstantOfShape (few_dims)\n"
      "real_dims = Concat <axis = 0> (n, five)\nx = ConstantOfShape (real_dims)\n" +
      statements);
}

TEST(Needs, AnOpenExtentStandsBesideNoneOfZero) {
  const std::string shape = "shape = Concat <axis = 0> (at_0, minus)\n";
  EXPECT_EQ(OpenBesideFew(shape + "made = Reshape (x, shape)"), "");
  EXPECT_NE(OpenBesideFew(shape + "made = Reshape (z, shape)"), "");
}

TEST(Needs, PaddingFindsElements) {
  const auto padded = [](const std::string& x, const std::string& mode, const std::string& pads) {
    return OpenBesideFew("pads = Constant <value = int64[4] {" + pads +
                         "}> ()\nmade = Pad <mode = \"" + mode + "\"> (" + x + ", pads)");
  };
  for (const char* mode : {"edge", "wrap"}) {
    EXPECT_EQ(padded("x", mode, "1,0,2,0"), "") << mode;
    EXPECT_NE(padded("z", mode, "1,0,2,0"), "") << mode;
  }
  EXPECT_EQ(padded("z", "constant", "1,0,2,0"), "");
  EXPECT_EQ(padded("x", "reflect", "0,4,0,4"), "");
  EXPECT_NE(padded("x", "reflect", "0,5,0,0"), "");
  EXPECT_NE(padded("x", "reflect", "1,0,0,0"), "");
}

TEST(Needs, TheSummandOfAGemmIsBroadcast) {
  const std::string product = "box2 = Concat <axis = 0> (five, five)\nw = ConstantOfShape (box2)\n";
  const auto summed = [&](const std::string& rows) {
    return OpenBesideFew(product + "c_dims = Concat <axis = 0> (" + rows +
                         ", five)\nc = ConstantOfShape (c_dims)\nmade = Gemm (x, w, c)");
  };
  EXPECT_EQ(summed("at_1"), "");
  EXPECT_EQ(summed("n"), "");
  EXPECT_NE(summed("more"), "");
}

TEST(Needs, BoundsOfAClipAreScalars) {
  EXPECT_EQ(OpenBesideFew("low = Constant <value = float {0}> ()\nmade = Clip (x, low)"), "");
  EXPECT_NE(OpenBesideFew("low = ConstantOfShape (more)\nmade = Clip (x, low)"), "");
}

TEST(Needs, WritesBesideCachesLieInside) {
  const std::string buffers = "slots = ConstantOfShape (box)\nrows = ConstantOfShape (row)\n";
  EXPECT_EQ(OpenBeside(buffers + "made = TensorScatter (slots, rows, at_0)"), "");
  EXPECT_NE(OpenBeside(buffers + "made = TensorScatter (slots, rows, n)"), "");
}

// A limit of the conversion's own is no assumption about the host: with a write index in half
// precision, rows go astray from 2049 tokens on.
TEST(Needs, IntegersAreSmallBecauseTheSourceNeedsThemSo) {
  const std::string write = "(past_k, k_new, write_indices)";
  const std::string rounds =
      "half = Cast <to: int = 10> (write_indices)\nrounded = Cast <to: int = 7> (half)\n";
  const std::string scatter = "[\"/kvlift/layers.0/key/TensorScatter\"] present_k";
  const Proof written =
      ProofOfPair(kCase, {}, {{write, "(past_k, k_new, rounded)"}, {scatter, rounds + scatter}});
  EXPECT_NE(Unproved(written).find("in half precision"), std::string::npos) << Unproved(written);
  const std::string of_source = "half = Cast <to = 10> (attention_mask)\n";
  const std::string of_result = "half = Cast <to: int = 10> (attention_mask)\n";
  const TextChanges mine = {{scatter, of_result + scatter}};
  EXPECT_EQ(Unproved(ProofOfPair(kCase, {{kLastOfSource, of_source + kLastOfSource}}, mine)), "");
  EXPECT_NE(Unproved(ProofOfPair(kCase, {}, mine)), "");
}

TEST(Needs, AnAttentionHasBothPastsOrNone) {
  const std::string none = "\"\", \"\", \"/kvlift/shared/nonpad_kv_seqlen\")";
  const std::string values = "\"\", write_indices, \"/kvlift/shared/nonpad_kv_seqlen\")";
  EXPECT_NE(Unproved(ProofOfPair(kCase, {}, {{none, values}})), "");
}

// The explicit mask hides all that a larger number of valid keys would add.
TEST(Needs, NoMoreKeysAreValidThanThereAre) {
  const auto c = LoadCase(KVLIFT_TESTDATA_DIR "/rewrites/decomposed_attention_read_full.onnxtxt");
  ASSERT_TRUE(c.ok()) << c.status();
  ConvertOptions options = c->options;
  options.mask = MaskForm::kExplicit;
  const auto source = ParseModelText(c->before);
  ASSERT_TRUE(source.ok());
  const auto conversion = Convert(AsModel(*source), options, AllRules());
  ASSERT_TRUE(conversion.ok() && conversion->model) << conversion.status();
  const auto with = [&](int64_t more) {
    onnx::ModelProto edited = *conversion->model;
    onnx::GraphProto* graph = edited.mutable_graph();
    for (const auto& [name, value] : {std::pair<std::string, int64_t>("many", 5000),
                                      std::pair<std::string, int64_t>("m", more)}) {
      onnx::TensorProto* number = graph->add_initializer();
      number->set_name(name);
      number->set_data_type(onnx::TensorProto::INT64);
      number->add_int64_data(value);
    }
    onnx::GraphProto ordered = *graph;
    ordered.clear_node();
    for (onnx::NodeProto node : graph->node()) {
      if (node.op_type() == "Attention") {
        const auto add = [&](const char* op, std::vector<std::string> inputs, const char* output) {
          onnx::NodeProto* made = ordered.add_node();
          made->set_op_type(op);
          for (std::string& input : inputs) made->add_input(std::move(input));
          made->add_output(output);
        };
        add("Greater", {"write_indices", "many"}, "is_far");
        add("Add", {node.input(6), "m"}, "larger");
        add("Where", {"is_far", "larger", node.input(6)}, "valid");
        node.set_input(6, "valid");
      }
      *ordered.add_node() = node;
    }
    *graph = ordered;
    return Unproved(ProveConversion(*source, edited, conversion->manifest));
  };
  EXPECT_EQ(with(0), "");
  EXPECT_NE(with(100), "");
}

}  // namespace
}  // namespace kvlift
