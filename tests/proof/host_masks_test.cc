// LIBS: proof rewrites
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// Conversions of models that take a mask from the host: as the length of their caches, or added to
// the scores of a fused attention.
#include <string>

#include "fmt/format.h"
#include "ir/tensor_data.h"
#include "proof/prove/prove_conversion.h"
#include "support/proof_pair.h"

namespace kvlift {
namespace {

// The conversion has its length from a mask's width.
class GivenByAMask : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    source_ = LoadTestModel(GetParam());
    ConvertOptions options;
    options.target = Target::kGenai;
    auto conversion = Convert(source_, options, AllRules());
    ASSERT_TRUE(conversion.ok() && conversion->model) << conversion.status();
    relation_ = conversion->manifest;
    after_ = *std::move(conversion->model);
  }

  Proof Prove() const { return ProveConversion(*source_.proto, after_, relation_); }

  onnx::NodeProto* Producer(std::string_view ending) {
    for (onnx::NodeProto& node : *after_.mutable_graph()->mutable_node()) {
      if (node.output_size() > 0 && node.output(0).ends_with(ending)) return &node;
    }
    return nullptr;
  }

  Model source_;
  Manifest relation_;
  onnx::ModelProto after_;
};

TEST_P(GivenByAMask, IsProvedGivenThatWidth) {
  const Proof proof = Prove();
  EXPECT_EQ(Unproved(proof), "");
  EXPECT_TRUE(proof.assumptions.Has(AssumptionKind::kMaskWidth, "attention_mask"));
}

TEST_P(GivenByAMask, OneMoreOrLessIsAnotherPlace) {
  onnx::NodeProto* past = Producer("/past_length");
  ASSERT_NE(past, nullptr);
  onnx::TensorProto* one = after_.mutable_graph()->add_initializer();
  *one = MakeInt64Tensor("one more", {1}, {1});
  const std::string result = past->output(0);
  past->set_output(0, "less one");
  onnx::NodeProto more;
  more.set_op_type("Add");
  more.add_input("less one");
  more.add_input("one more");
  more.add_output(result);
  auto* nodes = after_.mutable_graph()->mutable_node();
  *nodes->Add() = more;
  for (int k = nodes->size() - 1; (*nodes)[k - 1].output(0) != "less one"; --k) {
    nodes->SwapElements(k, k - 1);
  }
  EXPECT_NE(Unproved(Prove()), "");
}

// As many past tokens as there are new ones.
TEST_P(GivenByAMask, AnotherInputIsNotItsWidth) {
  onnx::NodeProto* past = Producer("/past_length");
  onnx::NodeProto* total = Producer("/total_length");
  ASSERT_TRUE(past != nullptr && total != nullptr);
  past->set_input(0, past->input(1));
  EXPECT_NE(Unproved(Prove()), "");
}

INSTANTIATE_TEST_SUITE_P(Models, GivenByAMask,
                         testing::Values("llama_attention_opset23", "llama_dynamic_dynamo",
                                         "llama_dynamic_mask_scatter_ts", "llama_dynamic_ts",
                                         "llama_dynamo_native_cache"),
                         [](const auto& model) { return std::string(model.param); });

// Converts a model that is given as text, and proves the result against it with these changes.
std::string UnprovedConversion(const std::string& text, const TextChanges& changes = {}) {
  const auto source = ParseModelText(text), changed = ParseModelText(Changed(text, changes));
  EXPECT_TRUE(source.ok() && changed.ok()) << source.status() << changed.status();
  if (!source.ok() || !changed.ok()) return "no model";
  const auto conversion = Convert(AsModel(*source), {}, AllRules());
  EXPECT_TRUE(conversion.ok() && conversion->model) << conversion.status();
  if (!conversion.ok() || !conversion->model) return "no conversion";
  return Unproved(ProveConversion(*changed, *conversion->model, conversion->manifest));
}

// Queries of 4 heads with the past of `groups` key/value heads, and these inputs and nodes.
std::string WithPast(int groups, const std::string& inputs, const std::string& nodes) {
  return fmt::format(
      "<ir_version: 10, opset_import: [\"\" : 23, \"com.microsoft\" : 1]>\n"
      "decoder (float[B,S,16] q, float[B,S,{0}] k, float[B,S,{0}] v, float[B,{1},P,4] past_k,\n"
      "         float[B,{1},P,4] past_v, {2}) =>\n"
      "        (float[B,S,16] y, float[B,{1},T,4] present_k, float[B,{1},T,4] present_v)\n"
      "<int64[1] axis_1 = {{1}}, int64 at_1 = {{1}}>\n{{\n{3}\n}}",
      4 * groups, groups, inputs, nodes);
}

TEST(HostMasks, OfAttentionHaveAColumnForEachKey) {
  for (const char* mask : {"float[S,T]", "float[1,T]", "float[B,4,S,T]", "float[1,1,S,T]"}) {
    for (const char* causal : {"", ", is_causal = 1"}) {
      EXPECT_EQ(UnprovedConversion(
                    WithPast(2, std::string(mask) + " m",
                             std::string("y, present_k, present_v = Attention<q_num_heads = 4, "
                                         "kv_num_heads = 2") +
                                 causal + ">(q, k, v, m, past_k, past_v)")),
                "")
          << mask << causal;
    }
  }
}

TEST(HostMasks, OfMultiHeadAttentionAreAddedToScores) {
  const auto with = [](const std::string& inputs, const std::string& operands,
                       const TextChanges& changes = {}) {
    return UnprovedConversion(
        WithPast(4, inputs,
                 "y, present_k, present_v = com.microsoft.MultiHeadAttention<num_heads = 4, "
                 "unidirectional = 1, mask_filter_value = -20000.0>(q, k, v, , " +
                     operands + ", past_k, past_v)"),
        changes);
  };
  const std::string bias = "float[B,4,S,T] ab", one = "float[1,1,S,T] ab", pads = "int32[B,T] pads";
  EXPECT_EQ(with(bias, ", ab"), "");
  EXPECT_EQ(with(one, ", ab"), "");
  EXPECT_EQ(with(pads, "pads, "), "");
  EXPECT_EQ(with(bias + ", " + pads, "pads, ab"), "");
  EXPECT_NE(with(pads, "pads, ", {{"-20000.0", "-1.0"}}), "");
  EXPECT_NE(with(pads, "pads, ", {{"unidirectional = 1", "unidirectional = 0"}}), "");
  EXPECT_NE(with(pads, "pads, ", {{"v, , pads", "v, , "}}), "");
}

TEST(HostMasks, OfGroupQueryAttentionAreAddedToScores) {
  const auto with = [](const std::string& bias, const TextChanges& changes = {}) {
    return UnprovedConversion(
        WithPast(2, "int64[B,T] mask, " + bias + " ab",
                 "counted = ReduceSum<keepdims = 0>(mask, axis_1) less = Sub(counted, axis_1)\n"
                 "last = Cast<to = 6>(less) dims = Shape(mask) width = Gather(dims, at_1)\n"
                 "total = Cast<to = 6>(width)\n"
                 "y, present_k, present_v = com.microsoft.GroupQueryAttention<num_heads = 4, "
                 "kv_num_heads = 2>(q, k, v, past_k, past_v, last, total, , , , ab)"),
        changes);
  };
  EXPECT_EQ(with("float[B,1,S,T]"), "");
  EXPECT_EQ(with("float[1,4,S,T]"), "");
  EXPECT_NE(with("float[B,1,S,T]", {{", , , , ab)", ")"}}), "");
}

}  // namespace
}  // namespace kvlift
