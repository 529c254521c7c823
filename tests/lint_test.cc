// LIBS: lint
#include "lint/lint.h"

#include <string>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvlift {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

constexpr char kHead[] = R"(<ir_version: 12, opset_import: ["" : 24]>)";

// "KV110", or "warning KV103".
std::vector<std::string> Codes(const std::string& text, const Manifest* manifest = nullptr) {
  const auto proto = ParseModelText(text);
  EXPECT_TRUE(proto.ok()) << proto.status();
  if (!proto.ok()) return {};
  Model model;
  model.proto = std::make_shared<const onnx::ModelProto>(*proto);
  const auto lints = LintModel(model, manifest);
  EXPECT_TRUE(lints.ok()) << lints.status();
  std::vector<std::string> codes;
  for (const Lint& lint : *lints) {
    EXPECT_NE(FindFinding(lint.finding.code), nullptr) << lint.finding.code;
    EXPECT_FALSE(lint.finding.text.empty());
    codes.push_back((lint.severity == Severity::kWarning ? "warning " : "") + lint.finding.code);
  }
  return codes;
}

struct Scatter {
  std::string cache = "float[2,2,8,4] cache", update = "float[2,2,3,4] update";
  std::string indices = "int64[2] at", attributes = "axis = 2", head = kHead;

  std::string Text() const {
    return fmt::format(
        "{} g ({}, {}, {}) => (float[a,b,c,d] out) {{ out = TensorScatter <{}> (cache, update, at) "
        "}}",
        head, cache, update, indices, attributes);
  }
};

TEST(LintTensorScatter, CleanModelsHaveNoFindings) {
  EXPECT_THAT(Codes(Scatter{}.Text()), IsEmpty());
  EXPECT_THAT(Codes(Scatter{.attributes = "mode = \"circular\""}.Text()), IsEmpty());
  EXPECT_THAT(Codes(Scatter{.cache = "float[B,2,M,4] cache",
                            .update = "float[B,2,S,4] update",
                            .indices = "int64[B] at",
                            .attributes = "axis = -2"}
                        .Text()),
              IsEmpty());
  EXPECT_THAT(Codes(Scatter{.update = "float[2,2,8,4] update"}.Text()), IsEmpty());
}

TEST(LintTensorScatter, IndicesOfTheWrongForm) {
  EXPECT_THAT(Codes(Scatter{.indices = "int64[3] at"}.Text()), Contains("KV120"));
  EXPECT_THAT(Codes(Scatter{.indices = "int64[2,1] at"}.Text()), Contains("KV120"));
  EXPECT_THAT(Codes(Scatter{.indices = "int32[2] at"}.Text()), Contains("KV120"));
}

TEST(LintTensorScatter, UpdateLongerThanTheCache) {
  EXPECT_THAT(Codes(Scatter{.update = "float[2,2,9,4] update"}.Text()), Contains("KV121"));
}

TEST(LintTensorScatter, AxisOfTheBatchOrNone) {
  for (const char* axis : {"axis = 0", "axis = 4", "axis = -4", "axis = -5"}) {
    EXPECT_THAT(Codes(Scatter{.attributes = axis}.Text()), Contains("KV122")) << axis;
  }
}

TEST(LintTensorScatter, UnknownMode) {
  EXPECT_THAT(Codes(Scatter{.attributes = "mode = \"ring\""}.Text()), Contains("KV123"));
}

TEST(LintTensorScatter, UpdateThatDoesNotFit) {
  for (const char* update : {"float[2,2,3,5] update", "float[1,2,3,4] update",
                             "float[2,3,4] update", "float16[2,2,3,4] update"}) {
    EXPECT_THAT(Codes(Scatter{.update = update}.Text()), Contains("KV124")) << update;
  }
}

std::string WithConstantIndices(int64_t first, const std::string& attributes = "") {
  return fmt::format(
      "{} g (float[2,2,8,4] cache, float[2,2,3,4] update) => (float[a,b,c,d] out) <int64[2] at = "
      "{{{}, "
      "0}}> "
      "{{ out = TensorScatter {} (cache, update, at) }}",
      kHead, first, attributes);
}

TEST(LintTensorScatter, ConstantIndicesInsideAndOutside) {
  EXPECT_THAT(Codes(WithConstantIndices(5)), IsEmpty());
  EXPECT_THAT(Codes(WithConstantIndices(6)), Contains("KV125"));
  EXPECT_THAT(Codes(WithConstantIndices(-1)), Contains("KV125"));
  EXPECT_THAT(Codes(WithConstantIndices(6, "<mode = \"circular\">")), IsEmpty());
}

