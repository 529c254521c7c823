// LIBS: rewrites
// SRCS: support/models.cc support/case_edits.cc support/case_file.cc
// Conversions of real exports: what must hold of every converted model, and who is refused why.
#include "support/models.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "contract/manifest_json.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/case_file.h"

namespace kvlift {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

Conversion Converted(const Model& model, const ConvertOptions& options = {}) {
  auto conversion = Convert(model, options, AllRules());
  EXPECT_TRUE(conversion.ok()) << conversion.status();
  return conversion.ok() ? *std::move(conversion) : Conversion();
}

std::set<std::string> PastSymbols(const nlohmann::json& meta, const onnx::GraphProto& graph) {
  std::set<std::string> symbols;
  std::map<std::string, const onnx::ValueInfoProto*> inputs;
  for (const auto& input : graph.input()) inputs[input.name()] = &input;
  for (const auto& cache : meta["caches"]) {
    if (cache["output"].is_null()) continue;
    const auto& shape = inputs.at(cache["input"].get<std::string>())->type().tensor_type().shape();
    const auto& dim = shape.dim(cache["axis"].get<int>());
    if (dim.has_dim_param()) symbols.insert(dim.dim_param());
  }
  return symbols;
}

// Does a dimension mention the symbol, alone or in a sum?
bool Mentions(const std::string& dim, const std::string& symbol) {
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  for (size_t at = dim.find(symbol); at != std::string::npos; at = dim.find(symbol, at + 1)) {
    const size_t end = at + symbol.size();
    if ((at == 0 || !is_word(dim[at - 1])) && (end == dim.size() || !is_word(dim[end]))) {
      return true;
    }
  }
  return false;
}

void ExpectNoDim(const onnx::ModelProto& model, const std::string& symbol) {
  const auto check = [&](const auto& infos) {
    for (const auto& info : infos) {
      for (const auto& dim : info.type().tensor_type().shape().dim()) {
        EXPECT_FALSE(Mentions(dim.dim_param(), symbol)) << info.name() << ": " << dim.dim_param();
      }
    }
  };
  check(model.graph().input());
  check(model.graph().output());
  check(model.graph().value_info());
}

std::vector<std::string> CacheNames(const nlohmann::json& meta, bool past, bool present) {
  std::vector<std::string> names;
  for (const auto& cache : meta["caches"]) {
    if (cache["output"].is_null()) continue;
    if (past) names.push_back(cache["input"]);
    if (present) names.push_back(cache["output"]);
  }
  return names;
}

void ExpectCanonical(const onnx::ModelProto& before, const onnx::ModelProto& after,
                     const nlohmann::json& meta) {
  const auto presents = CacheNames(meta, false, true);
  const auto caches = CacheNames(meta, true, true);
  EXPECT_EQ(CountNodes(after, "TensorScatter"), static_cast<int>(presents.size()));
  EXPECT_EQ(CountNodes(after, "Attention"), meta["layers"].get<int>());
  EXPECT_LT(after.graph().node_size(), before.graph().node_size());
  for (const auto& entry : after.opset_import()) {
    if (entry.domain().empty()) {
      EXPECT_EQ(entry.version(), 24);
    }
  }
  EXPECT_LE(after.ir_version(), 13);
  EXPECT_EQ(after.graph().output_size(), before.graph().output_size());

  const auto moved = ReachedBy(after.graph(), caches,
                               {"Identity", "Slice", "Transpose", "Reshape", "Unsqueeze", "Expand",
                                "Tile", "Cast", "Gather"});
  std::set<std::string> old_nodes;
  for (const auto& node : before.graph().node()) old_nodes.insert(node.output(0));
  for (const auto& node : after.graph().node()) {
    if (node.op_type() == "Attention") {
      ASSERT_GE(node.input_size(), 7) << node.name();
      EXPECT_FALSE(node.input(6).empty()) << node.name();
      EXPECT_TRUE(moved.contains(node.input(1)) && moved.contains(node.input(2))) << node.name();
    }
    for (const std::string& output : node.output()) {
      const bool cache = std::find(caches.begin(), caches.end(), output) != caches.end();
      if (cache) {
        EXPECT_EQ(node.op_type(), "TensorScatter") << output;
      }
    }
    for (const std::string& input : node.input()) {
      if (!moved.contains(input)) continue;
      EXPECT_THAT((std::set<std::string>{"TensorScatter", "Attention", "Slice", "Transpose"}),
                  ::testing::Contains(node.op_type()))
          << node.name() << " reads a cache";
    }
    const bool is_new = !old_nodes.contains(node.output(0)) || node.op_type() == "Attention" ||
                        node.op_type() == "TensorScatter";
    if (is_new) {
      EXPECT_THAT(node.name(),
                  ::testing::AnyOf(::testing::MatchesRegex("/kvlift/layers\\.[0-9]+/.*"),
                                   ::testing::StartsWith("/kvlift/shared/")));
    }
  }
}

class RealModel : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    model_ = LoadTestModel(GetParam());
    meta_ = ModelMeta(GetParam());
  }
  bool is_growing() const { return meta_["growing"].is_boolean() && meta_["growing"]; }

  Model model_;
  nlohmann::json meta_;
};

