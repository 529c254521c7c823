// LIBS: lint
#include "lint/target.h"

#include <string>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lint/lint.h"

namespace kvlift {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// "KV132", or "warning KV139".
std::vector<std::string> Codes(const std::string& text, Profile target) {
  const auto proto = ParseModelText(R"(<ir_version: 12, opset_import: ["" : 24]>)" + text);
  EXPECT_TRUE(proto.ok()) << proto.status();
  if (!proto.ok()) return {};
  Model model;
  model.proto = std::make_shared<const onnx::ModelProto>(*proto);
  const auto lints = LintModel(model, nullptr, target);
  EXPECT_TRUE(lints.ok()) << lints.status();
  std::vector<std::string> codes;
  for (const Lint& lint : *lints) {
    EXPECT_NE(FindFinding(lint.finding.code), nullptr) << lint.finding.code;
    codes.push_back((lint.severity == Severity::kWarning ? "warning " : "") + lint.finding.code);
  }
  return codes;
}

// One layer of a decoder that keeps to the rules of TensorRT and of portable models. `read` makes k
// and v of the caches.
struct Decoder {
  std::string inputs = ", int64[B] write_indices, float[B,1,S,32] seen";
  std::string past_key = "past.0.key", past_value = "past.0.value";
  std::string present_key = "present.0.key", present_value = "present.0.value";
  std::string type = "float", cache = "B,2,32,4", rows = "B,2,S,4", query = "B,4,S,4";
  std::string index = "write_indices", scatter = "axis = 2", attributes = "scale = 0.5";
  std::string body = "", read = "", k = "", v = "", mask = "seen", nonpad = "";
  std::string length = "rows = Shape<start = 2, end = 3>(key) valid = Add(write_indices, rows)";

  std::string Text() const {
    return fmt::format(
        R"(g ({0}[{1}] q, {0}[{2}] key, {0}[{2}] value, {0}[{3}] {4}, {0}[{3}] {5} {6})
           => ({0}[{1}] y, {0}[{3}] {7}, {0}[{3}] {8}) {{
          {9} {10}
          {7} = TensorScatter<{11}>({4}, key, {12})
          {8} = TensorScatter<{11}>({5}, value, {12})
          {13}
          y = Attention<{14}>(q, {15}, {16}, {17}, , , {18})
        }})",
        type, query, rows, cache, Quote(past_key), Quote(past_value), inputs, Quote(present_key),
        Quote(present_value), length, body, scatter, index, read, attributes,
        k.empty() ? Quote(present_key) : k, v.empty() ? Quote(present_value) : v, mask, nonpad);
  }
  static std::string Quote(const std::string& name) { return "\"" + name + "\""; }
};

// The same that reads the valid rows, as ONNX Runtime's CPU kernel wants it.
Decoder Prefix() {
  Decoder d;
  d.read =
      "zero = Constant<value = int64[1] {0}>() two = Constant<value = int64[1] {2}>() "
      "end = ReduceMax(valid, zero) "
      "k = Slice(\"present.0.key\", zero, end, two) v = Slice(\"present.0.value\", zero, end, two)";
  d.k = "k", d.v = "v", d.mask = "", d.nonpad = "valid";
  return d;
}

// Rows folded as the static contract of onnxruntime-genai has them.
Decoder Folded() {
  Decoder d;
  d.inputs = ", int64[B] write_indices, int64[B] nonpad_kv_seqlen";
  d.past_key = "key_cache.0", d.past_value = "value_cache.0";
  d.present_key = "updated_key_cache.0", d.present_value = "updated_value_cache.0";
  d.cache = "B,M,8", d.rows = "B,S,8", d.query = "B,S,16";
  d.scatter = "axis = 1", d.attributes = "q_num_heads = 4, kv_num_heads = 2";
  d.length = "", d.mask = "", d.nonpad = "nonpad_kv_seqlen";
  return d;
}