TEST(LintTensorScatter, OnePastUpdatedTwice) {
  const std::string body =
      " g (float[2,2,8,4] cache, float[2,2,3,4] update, int64[2] at) => (float[b,n,m,d] a, "
      "float[b,n,m,d] b) { "
      "a = TensorScatter(cache, update, at) again = Identity(cache) "
      "b = TensorScatter(again, update, at) }";
  EXPECT_THAT(Codes(kHead + body), UnorderedElementsAre("warning KV126"));
}

struct Attention {
  std::string q = "float[2,4,3,8] q", k = "float[2,2,6,8] k", v = "float[2,2,6,8] v";
  std::string more_inputs = {}, operands = "q, k, v", outputs = "y", attributes = {}, head = kHead;
  std::string result = "float[b,n,s,d]";

  std::string Text() const {
    return fmt::format("{} g ({}, {}, {}{}) => ({} y) {{ {} = Attention {} ({}) }}", head, q, k, v,
                       more_inputs, result, outputs,
                       attributes.empty() ? "" : "<" + attributes + ">", operands);
  }
};

Attention WithMask(const std::string& mask) {
  return {.more_inputs = ", " + mask + " m", .operands = "q, k, v, m"};
}

Attention WithLengths(const std::string& lengths) {
  return {.more_inputs = ", " + lengths + " n", .operands = "q, k, v, , , , n"};
}

Attention WithPast(const std::string& past_k, const std::string& past_v) {
  return {.more_inputs = ", " + past_k + " pk, " + past_v + " pv",
          .operands = "q, k, v, , pk, pv",
          .outputs = "y, ok, ov"};
}

TEST(LintAttention, CleanModelsHaveNoFindings) {
  EXPECT_THAT(Codes(Attention{}.Text()), IsEmpty());
  EXPECT_THAT(
      Codes(Attention{.q = "float[B,4,S,8] q", .k = "float[B,2,T,8] k", .v = "float[B,2,T,5] v"}
                .Text()),
      IsEmpty());
  EXPECT_THAT(Codes(Attention{.q = "float[2,3,32] q",
                              .k = "float[2,6,16] k",
                              .v = "float[2,6,16] v",
                              .attributes = "q_num_heads = 4, kv_num_heads = 2",
                              .result = "float[b,s,h]"}
                        .Text()),
              IsEmpty());
  for (const char* mask : {"bool[3,6]", "float[2,4,3,6]", "bool[1,1,1,6]", "bool[S,T]",
                           "float[2,1,3,4]"}) {  // a shorter mask is padded
    EXPECT_THAT(Codes(WithMask(mask).Text()), IsEmpty()) << mask;
  }
  EXPECT_THAT(Codes(WithLengths("int64[2]").Text()), IsEmpty());
  EXPECT_THAT(Codes(WithPast("float[2,2,5,8]", "float[2,2,5,8]").Text()), IsEmpty());
}

TEST(LintAttention, Heads) {
  EXPECT_THAT(Codes(Attention{.q = "float[2,3,3,8] q"}.Text()), Contains("KV110"));
  EXPECT_THAT(Codes(Attention{.v = "float[2,4,6,8] v"}.Text()), Contains("KV110"));
}

TEST(LintAttention, HeadSizes) {
  EXPECT_THAT(Codes(Attention{.q = "float[2,4,3,6] q"}.Text()), Contains("KV111"));
}

TEST(LintAttention, Lengths) {
  EXPECT_THAT(Codes(Attention{.v = "float[2,2,5,8] v"}.Text()), Contains("KV112"));
}

TEST(LintAttention, Batches) {
  EXPECT_THAT(Codes(Attention{.q = "float[1,4,3,8] q"}.Text()), Contains("KV113"));
  EXPECT_THAT(Codes(Attention{.v = "float[1,2,6,8] v"}.Text()), Contains("KV113"));
}

TEST(LintAttention, RanksAndHeadCounts) {
  Attention flat{.q = "float[2,3,32] q", .k = "float[2,6,16] k", .v = "float[2,6,16] v"};
  EXPECT_THAT(Codes(flat.Text()), Contains("KV114"));
  flat.attributes = "q_num_heads = 4";
  EXPECT_THAT(Codes(flat.Text()), Contains("KV114"));
  flat.attributes = "q_num_heads = 5, kv_num_heads = 2";
  EXPECT_THAT(Codes(flat.Text()), Contains("KV114"));
  EXPECT_THAT(Codes(Attention{.q = "float[2,4] q"}.Text()), Contains("KV114"));
}

TEST(LintAttention, HeadCountsOfRankFourAreThoseOfTheOperands) {
  Attention heads;
  heads.attributes = "q_num_heads = 4, kv_num_heads = 2";
  EXPECT_THAT(Codes(heads.Text()), Not(Contains("KV114")));
  heads.attributes = "q_num_heads = 2, kv_num_heads = 2";
  EXPECT_THAT(Codes(heads.Text()), Contains("KV114"));
  heads.attributes = "kv_num_heads = 4";
  EXPECT_THAT(Codes(heads.Text()), Contains("KV114"));
}