class ConvertedModel : public RealModel {};

TEST_P(ConvertedModel, IsCanonical) {
  const Conversion c = Converted(model_);
  ASSERT_EQ(c.status, ConvertStatus::kConverted) << Describe(AllReasons(c));
  ExpectCanonical(*model_.proto, *c.model, meta_);
  for (const std::string& symbol : PastSymbols(meta_, model_.proto->graph())) {
    ExpectNoDim(*c.model, symbol);
  }
  EXPECT_TRUE(CheckModel(*c.model).ok()) << CheckModel(*c.model);
  const auto inferred = InferShapes(*c.model);
  ASSERT_TRUE(inferred.ok()) << inferred.status();
  for (const std::string& symbol : PastSymbols(meta_, model_.proto->graph())) {
    ExpectNoDim(*inferred, symbol);
  }
}

TEST_P(ConvertedModel, AddsOneInput) {
  const Conversion c = Converted(model_);
  ASSERT_TRUE(c.model.has_value()) << Describe(AllReasons(c));
  ASSERT_EQ(c.model->graph().input_size(), model_.proto->graph().input_size() + 1);
  const auto& last = c.model->graph().input(c.model->graph().input_size() - 1);
  EXPECT_EQ(last.name(), "write_indices");
  EXPECT_EQ(last.type().tensor_type().elem_type(), onnx::TensorProto::INT64);
  EXPECT_EQ(last.type().tensor_type().shape().dim_size(), 1);
  EXPECT_THAT(c.manifest.caches, SizeIs(CacheNames(meta_, true, false).size()));
}

TEST_P(ConvertedModel, GivesTheSameBytesTwice) {
  const Conversion a = Converted(model_), b = Converted(LoadTestModel(GetParam()));
  ASSERT_TRUE(a.model && b.model);
  EXPECT_EQ(*SerializeModel(*a.model), *SerializeModel(*b.model));
  EXPECT_EQ(ToJson(a.manifest).dump(), ToJson(b.manifest).dump());
}

TEST_P(ConvertedModel, IsNotConvertedAgain) {
  const Conversion once = Converted(model_);
  ASSERT_TRUE(once.model.has_value());
  const Conversion twice = Converted(AsModel(*once.model));
  EXPECT_EQ(twice.status, ConvertStatus::kNothing) << Describe(AllReasons(twice));
  EXPECT_FALSE(twice.model.has_value());
  ASSERT_THAT(twice.inspection.caches, SizeIs(once.inspection.caches.size()));
  for (const CacheReport& cache : twice.inspection.caches) {
    EXPECT_EQ(cache.kind, UpdateKind::kTensorScatter);
    EXPECT_FALSE(cache.growing);
    ASSERT_TRUE(cache.reason.has_value());
    EXPECT_EQ(cache.reason->code, "KV222");
  }
}

