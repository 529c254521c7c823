// LIBS: rewrites onnxio
// Recognition grows with the number of layers, not faster: counted in expressions, not in time.
#include "base/coded.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "onnxio/model/model.h"
#include "rewrite/recognise/analysis.h"

namespace kvlift {
namespace {

// A decoder whose layers grow two caches by Concat, with grouped heads and a causal mask.
std::string Decoder(int layers) {
  std::string inputs = "float[B,S,16] x, int64[B,T] attention_mask", outputs = "float[B,S,16] y";
  std::string body =
      "past_dims = Shape (past_k_0)\n"
      "p = Gather (past_dims, axis_s)\n"
      "dims = Shape (x)\n"
      "s = Gather (dims, one)\n"
      "t = Add (p, s)\n"
      "rows = Range (p, t, one)\n"
      "columns = Range (zero, t, one)\n"
      "rows2 = Unsqueeze (rows, axes_1)\n"
      "sees = LessOrEqual (columns, rows2)\n"
      "flags = Cast <to = 9> (attention_mask)\n"
      "flags4 = Unsqueeze (flags, axes_12)\n"
      "keep = And (sees, flags4)\n"
      "mask = Where (keep, none, low)\n"
      "h_0 = Identity (x)\n";
  for (int n = 0; n < layers; ++n) {
    inputs += fmt::format(", float[B,2,P,4] past_k_{0}, float[B,2,P,4] past_v_{0}", n);
    outputs += fmt::format(", float[B,2,U,4] present_k_{0}, float[B,2,U,4] present_v_{0}", n);
    std::string layer =
        "q# = MatMul (h#, wq)\n"
        "k# = MatMul (h#, wk)\n"
        "v# = MatMul (h#, wk)\n"
        "q4# = Reshape (q#, q_shape)\n"
        "k4# = Reshape (k#, kv_shape)\n"
        "v4# = Reshape (v#, kv_shape)\n"
        "qh# = Transpose <perm = [0, 2, 1, 3]> (q4#)\n"
        "kh# = Transpose <perm = [0, 2, 1, 3]> (k4#)\n"
        "vh# = Transpose <perm = [0, 2, 1, 3]> (v4#)\n"
        "present_k# = Concat <axis = 2> (past_k#, kh#)\n"
        "present_v# = Concat <axis = 2> (past_v#, vh#)\n"
        "k5# = Unsqueeze (present_k#, axes_2)\n"
        "kg# = Expand (k5#, groups)\n"
        "kr# = Reshape (kg#, rep_shape)\n"
        "v5# = Unsqueeze (present_v#, axes_2)\n"
        "vg# = Expand (v5#, groups)\n"
        "vr# = Reshape (vg#, rep_shape)\n"
        "kt# = Transpose <perm = [0, 1, 3, 2]> (kr#)\n"
        "product# = MatMul (qh#, kt#)\n"
        "scores# = Mul (product#, scale)\n"
        "masked# = Add (scores#, mask)\n"
        "probs# = Softmax (masked#)\n"
        "c# = MatMul (probs#, vr#)\n"
        "c4# = Transpose <perm = [0, 2, 1, 3]> (c#)\n"
        "c3# = Reshape (c4#, x_shape)\n";
    const std::string number = fmt::format("_{}", n);
    for (size_t at = layer.find('#'); at != std::string::npos; at = layer.find('#', at)) {
      layer.replace(at, 1, number);
    }
    body += layer + fmt::format("h_{} = Add (h_{}, c3_{})\n", n + 1, n, n);
  }
  body += fmt::format("y = Identity (h_{})\n", layers);
  return fmt::format(
      "<ir_version: 8, opset_import: [\"\" : 18]>\n"
      "decoder ({}) => ({})\n"
      "<float[16,16] wq, float[16,8] wk, int64[4] q_shape = {{0, 0, 4, 4}},\n"
      "int64[4] kv_shape = {{0, 0, 2, 4}}, int64[3] x_shape = {{0, 0, 16}},\n"
      "int64[5] groups = {{1, 1, 2, 1, 1}}, int64[4] rep_shape = {{0, 4, -1, 4}},\n"
      "int64 axis_s = {{2}}, int64 zero = {{0}}, int64 one = {{1}}, int64[1] axes_1 = {{1}},\n"
      "int64[1] axes_2 = {{2}}, int64[2] axes_12 = {{1, 2}}, float scale = {{0.5}},\n"
      "float none = {{0}}, float low = {{-inf}}>\n{{\n{}}}\n",
      inputs, outputs, body);
}

struct Work {
  int64_t steps = 0, nodes = 0;
};

absl::StatusOr<Analysis> AnalyseDecoder(int layers) {
  auto parsed = ParseModelText(Decoder(layers));
  if (!parsed.ok()) return parsed.status();
  for (const char* name : {"wq", "wk"}) {
    auto* weight = parsed->mutable_graph()->add_initializer();
    weight->set_name(name);
    weight->set_data_type(onnx::TensorProto::FLOAT);
    weight->add_dims(16);
    weight->add_dims(name[1] == 'q' ? 16 : 8);
    for (int64_t i = 0; i < weight->dims(0) * weight->dims(1); ++i) {
      weight->add_float_data(static_cast<float>(i % 7));
    }
  }
  Model model;
  model.proto = std::make_shared<onnx::ModelProto>(*std::move(parsed));
  return Analyse(model, AllRules());
}

Work Recognise(int layers) {
  Work work;
  auto analysis = AnalyseDecoder(layers);
  EXPECT_TRUE(analysis.ok()) << analysis.status();
  if (!analysis.ok()) return work;
  EXPECT_EQ(std::ssize(analysis->updates), 2 * layers);
  EXPECT_EQ(std::ssize(analysis->attention), layers);
  for (const AnalysedAttention& attention : analysis->attention) {
    EXPECT_TRUE(attention.site.has_value());
  }
  work.steps = analysis->forms->pool().num_steps();
  work.nodes = analysis->forms->pool().num_nodes();
  return work;
}

TEST(Growth, WorkIsLinearInTheNumberOfLayers) {
  const Work one = Recognise(16), two = Recognise(32), four = Recognise(64);
  ASSERT_GT(one.steps, 0);
  // The second difference: what twice as many layers more cost than twice as much.
  const int64_t first = two.steps - one.steps, second = four.steps - two.steps;
  EXPECT_LT(second, first * 21 / 10) << one.steps << " " << two.steps << " " << four.steps;
  EXPECT_LT(four.nodes - two.nodes, (two.nodes - one.nodes) * 21 / 10);
}

TEST(Growth, StepsBeyondTheLimitAreRefused) {
  const int64_t usual = sym::MaxSteps(), needed = Recognise(2).steps;
  EXPECT_LT(needed, usual / 50);
  sym::SetMaxSteps(needed);
  EXPECT_TRUE(AnalyseDecoder(2).ok());
  sym::SetMaxSteps(needed - 1);
  EXPECT_EQ(CodeOf(AnalyseDecoder(2).status()), "KV027");
  sym::SetMaxSteps(usual);
}

}  // namespace
}  // namespace kvlift