// The index from the width of a mask, as stock onnxruntime-genai needs it.
Decoder Derived() {
  Decoder d = Prefix();
  d.inputs = ", int64[B,T] attention_mask";
  d.length =
      "rows = Shape<start = 2, end = 3>(key) total = Shape<start = 1, end = 2>(attention_mask) "
      "batch = Shape<start = 0, end = 1>(attention_mask) past = Sub(total, rows) "
      "at = Expand(past, batch) valid = Expand(total, batch)";
  d.index = "at";
  return d;
}

TEST(LintTarget, ModelsThatKeepToTheRules) {
  EXPECT_THAT(Codes(Decoder{}.Text(), Profile::kTensorRt), IsEmpty());
  EXPECT_THAT(Codes(Decoder{}.Text(), Profile::kPortable), IsEmpty());
  EXPECT_THAT(Codes(Prefix().Text(), Profile::kOrt), IsEmpty());
  EXPECT_THAT(Codes(Derived().Text(), Profile::kGenai), IsEmpty());
  EXPECT_THAT(Codes(Folded().Text(), Profile::kGenaiStatic), IsEmpty());
}

TEST(LintTarget, ModelsWithoutCachesInPlace) {
  const std::string none = "g (float[2] a) => (float[2] b) { b = Identity(a) }";
  for (Profile target : {Profile::kOrt, Profile::kGenai, Profile::kGenaiStatic, Profile::kTensorRt,
                         Profile::kPortable}) {
    EXPECT_THAT(Codes(none, target), ElementsAre("KV131"));
  }
  const std::string grows =
      "g (float[B,2,P,4] past, float[B,2,S,4] rows) => (float[B,2,T,4] present) "
      "{ present = Concat<axis = 2>(past, rows) }";
  EXPECT_THAT(Codes(grows, Profile::kTensorRt), ElementsAre("KV131", "KV131"));
  EXPECT_THAT(Codes(grows, Profile::kOrt), ElementsAre("warning KV131", "KV131"));
}

TEST(LintTarget, Layouts) {
  EXPECT_THAT(Codes(Folded().Text(), Profile::kTensorRt), Contains("KV132").Times(2));
  EXPECT_THAT(Codes(Folded().Text(), Profile::kGenai), Contains("KV132"));
  EXPECT_THAT(Codes(Decoder{}.Text(), Profile::kGenaiStatic), Contains("KV132"));
  EXPECT_THAT(Codes(Folded().Text(), Profile::kOrt), Not(Contains("KV132")));
}

TEST(LintTarget, CapacityIsANumber) {
  Decoder d;
  d.cache = "B,2,M,4";
  EXPECT_THAT(Codes(d.Text(), Profile::kTensorRt), ElementsAre("KV133", "KV133"));
  EXPECT_THAT(Codes(d.Text(), Profile::kOrt), Each(StartsWith("warning KV139")));
}

TEST(LintTarget, StraightFromInputToOutput) {
  const std::string viewed =
      "g (float[B,2,8,4] past, float[B,2,S,4] rows, int64[B] at) => (float[B,2,8,4] present) "
      "{ same = Identity(past) present = TensorScatter<axis = 2>(same, rows, at) }";
  EXPECT_THAT(Codes(viewed, Profile::kTensorRt), ElementsAre("KV134"));
  EXPECT_THAT(Codes(viewed, Profile::kOrt), ElementsAre("warning KV134"));
}

TEST(LintTarget, LinearOnly) {
  Decoder d;
  d.scatter = "axis = 2, mode = \"circular\"";
  EXPECT_THAT(Codes(d.Text(), Profile::kTensorRt), ElementsAre("KV135", "KV135"));
  EXPECT_THAT(Codes(d.Text(), Profile::kOrt), Not(Contains("KV135")));
}

TEST(LintTarget, ElementTypes) {
  Decoder d;
  d.type = "double", d.mask = "";
  EXPECT_THAT(Codes(d.Text(), Profile::kTensorRt), ElementsAre("KV136", "KV136"));
  d = Prefix();
  d.type = "double";
  EXPECT_THAT(Codes(d.Text(), Profile::kOrt), IsEmpty());
  d.attributes = "is_causal = 1";
  EXPECT_THAT(Codes(d.Text(), Profile::kOrt), ElementsAre("KV136"));
  d.type = "bfloat16";
  EXPECT_THAT(Codes(d.Text(), Profile::kOrt), ElementsAre("warning KV136"));
}