TEST_P(ConvertedModel, StaticCapacity) {
  ConvertOptions options;
  options.max_seq_len = 48;
  const Conversion c = Converted(model_, options);
  ASSERT_TRUE(c.model.has_value()) << Describe(AllReasons(c));
  std::map<std::string, const onnx::ValueInfoProto*> interface;
  for (const auto& info : c.model->graph().input()) interface[info.name()] = &info;
  for (const auto& info : c.model->graph().output()) interface[info.name()] = &info;
  for (const ManifestCache& cache : c.manifest.caches) {
    for (const std::string& name : {cache.input, cache.output}) {
      const auto& dim =
          interface.at(name)->type().tensor_type().shape().dim(static_cast<int>(cache.axis));
      EXPECT_EQ(dim.dim_value(), 48) << name;
    }
  }
  ExpectNoDim(*c.model, "max_sequence_length");
  EXPECT_TRUE(InferShapes(*c.model).ok()) << InferShapes(*c.model).status();
}

TEST_P(ConvertedModel, ForGenaiIsADropIn) {
  ConvertOptions options;
  options.target = Target::kGenai;
  const Conversion c = Converted(model_, options);
  const bool has_mask = meta_["drive"].contains("mask") && !meta_["drive"]["mask"].is_null();
  if (!has_mask) {
    EXPECT_EQ(c.status, ConvertStatus::kRefused);
    ASSERT_FALSE(c.inspection.caches.empty());
    ASSERT_TRUE(c.inspection.caches[0].reason.has_value());
    EXPECT_EQ(c.inspection.caches[0].reason->code, "KV219");
    return;
  }
  ASSERT_EQ(c.status, ConvertStatus::kConverted) << Describe(AllReasons(c));
  ExpectCanonical(*model_.proto, *c.model, meta_);
  ASSERT_EQ(c.model->graph().input_size(), model_.proto->graph().input_size());
  for (int k = 0; k < c.model->graph().input_size(); ++k) {
    EXPECT_EQ(c.model->graph().input(k).name(), model_.proto->graph().input(k).name());
  }
  EXPECT_TRUE(c.manifest.uniform);
  EXPECT_EQ(c.manifest.read, CacheRead::kPrefix);
  for (const ManifestInput& input : c.manifest.inputs) {
    if (!IsCache(input)) {
      EXPECT_EQ(AsOf(input), InputAs::kSame) << input.name;
    }
  }
  EXPECT_THAT(c.genai, HasSubstr("past_present_share_buffer"));
}