TEST(LintAttention, ValidLengthsOfTheWrongForm) {
  for (const char* lengths : {"int64[3]", "int64[2,1]", "int32[2]"}) {
    EXPECT_THAT(Codes(WithLengths(lengths).Text()), Contains("KV115")) << lengths;
  }
}

TEST(LintAttention, ValidLengthsWithPastOrPresent) {
  Attention both = WithPast("float[2,2,5,8]", "float[2,2,5,8]");
  both.more_inputs += ", int64[2] n";
  both.operands += ", n";
  EXPECT_THAT(Codes(both.Text()), Contains("KV116"));
  Attention present = WithLengths("int64[2]");
  present.outputs = "y, ok, ov";
  EXPECT_THAT(Codes(present.Text()), Contains("KV116"));
}

TEST(LintAttention, MasksThatDoNotBroadcast) {
  for (const char* mask : {"bool[2,6]", "bool[3,7]", "bool[2,3,6]", "bool[3,4,3,6]", "bool",
                           "bool[1,2,4,3,6]", "int64[3,6]"}) {
    EXPECT_THAT(Codes(WithMask(mask).Text()), Contains("KV117")) << mask;
  }
}

TEST(LintAttention, MasksOfAnyRankThatBroadcasts) {
  for (const char* mask : {"bool[6]", "bool[3,6]", "bool[4,3,6]", "bool[2,1,1,6]"}) {
    EXPECT_THAT(Codes(WithMask(mask).Text()), Not(Contains("KV117"))) << mask;
  }
}

TEST(LintAttention, MaskOfOpset23MustBeAsWideAsTheKeys) {
  Attention short_mask = WithMask("bool[3,4]");
  short_mask.head = R"(<ir_version: 11, opset_import: ["" : 23]>)";
  EXPECT_THAT(Codes(short_mask.Text()), Contains("KV117"));
}

TEST(LintAttention, PastAndPresent) {
  Attention half{.more_inputs = ", float[2,2,5,8] pk", .operands = "q, k, v, , pk"};
  EXPECT_THAT(Codes(half.Text()), Contains("KV118"));
  EXPECT_THAT(Codes(Attention{.outputs = "y, ok, ov"}.Text()), Contains("warning KV118"));
  EXPECT_THAT(Codes(WithPast("float[2,2,5,7]", "float[2,2,5,8]").Text()), Contains("KV118"));
  EXPECT_THAT(Codes(WithPast("float[2,2,5,8]", "float[2,3,5,8]").Text()), Contains("KV118"));
  EXPECT_THAT(Codes(WithPast("float[2,2,5,8]", "float[2,2,4,8]").Text()), Contains("KV112"));
}

TEST(LintAttention, TopLeftCausal) {
  EXPECT_THAT(Codes(Attention{.attributes = "is_causal = 1"}.Text()), Contains("warning KV119"));
  Attention with_lengths = WithLengths("int64[2]");
  with_lengths.attributes = "is_causal = 1";
  EXPECT_THAT(Codes(with_lengths.Text()), IsEmpty());
  const std::string appended =
      " g (float[B,4,S,8] q, float[B,2,P,8] past, float[B,2,S,8] new, float[B,2,T,8] v) => "
      "(float[a,b,c,d] y) { "
      "k = Concat <axis = -2> (past, new) y = Attention <is_causal = 1> (q, k, v) }";
  EXPECT_THAT(Codes(kHead + appended), UnorderedElementsAre("warning KV119"));
}

TEST(LintModel, OldOpsets) {
  EXPECT_THAT(Codes(Scatter{.head = R"(<ir_version: 12, opset_import: ["" : 23]>)"}.Text()),
              Contains("KV102"));
  EXPECT_THAT(Codes(Attention{.head = R"(<ir_version: 10, opset_import: ["" : 22]>)"}.Text()),
              Contains("KV102"));
  Attention nonpad = WithLengths("int64[2]");
  nonpad.head = R"(<ir_version: 12, opset_import: ["" : 23]>)";
  EXPECT_THAT(Codes(nonpad.Text()), Contains("KV102"));
}

TEST(LintModel, OldIrVersionsAreWarnings) {
  EXPECT_THAT(Codes(Scatter{.head = R"(<ir_version: 10, opset_import: ["" : 24]>)"}.Text()),
              UnorderedElementsAre("warning KV103"));
}

