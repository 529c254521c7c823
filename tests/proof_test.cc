// LIBS: proof rewrites verify
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// Conversions of real decoders are proved for all shapes, and no wrong variant of them is.
#include <algorithm>
#include <set>
#include <string>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "ir/graph.h"
#include "proof/prove/prove_conversion.h"
#include "rewrite/convert/convert.h"
#include "support/case_file.h"
#include "support/models.h"
#include "support/proof_mutants.h"

namespace kvlift {
namespace {

class ProvedModel : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    source_ = LoadTestModel(GetParam());
    auto conversion = Convert(source_, {}, AllRules());
    ASSERT_TRUE(conversion.ok() && conversion->model) << conversion.status();
    relation_ = conversion->manifest;
    after_ = std::make_shared<const onnx::ModelProto>(*std::move(conversion->model));
  }

  Proof Prove(const onnx::ModelProto& after) const {
    return ProveConversion(*source_.proto, after, relation_);
  }

  Model source_;
  Manifest relation_;
  std::shared_ptr<const onnx::ModelProto> after_;
};

TEST_P(ProvedModel, IsProvedForAllShapes) {
  const Proof proof = Prove(*after_);
  EXPECT_EQ(Unproved(proof), "");
  std::set<std::string> about;
  for (const ProofFact& fact : proof.facts) about.insert(fact.about);
  for (const ManifestCache& cache : relation_.caches) EXPECT_TRUE(about.contains(cache.id));
  EXPECT_TRUE(about.contains("logits"));
}

TEST_P(ProvedModel, NoMutantIsProved) {
  MutantLimits limits;
  const auto steps = ModelMeta(GetParam())["steps"].get<std::vector<int>>();
  limits.many_tokens = *std::max_element(steps.begin(), steps.end()) > 1;
  EXPECT_GE(ExpectNoMutantProved(*source_.proto, after_, relation_, LimitsOf(relation_, limits)),
            20);
}

INSTANTIATE_TEST_SUITE_P(
    Models, ProvedModel,
    testing::Values("gpt_oss_optimum", "neg_past_read_twice_ts", "llama_optimum", "gpt2_optimum",
                    "qwen2_optimum", "gemma2_optimum", "llama_dynamic_dynamo",
                    "llama_attention_opset23", "toy_scatter_ts",
                    "whisper_decoder_with_past_optimum", "toy_transposed_key_ts", "llama_genai_gqa",
                    "bloom_optimum", "llama_optimum_merged", "llama_optimum_legacy",
                    "llama_dynamic_ts", "toy_onehot_where_ts", "toy_splice_ts", "llama_static_ts"),
    [](const auto& model) { return std::string(model.param); });

// Where the length is a mask's width, and where all slots are read because the source's fit.
class ProvedOtherwise : public testing::TestWithParam<std::pair<const char*, ConvertOptions>> {};

TEST_P(ProvedOtherwise, IsProvedAndItsMutantsAreNot) {
  const auto& [name, options] = GetParam();
  const Model source = LoadTestModel(name);
  auto conversion = Convert(source, options, AllRules());
  ASSERT_TRUE(conversion.ok() && conversion->model) << conversion.status();
  const auto after = std::make_shared<const onnx::ModelProto>(*std::move(conversion->model));
  EXPECT_EQ(Unproved(ProveConversion(*source.proto, *after, conversion->manifest)), "");
  ExpectNoMutantProved(*source.proto, after, conversion->manifest, LimitsOf(conversion->manifest));
}

ConvertOptions ForGenai() {
  ConvertOptions options;
  options.target = Target::kGenai;
  return options;
}

ConvertOptions ReadWhole() {
  ConvertOptions options;
  options.read = ReadForm::kFull;
  return options;
}

INSTANTIATE_TEST_SUITE_P(Models, ProvedOtherwise,
                         testing::Values(std::pair("llama_dynamic_dynamo", ForGenai()),
                                         std::pair("toy_llama_ref_ts", ReadWhole())),
                         [](const auto& model) { return std::string(model.param.first); });

// Cases of rewrites, by what is proved of them.
class ProvedCase : public testing::TestWithParam<const char*> {};