TEST_P(ConvertedModel, ForOrtStacksTheQueriesOfAGroup) {
  ConvertOptions ort;
  ort.target = Target::kOrt;
  const Conversion a = Converted(model_), b = Converted(model_, ort);
  ASSERT_TRUE(a.model && b.model);
  EXPECT_EQ(b.manifest.target, "ort");
  EXPECT_EQ(CountNodes(*a.model, "Attention"), CountNodes(*b.model, "Attention"));
  const AttentionReport& first = a.inspection.attention.front();
  const std::string same = a.model->graph().SerializeAsString();
  if (first.q_heads == first.kv_heads) {
    EXPECT_EQ(b.model->graph().SerializeAsString(), same);
  } else {
    EXPECT_EQ(CountNodes(*b.model, "Reshape") - CountNodes(*a.model, "Reshape"),
              2 * CountNodes(*a.model, "Attention"));
    for (const onnx::NodeProto& node : b.model->graph().node()) {
      const bool attention = node.op_type() == "Attention";
      EXPECT_FALSE(attention && IntAttribute(node, "is_causal", 0) != 0) << node.name();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ConvertedModel,
                         ::testing::Values("gemma2_optimum", "gpt2_optimum",
                                           "llama_attention_opset23", "llama_dynamic_dynamo",
                                           "llama_dynamic_mask_scatter_ts", "llama_dynamic_ts",
                                           "llama_dynamo_native_cache", "llama_optimum",
                                           "llama_optimum_legacy", "qwen2_optimum",
                                           "toy_transposed_key_ts",
                                           "whisper_decoder_with_past_optimum"),
                         [](const auto& model) { return model.param; });

// Growing caches whose attention stays as it is, and reads the valid rows.
struct Kept {
  const char* model;
  const char* code;
  const char* text;
  CacheAlias alias;
};

class KeptAttention : public ::testing::TestWithParam<Kept> {};

TEST_P(KeptAttention, ReadsTheValidRows) {
  const Kept& expected = GetParam();
  const Model model = LoadTestModel(expected.model);
  const nlohmann::json meta = ModelMeta(expected.model);
  const Conversion c = Converted(model);
  ASSERT_EQ(c.status, ConvertStatus::kConverted) << Describe(AllReasons(c));
  const auto presents = CacheNames(meta, false, true);
  EXPECT_EQ(CountNodes(*c.model, "TensorScatter"), static_cast<int>(presents.size()));
  EXPECT_EQ(CountNodes(*c.model, "Softmax"), CountNodes(*model.proto, "Softmax"));
  EXPECT_TRUE(c.manifest.uniform);
  EXPECT_THAT(c.manifest.uniform_reason, HasSubstr("an attention stays"));
  ASSERT_EQ(c.inspection.attention.size(), meta["layers"].get<size_t>());
  for (const AttentionReport& attention : c.inspection.attention) {
    EXPECT_FALSE(attention.converted);
    ASSERT_TRUE(attention.reason.has_value());
    EXPECT_EQ(attention.reason->code, expected.code);
    EXPECT_THAT(attention.reason->text, HasSubstr(expected.text));
  }
  std::set<CacheAlias> aliases;
  for (const ManifestCache& cache : c.manifest.caches) {
    aliases.insert(cache.alias);
    EXPECT_EQ(cache.alias == CacheAlias::kCopy, !cache.readers.empty()) << cache.id;
  }
  EXPECT_TRUE(aliases.contains(expected.alias)) << WordOf(expected.alias);
}

INSTANTIATE_TEST_SUITE_P(Models, KeptAttention,
                         ::testing::Values(Kept{"neg_past_read_twice_ts", "KV213",
                                                "a cache as it stands", CacheAlias::kCopy}),
                         [](const auto& kept) { return std::string(kept.param.model); });

constexpr char kWithSinks[] = "gpt_oss_optimum";

// A sink becomes a key, so that each sequence may have a length of its own.
TEST(SinkModel, IsConvertedPerSequence) {
  const Model model = LoadTestModel(kWithSinks);
  const Conversion c = Converted(model);
  ASSERT_EQ(c.status, ConvertStatus::kConverted) << Describe(AllReasons(c));
  const int layers = ModelMeta(kWithSinks)["layers"].get<int>();
  EXPECT_EQ(CountNodes(*c.model, "Softmax"), CountNodes(*model.proto, "Softmax") - layers);
  EXPECT_EQ(CountNodes(*c.model, "Attention"), layers);
  EXPECT_FALSE(c.manifest.uniform);
}

// What is added to the scores goes to Attention as it is.
class BiasedModel : public RealModel {};

TEST_P(BiasedModel, IsConvertedAtOneIndex) {
  const Conversion c = Converted(model_);
  ASSERT_EQ(c.status, ConvertStatus::kConverted) << Describe(AllReasons(c));
  EXPECT_EQ(CountNodes(*c.model, "Softmax"), 0);
  EXPECT_EQ(CountNodes(*c.model, "Attention"), meta_["layers"].get<int>());
  EXPECT_TRUE(c.manifest.uniform);
  EXPECT_THAT(c.manifest.uniform_reason, HasSubstr("a bias is added"));
  for (const AttentionReport& attention : c.inspection.attention) {
    EXPECT_TRUE(attention.converted);
    EXPECT_THAT(attention.mask, HasSubstr("bias"));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, BiasedModel, ::testing::Values("bloom_optimum"),
                         [](const auto& model) { return model.param; });

// Caches of fixed capacity: the interface stays.
class FixedCache : public ::testing::TestWithParam<const char*> {};

TEST_P(FixedCache, KeepsItsInterface) {
  const Model model = LoadTestModel(GetParam());
  const nlohmann::json meta = ModelMeta(GetParam());
  const Conversion c = Converted(model);
  ASSERT_EQ(c.status, ConvertStatus::kConverted) << Describe(AllReasons(c));
  ASSERT_EQ(c.model->graph().input_size(), model.proto->graph().input_size());
  for (int k = 0; k < c.model->graph().input_size(); ++k) {
    EXPECT_EQ(c.model->graph().input(k).SerializeAsString(),
              model.proto->graph().input(k).SerializeAsString());
  }
  EXPECT_EQ(CountNodes(*c.model, "TensorScatter"), static_cast<int>(meta["caches"].size()));
  EXPECT_EQ(CountNodes(*c.model, "Attention"), static_cast<int>(meta["caches"].size()) / 2);
  EXPECT_EQ(c.manifest.capacity_value, meta["capacity"].get<int64_t>());
  for (const ManifestInput& input : c.manifest.inputs) {
    EXPECT_EQ(AsOf(input), IsCache(input) ? InputAs::kCache : InputAs::kSame) << input.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, FixedCache,
                         ::testing::Values("llama_static_ts", "toy_llama_ref_ts",
                                           "toy_onehot_where_ts", "toy_scatter_ts",
                                           "toy_splice_ts"),
                         [](const auto& model) { return std::string(model.param); });

// What a refusal must say of each model: where it stands in the report does not matter.
struct Refused {
  const char* model;
  const char* code;
  const char* text;
  ConvertStatus status = ConvertStatus::kRefused;
};

class RefusedModel : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedModel, SaysWhy) {
  const Refused& expected = GetParam();
  const Model model = LoadTestModel(expected.model);
  const Conversion c = Converted(model);
  EXPECT_EQ(c.status, expected.status);
  EXPECT_FALSE(c.model.has_value());
  std::set<std::string> names;
  for (const auto& node : model.proto->graph().node()) {
    names.insert(node.name().empty() ? node.output(0) : node.name());
  }
  bool found = false;
  for (const Finding& f : AllReasons(c)) {
    if (f.code != expected.code || f.text.find(expected.text) == std::string::npos) continue;
    found = true;
    ASSERT_FALSE(f.nodes.empty()) << f.text;
    EXPECT_TRUE(names.contains(f.nodes[0])) << f.nodes[0];
  }
  EXPECT_TRUE(found) << expected.code << " " << expected.text << "\n" << Describe(AllReasons(c));
  for (const CacheReport& cache : c.inspection.caches) {
    EXPECT_FALSE(cache.converted);
    EXPECT_TRUE(cache.reason.has_value()) << cache.input;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, RefusedModel,
    ::testing::Values(
        Refused{"llama_decoder_first_legacy", "KV220", "no graph input", ConvertStatus::kNothing},
        Refused{"mask_scatter_only_dynamo", "KV221", "ScatterND", ConvertStatus::kNothing},
        Refused{"mask_scatter_only_ts", "KV221", "ScatterND", ConvertStatus::kNothing},
        Refused{"neg_concat_reversed_ts", "KV203", "in front"},
        Refused{"toy_fifo_shift_ts", "KV205", "stay where they are"}),
    [](const auto& refused) { return std::string(refused.param.model); });

// Whatever its axis says: such a graph is not valid, and is only looked at.
TEST(TensorScatter, AtAnAxisThatIsNone) {
  for (const int axis : {-9, -3, 1, 2, 9}) {
    const auto text = ParseModelText(fmt::format(
        R"(<ir_version: 10, opset_import: ["" : 24]>
           g (float[1,2,8,4] past, float[1,2,1,4] rows, int64[1] at) => (float[1,2,8,4] present) {{
             present = TensorScatter<axis = {}>(past, rows, at)
           }})",
        axis));
    ASSERT_TRUE(text.ok()) << text.status();
    const auto inspection = Inspect(AsModel(*text), AllRules());
    ASSERT_TRUE(inspection.ok()) << inspection.status();
    ASSERT_THAT(inspection->caches, SizeIs(1));
    EXPECT_EQ(inspection->caches[0].axis, axis == 1 || axis == -3 ? 1 : 2);
    EXPECT_EQ(inspection->caches[0].reason->code, "KV222");
  }
}

// What some exporters write for an extent that is not known.
TEST(NegativeExtent, IsOneThatIsNotKnown) {
  const auto c = LoadCase(KVLIFT_TESTDATA_DIR "/rewrites/decomposed_attention_one_token.onnxtxt");
  ASSERT_TRUE(c.ok()) << c.status();
  auto text = ParseModelText(c->before);
  ASSERT_TRUE(text.ok()) << text.status();
  auto* shape = text->mutable_graph()->mutable_output(0)->mutable_type()->mutable_tensor_type();
  shape->mutable_shape()->mutable_dim(1)->set_dim_value(-1);
  const Conversion conversion = Converted(AsModel(*text), c->options);
  ASSERT_TRUE(conversion.model.has_value());
  const auto& dim = conversion.model->graph().output(0).type().tensor_type().shape().dim(1);
  EXPECT_FALSE(dim.has_dim_value());
}

// The host is given its own mask back: it stays an input.
TEST(PaddingNone, KeepsAMaskThatIsAnOutput) {
  const auto c =
      LoadCase(KVLIFT_TESTDATA_DIR "/rewrites/decomposed_attention_padding_none.onnxtxt");
  ASSERT_TRUE(c.ok()) << c.status();
  auto text = ParseModelText(c->before);
  ASSERT_TRUE(text.ok()) << text.status();
  onnx::GraphProto& graph = *text->mutable_graph();
  for (const auto& input : graph.input()) {
    if (input.name() == "attention_mask") *graph.add_output() = input;
  }
  ASSERT_EQ(graph.output().rbegin()->name(), "attention_mask");
  const Conversion conversion = Converted(AsModel(*text), c->options);
  ASSERT_TRUE(conversion.model.has_value());
  const auto& inputs = conversion.model->graph().input();
  EXPECT_TRUE(std::any_of(inputs.begin(), inputs.end(),
                          [](const auto& input) { return input.name() == "attention_mask"; }));
}

// A tensor of a shape that is none, given as it is.
TEST(Inspect, AnOutputWithoutAForm) {
  auto text = ParseModelText(R"(
      <ir_version: 10, opset_import: ["" : 24]>
      g (float[1,4] x) => (float[1,4] y, int64[2,2] table)
      <int64[2,2] table = {1, 2, 3, 4}> { y = Neg(x) })");
  ASSERT_TRUE(text.ok()) << text.status();
  text->mutable_graph()->mutable_initializer(0)->set_dims(1, INT32_MIN);
  const auto inspection = Inspect(AsModel(*text), AllRules());
  EXPECT_TRUE(!inspection.ok() || inspection->caches.empty());
}

TEST(PrefillOnly, HasNothingToConvert) {
  const Conversion c = Converted(LoadTestModel("llama_optimum_prefill_only"));
  EXPECT_EQ(c.status, ConvertStatus::kNothing);
  EXPECT_TRUE(c.inspection.caches.empty());
}

// Both branches become one graph. The branch with a past was traced with one token.
TEST(MergedDecoder, BecomesOneGraph) {
  const Model model = LoadTestModel("llama_optimum_merged");
  const Conversion c = Converted(model);
  ASSERT_EQ(c.status, ConvertStatus::kConverted) << Describe(AllReasons(c));
  EXPECT_EQ(CountNodes(*c.model, "TensorScatter"), 4);
  EXPECT_EQ(CountNodes(*c.model, "Attention"), 2);
  EXPECT_EQ(CountNodes(*c.model, "If"), 0);
  for (const auto& input : c.model->graph().input()) EXPECT_NE(input.name(), "use_cache_branch");
  ASSERT_THAT(c.manifest.dropped, SizeIs(1));
  EXPECT_EQ(c.manifest.dropped[0].name, "use_cache_branch");
  EXPECT_EQ(GivenText(c.manifest.dropped[0]), "P > 0");
  EXPECT_EQ(c.manifest.limits.new_tokens_with_past, 1);
  for (const AttentionReport& attention : c.inspection.attention) {
    EXPECT_EQ(attention.mask, "causal+padding");
  }
  EXPECT_EQ(Converted(AsModel(*c.model)).status, ConvertStatus::kNothing);
}

// GroupQueryAttention with its rotation inside. Its lengths are counted from the mask, which goes.
TEST(GroupQueryAttention, IsLowered) {
  const Conversion c = Converted(LoadTestModel("llama_genai_gqa"));
  ASSERT_EQ(c.status, ConvertStatus::kConverted) << Describe(AllReasons(c));
  EXPECT_EQ(CountNodes(*c.model, "GroupQueryAttention"), 0);
  EXPECT_EQ(CountNodes(*c.model, "SimplifiedLayerNormalization"), 0);
  EXPECT_EQ(CountNodes(*c.model, "RotaryEmbedding"), 4);
  EXPECT_EQ(CountNodes(*c.model, "TensorScatter"), 4);
  ASSERT_THAT(c.manifest.dropped, SizeIs(1));
  EXPECT_EQ(c.manifest.dropped[0].name, "attention_mask");
  EXPECT_EQ(GivenText(c.manifest.dropped[0]), "ones");
  const auto& codes = c.manifest.preconditions;
  EXPECT_TRUE(std::any_of(codes.begin(), codes.end(),
                          [](const Precondition& p) { return p.code == "KV305"; }));
  for (const AttentionReport& attention : c.inspection.attention) {
    EXPECT_EQ(attention.mask, "causal");
    EXPECT_THAT(attention.nodes, ::testing::Each(HasSubstr("GroupQueryAttention")));
  }
}

// Every model of the folder is expected to do something by a test above.
// Its caches stay in int8: rows are rounded in front of TensorScatter and read behind it.
TEST(GroupQueryAttention, OverCachesInInt8IsLowered) {
  const Conversion c = Converted(LoadTestModel("llama_genai_gqa_int8"));
  ASSERT_EQ(c.status, ConvertStatus::kConverted) << Describe(AllReasons(c));
  EXPECT_EQ(CountNodes(*c.model, "GroupQueryAttention"), 0);
  EXPECT_EQ(CountNodes(*c.model, "TensorScatter"), 4);
  EXPECT_EQ(CountNodes(*c.model, "QuantizeLinear"), 4);
  EXPECT_EQ(CountNodes(*c.model, "DequantizeLinear"), 4);
  EXPECT_EQ(c.manifest.caches.front().dtype, "int8");
}

TEST(RealModels, AreAllExpected) {
  std::set<std::string> expected = {"llama_optimum_prefill_only", "llama_optimum_merged",
                                    "llama_genai_gqa", "llama_genai_gqa_int8", kWithSinks};
  const auto* unit = ::testing::UnitTest::GetInstance();
  for (int s = 0; s < unit->total_test_suite_count(); ++s) {
    const auto* suite = unit->GetTestSuite(s);
    for (int t = 0; t < suite->total_test_count(); ++t) {
      const std::string name = suite->GetTestInfo(t)->name();
      if (const size_t slash = name.rfind('/'); slash != std::string::npos) {
        expected.insert(name.substr(slash + 1));
      }
    }
  }
  for (const std::string& name : ModelNames()) {
    EXPECT_TRUE(expected.contains(name)) << name << " is in no list of this test";
  }
}

}  // namespace
}  // namespace kvlift