TEST(LintModel, FilesThatAreNotThereAreSaid) {
  auto proto = ParseModelText(std::string(kHead) +
                              " g (float[B,2] x) => (float[B,2] y) <float[2] w = {1, 2}> "
                              "{ y = Add(x, w) }");
  ASSERT_TRUE(proto.ok());
  Model model;
  model.proto = std::make_shared<const onnx::ModelProto>(*proto);
  EXPECT_THAT(*LintModel(model, nullptr), IsEmpty());
  onnx::TensorProto& weight = *proto->mutable_graph()->mutable_initializer(0);
  weight.clear_float_data();
  weight.clear_raw_data();
  weight.set_data_location(onnx::TensorProto::EXTERNAL);
  auto* location = weight.add_external_data();
  location->set_key("location");
  location->set_value("weights.data");
  model.proto = std::make_shared<const onnx::ModelProto>(*proto);
  const auto lints = LintModel(model, nullptr);
  ASSERT_EQ(lints->size(), 1u);
  EXPECT_EQ((*lints)[0].finding.code, "KV030");
  EXPECT_EQ((*lints)[0].severity, Severity::kWarning);
  EXPECT_EQ((*lints)[0].finding.text,
            "the numbers of 1 tensor were not looked at: weights.data is not there");
}

TEST(LintModel, WhatOnnxRefuses) {
  EXPECT_THAT(
      Codes(std::string(kHead) + " g (float[2] x) => (float[2] y) { y = NoSuchOperator(x) }"),
      Contains("KV101"));
  EXPECT_THAT(
      Codes(std::string(kHead) + " g (float[2] a, float[3] b) => (float[2] y) { y = Add(a, b) }"),
      Contains("KV101"));
}

TEST(LintModel, FunctionsAreLookedInto) {
  const std::string text =
      R"(<ir_version: 12, opset_import: ["" : 24, "mine" : 1]>
      g (float[2,2,8,4] c, float[2,2,9,4] u, int64[2] at) => (float[a,b,c,d] out) { out = mine.Write(c, u, at) }
      <domain: "mine", opset_import: ["" : 24]>
      Write (c, u, at) => (o) { o = TensorScatter(c, u, at) })";
  EXPECT_THAT(Codes(text), Contains("KV121"));
}

class LintManifest : public ::testing::Test {
 protected:
  LintManifest() {
    ManifestCache c;
    c.id = "0.key";
    c.role = CacheRole::kKey;
    c.input = "cache";
    c.output = "out";
    c.dtype = "float32";
    c.layout = "BNSD";
    c.axis = 2;
    manifest_.caches.push_back(c);
    for (const char* name : {"cache", "update", "at"}) {
      manifest_.inputs.push_back({name, SameInput{}});
    }
    manifest_.outputs.push_back({"out", CacheOutput{"0.key"}});
    manifest_.capacity_value = 8;
  }
  static std::string Text() {
    return std::string(kHead) +
           " g (float[2,2,8,4] cache, float[2,2,3,4] update, int64[2] at) "
           "=> (float[2,2,8,4] out) { out = TensorScatter <axis = 2> (cache, update, at) }";
  }
  std::vector<std::string> Found() { return Codes(Text(), &manifest_); }

  Manifest manifest_;
};

TEST_F(LintManifest, ThatMatches) { EXPECT_THAT(Found(), IsEmpty()); }

TEST_F(LintManifest, MissingNames) {
  manifest_.caches[0].input = "gone";
  EXPECT_THAT(Found(), Contains("KV130"));
}

TEST_F(LintManifest, MissingInputOrOutput) {
  manifest_.inputs[1].name = "gone";
  EXPECT_THAT(Found(), UnorderedElementsAre("KV130"));
  manifest_.inputs[1].name = "update";
  manifest_.outputs[0].name = "gone";
  EXPECT_THAT(Found(), UnorderedElementsAre("KV130"));
}

TEST_F(LintManifest, WrongType) {
  manifest_.caches[0].dtype = "float16";
  EXPECT_THAT(Found(), Contains("KV130"));
}

TEST_F(LintManifest, WrongAxis) {
  manifest_.caches[0].axis = 1;
  EXPECT_THAT(Found(), Contains("KV130"));
}

TEST_F(LintManifest, WrongCapacity) {
  manifest_.capacity_value = 16;
  EXPECT_THAT(Found(), Contains("KV130"));
}

TEST_F(LintManifest, OneTensorForTwoCaches) {
  manifest_.caches.push_back(manifest_.caches[0]);
  manifest_.caches[1].id = "1.key";
  EXPECT_THAT(Found(), Contains("KV130"));
}

TEST_F(LintManifest, PresentThatNoScatterWrites) {
  EXPECT_THAT(Codes(std::string(kHead) +
                        " g (float[2,2,8,4] cache, float[2,2,3,4] update, int64[2] at) => "
                        "(float[2,2,8,4] out) { s = TensorScatter <axis = 2> (cache, update, at) "
                        "out = Neg(s) }",
                    &manifest_),
              UnorderedElementsAre("KV130"));
}

}  // namespace
}  // namespace kvlift