TEST(LintTarget, WhereTheIndexComesFrom) {
  EXPECT_THAT(Codes(Prefix().Text(), Profile::kGenai), ElementsAre("KV137"));
  Decoder d = Folded();
  d.length = "index = Identity(write_indices) valid = Identity(nonpad_kv_seqlen)";
  d.index = "index", d.nonpad = "valid";
  EXPECT_THAT(Codes(d.Text(), Profile::kGenaiStatic), ElementsAre("KV137", "KV137", "KV137"));
}

TEST(LintTarget, NamesThatCountLayers) {
  Decoder d = Derived();
  d.past_key = "past.3.key";
  EXPECT_THAT(Codes(d.Text(), Profile::kGenai), ElementsAre("KV138"));
  d.past_key = "past_key";
  EXPECT_THAT(Codes(d.Text(), Profile::kGenai), ElementsAre("KV138"));
  d = Folded();
  d.present_key = "key_cache_out.0";
  EXPECT_THAT(Codes(d.Text(), Profile::kGenaiStatic), ElementsAre("KV138"));
  d = Folded();
  d.past_key = "key_cache.1", d.present_key = "updated_key_cache.1";
  EXPECT_THAT(Codes(d.Text(), Profile::kGenaiStatic), ElementsAre("KV138"));
}

TEST(LintTarget, WhatAttentionReads) {
  EXPECT_THAT(Codes(Prefix().Text(), Profile::kTensorRt), ElementsAre("KV139", "KV141"));
  EXPECT_THAT(Codes(Decoder{}.Text(), Profile::kOrt), ElementsAre("warning KV139"));
}

TEST(LintTarget, MaskAsWideAsTheKeys) {
  Decoder d;
  d.inputs = ", int64[B] write_indices, float[1,1,1,20] seen";
  EXPECT_THAT(Codes(d.Text(), Profile::kOrt), Contains("KV140"));
  EXPECT_THAT(Codes(d.Text(), Profile::kTensorRt), IsEmpty());
}

// Each change of an Attention that compilers refuse is one finding.
TEST(LintTarget, OperandsOfAttention) {
  const auto with = [](const auto& change) {
    Decoder d;
    change(d);
    EXPECT_EQ(Codes(d.Text(), Profile::kTensorRt), Codes(d.Text(), Profile::kPortable));
    return Codes(d.Text(), Profile::kPortable);
  };
  EXPECT_THAT(with([](Decoder& d) { d.nonpad = "valid"; }), ElementsAre("KV141"));
  EXPECT_THAT(with([](Decoder& d) { d.attributes = "is_causal = 1"; }), ElementsAre("KV141"));
  EXPECT_THAT(with([](Decoder& d) { d.attributes = "softcap = 30.0"; }), ElementsAre("KV141"));
  EXPECT_THAT(with([](Decoder& d) { d.inputs = ", int64[B] write_indices, bool[B,1,S,32] seen"; }),
              ElementsAre("KV141"));
  EXPECT_THAT(with([](Decoder& d) { d.inputs = ", int64[B] write_indices, float[S,32] seen"; }),
              ElementsAre("KV141"));
  Decoder d;
  d.attributes = "softmax_precision = 11";
  EXPECT_THAT(Codes(d.Text(), Profile::kTensorRt), IsEmpty());
  EXPECT_THAT(Codes(d.Text(), Profile::kPortable), ElementsAre("KV141"));
}

TEST(LintTarget, NamesOfTargets) {
  EXPECT_EQ(FindProfile("tensorrt"), Profile::kTensorRt);
  EXPECT_EQ(FindProfile("portable"), Profile::kPortable);
  EXPECT_EQ(FindProfile("spec"), std::nullopt);
}

}  // namespace
}  // namespace kvlift