TEST_P(ProvedCase, IsProvedAndItsMutantsAreNot) {
  const auto c = LoadCase(fmt::format("{}/rewrites/{}.onnxtxt", KVLIFT_TESTDATA_DIR, GetParam()));
  ASSERT_TRUE(c.ok()) << c.status();
  const auto before = ParseModelText(c->before);
  ASSERT_TRUE(before.ok()) << before.status();
  const Model source = AsModel(*before);
  auto conversion = Convert(source, c->options, AllRules());
  ASSERT_TRUE(conversion.ok() && conversion->model) << conversion.status();
  const auto after = std::make_shared<const onnx::ModelProto>(*std::move(conversion->model));
  EXPECT_EQ(Unproved(ProveConversion(*source.proto, *after, conversion->manifest)), "");
  ExpectNoMutantProved(*source.proto, after, conversion->manifest, LimitsOf(conversion->manifest));
}

// A flag of both models says whether there is a past. What an encoder gave is not computed again
// then: both models give placeholders.
TEST(ProvedBranches, BothModelsTakeWhatTheFlagSays) {
  const auto c = LoadCase(KVLIFT_TESTDATA_DIR "/rewrites/growing_concat_merged_cross.onnxtxt");
  ASSERT_TRUE(c.ok()) << c.status();
  const auto before = ParseModelText(c->before);
  ASSERT_TRUE(before.ok()) << before.status();
  auto conversion = Convert(AsModel(*before), c->options, AllRules());
  ASSERT_TRUE(conversion.ok() && conversion->model) << conversion.status();
  const Proof proof = ProveConversion(*before, *conversion->model, conversion->manifest);
  EXPECT_EQ(proof.not_tried, "");
  EXPECT_GE(proof.facts.size(), 26);
  for (const ProofFact& fact : proof.facts) {
    const bool with_past = fact.text.find("with a past, use_past = 1") != std::string::npos;
    EXPECT_TRUE(with_past || fact.text.find("without a past, use_past = 0") != std::string::npos);
    EXPECT_TRUE(fact.holds()) << fact.about << ": " << fact.text << ": " << fact.why_not;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ProvedCase,
    testing::Values(
        "attention_op_group_query", "attention_op_group_query_total_counted",
        "attention_op_group_query_rotary_packed", "attention_op_group_query_int4",
        "attention_op_group_query_int8", "growing_concat_dequantized",
        "growing_concat_half_inside_free", "growing_concat_keep_half_inside",
        "growing_concat_dequantized_by_channel", "growing_concat_dequantized_uint8",
        "growing_concat_dequantized_by_block", "attention_op_multi_head_causal",
        "attention_op_multi_head_projection_bias", "decomposed_attention_control_derived",
        "decomposed_attention_genai", "decomposed_attention_opset11",
        "decomposed_attention_opset12", "decomposed_attention_einsum",
        "decomposed_attention_padding_none", "decomposed_attention_padding_none_derived",
        "decomposed_attention_padding_none_inverted", "decomposed_attention_positions_learned",
        "growing_concat_beams", "decomposed_attention_ort", "growing_concat_merged_by_length",
        "growing_concat_merged_decoder", "growing_concat_merged_one_token",
        "growing_concat_merged_one_token_padding", "growing_concat_merged_swapped",
        "decomposed_attention_heads_folded", "decomposed_attention_heads_folded_queries",
        "growing_concat_lengths_by_input", "fixed_buffer_sequences_by_input",
        "growing_concat_heads_folded", "attention_op_keep_keys_computed",
        "attention_op_own_valid_length", "attention_op_keep_weights",
        "decomposed_attention_bias_folded", "decomposed_attention_repeat_by_concat",
        "fixed_buffer_larger_batch", "decomposed_attention_keep_heads_interleaved",
        "decomposed_attention_keep_keys_computed", "decomposed_attention_heads_by_group",
        "decomposed_attention_keep_scores_computed",
        "decomposed_attention_keep_softmax_written_out", "decomposed_attention_keep_values_scaled",
        "decomposed_attention_mask_computed", "decomposed_attention_mask_input",
        "decomposed_attention_mask_input_and_causal", "decomposed_attention_mask_of_keys",
        "decomposed_attention_present_read_elsewhere", "decomposed_attention_weights_are_an_output",
        "growing_concat_bnds_to_bnsd", "growing_concat_bsnd_to_bnsd", "growing_concat_io_names",
        "growing_concat_rotary_fused", "growing_concat_tensorrt", "ring_buffer_scatter",
        "attention_op_bias", "attention_op_float_mask", "attention_op_mask", "attention_op_opset24",
        "attention_op_own_groups", "attention_op_padding", "attention_op_past_causal",
        "attention_op_past_flat", "attention_op_past_mask_input", "attention_op_scale_softcap",
        "attention_op_top_left", "decomposed_attention_bias", "decomposed_attention_dropout",
        "decomposed_attention_finite_minimum", "decomposed_attention_fused_matmul",
        "decomposed_attention_gqa", "decomposed_attention_half_minimum",
        "decomposed_attention_input_as_long_as_past", "decomposed_attention_mask_added_first",
        "decomposed_attention_mask_before_scale", "decomposed_attention_mask_causal",
        "decomposed_attention_mask_computed_with", "decomposed_attention_mask_explicit",
        "decomposed_attention_mask_multiplied", "decomposed_attention_mask_selected",
        "decomposed_attention_mask_selected_inverted", "decomposed_attention_mask_table",
        "decomposed_attention_mask_trilu", "decomposed_attention_masks_one_after_another",
        "decomposed_attention_mha", "decomposed_attention_mqa",
        "decomposed_attention_mask_behind_softmax", "decomposed_attention_nan_guard",
        "decomposed_attention_opset13", "decomposed_attention_opset14",
        "decomposed_attention_opset18", "decomposed_attention_opset20",
        "decomposed_attention_opset21", "decomposed_attention_opset22",
        "decomposed_attention_opset23", "decomposed_attention_opset24",
        "decomposed_attention_padding", "decomposed_attention_padding_finite_minimum",
        "decomposed_attention_past_read_elsewhere", "decomposed_attention_positions_per_sequence",
        "decomposed_attention_positions_uniform", "decomposed_attention_read_full",
        "decomposed_attention_repeat_by_expand_shape", "decomposed_attention_repeat_by_gather",
        "decomposed_attention_repeat_by_tile", "decomposed_attention_scale_after_commuted",
        "decomposed_attention_scale_before", "decomposed_attention_scale_before_heads",
        "decomposed_attention_scale_both", "decomposed_attention_scale_custom",
        "decomposed_attention_scale_div", "decomposed_attention_scale_from_shape",
        "decomposed_attention_scale_key", "decomposed_attention_softmax_written_out",
        "decomposed_attention_scale_none", "decomposed_attention_sliding",
        "decomposed_attention_sliding_padding", "decomposed_attention_sliding_read_full",
        "decomposed_attention_sliding_ring", "decomposed_attention_sliding_ring_padding",
        "decomposed_attention_small_minimum", "decomposed_attention_softcap",
        "decomposed_attention_softmax_casts", "decomposed_attention_static_capacity",
        "decomposed_attention_static_read_full", "decomposed_attention_two_masks_added",
        "decomposed_attention_window_input", "decomposed_attention_einsum_tokens_first",
        "decomposed_attention_einsum_by_group", "decomposed_attention_bias_last_rows_of_table",
        "decomposed_attention_bias_of_mask_of_other_batch",
        "decomposed_attention_mask_of_another_batch", "fixed_buffer_flat_rows",
        "fixed_buffer_one_hot_product", "fixed_buffer_one_hot_product_by_gemm",
        "fixed_buffer_packed_heads_first", "fixed_buffer_packed_kept", "fixed_buffer_packed_layers",
        "fixed_buffer_prefix_read", "fixed_buffer_scatter_free_slots",
        "fixed_buffer_mask_row_for_each_sequence", "decomposed_attention_padding_raised_to_lowest",
        "decomposed_attention_result_time_major", "growing_concat_attention_has_its_own_concat",
        "growing_concat_bnds", "growing_concat_bsnd", "growing_concat_bsnd_plain",
        "growing_concat_convolution_state", "growing_concat_identity_behind",
        "growing_concat_negative_axis", "growing_concat_new_rows_are_inputs",
        "growing_concat_packed_last_axis", "growing_concat_rank3", "growing_concat_sequence_first",
        "growing_concat_stacked_at_the_end", "growing_concat_stacked_fixed_batch",
        "growing_concat_two_layers", "growing_concat_two_layers_share", "growing_window_and_full",
        "growing_window_last_rows", "growing_window_ring", "growing_window_ring_and_full",
        "shifting_buffer_bias", "shifting_buffer_mask", "shifting_buffer_mask_counts_back"),
    [](const auto& name) { return std::string(name.param); });

// Caches and attentions whose heads are joined with their elements: no fact is told of them.
TEST(Proof, JoinedHeadsOfCachesAreNotProved) {
  const auto c = LoadCase(KVLIFT_TESTDATA_DIR "/rewrites/growing_concat_genai_static.onnxtxt");
  ASSERT_TRUE(c.ok()) << c.status();
  const auto before = ParseModelText(c->before);
  ASSERT_TRUE(before.ok()) << before.status();
  const auto conversion = Convert(AsModel(*before), c->options, AllRules());
  ASSERT_TRUE(conversion.ok() && conversion->model) << conversion.status();
  const Proof proof = ProveConversion(*before, *conversion->model, conversion->manifest);
  EXPECT_NE(Unproved(proof), "");
  for (const ProofFact& fact : proof.facts) {
    // The sequences of a batch have nothing to do with joined heads.
    if (fact.text.find("gives each sequence") != std::string::npos) continue;
    EXPECT_FALSE(fact.holds() && (fact.about == "0.key" || fact.about == "y")) << fact.text;
  }
}

// With one sequence, or one token, some mutants are the same model, and are proved to be.
TEST(Proof, OneSequenceAndOneToken) {
  for (const char* name :
       {"attention_op_batch_of_one", "decomposed_attention_batch_of_one",
        "decomposed_attention_one_token", "fixed_buffer_one_hot", "growing_concat_merged_caches"}) {
    const auto c = LoadCase(fmt::format("{}/rewrites/{}.onnxtxt", KVLIFT_TESTDATA_DIR, name));
    ASSERT_TRUE(c.ok()) << c.status();
    const auto before = ParseModelText(c->before);
    ASSERT_TRUE(before.ok()) << before.status();
    const auto conversion = Convert(AsModel(*before), c->options, AllRules());
    ASSERT_TRUE(conversion.ok() && conversion->model);
    EXPECT_EQ(Unproved(ProveConversion(*before, *conversion->model, conversion->manifest)), "")
        << name;
  }
}

// Which branch a step takes has to follow from its past.
TEST(Proof, BranchesWhoseConditionIsNotSeenAreNotTried) {
  const Model source = LoadTestModel("llama_optimum_merged");
  const auto conversion = Convert(source, {}, AllRules());
  ASSERT_TRUE(conversion.ok() && conversion->model);
  Manifest silent = conversion->manifest;
  silent.dropped.clear();
  const Proof proof = ProveConversion(*source.proto, *conversion->model, silent);
  EXPECT_TRUE(proof.facts.empty());
  EXPECT_EQ(proof.not_tried, "which branch logits takes is not seen");
}

// Without the precondition that says so, positions may be anything.
TEST(Proof, WhatRestsOnTheHostNeedsAPrecondition) {
  const Model source = LoadTestModel("toy_scatter_ts");
  const auto conversion = Convert(source, {}, AllRules());
  ASSERT_TRUE(conversion.ok() && conversion->model);
  Manifest silent = conversion->manifest;
  silent.preconditions.clear();
  const Proof proof = ProveConversion(*source.proto, *conversion->model, silent);
  EXPECT_NE(Unproved(proof).find("no precondition says so"), std::string::npos);
}

}  // namespace
}  // namespace kvlift
