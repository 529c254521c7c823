// LIBS: ports
// The roles of inputs and outputs in a model of two layers by hand, and in variants of it: each
// variant is the text with some words replaced. No name of the model says what it is for.
#include "ports/ports.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnxio/model/model.h"

namespace kvlift {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Edits = std::vector<std::pair<std::string, std::string>>;

constexpr char kDecoder[] = R"(<ir_version: 12, opset_import: ["" : 24]>
g (int64[B,S] a, int64[B] b, int64[B] c, float[B,32,8] d0, float[B,32,8] e0, float[B,32,8] d1,
   float[B,32,8] e1) => (float[B,S,50] f, float[B,32,8] g0, float[B,32,8] h0, float[B,32,8] g1,
   float[B,32,8] h1)
<int64[1] zero = {0}, int64[1] one = {1}, int64[1] four = {4}, int64[3] flat = {0, 0, 8},
 int64[4] heads = {0, 0, 2, 4}, int64[1] minus = {-1}> {
  x = Gather(table, a)
  k0 = Neg(x)
  v0 = Abs(x)
  g0 = TensorScatter<axis = 1>(d0, k0, b)
  h0 = TensorScatter<axis = 1>(e0, v0, b)
  y0 = Attention<q_num_heads = 2, kv_num_heads = 2>(x, g0, h0, , , , c)
  k1 = Neg(y0)
  v1 = Abs(y0)
  g1 = TensorScatter<axis = 1>(d1, k1, b)
  h1 = TensorScatter<axis = 1>(e1, v1, b)
  y1 = Attention<q_num_heads = 2, kv_num_heads = 2>(y0, g1, h1, , , , c)
  f = MatMul(y1, head)
})";

void AddWeight(const std::string& name, const std::vector<int64_t>& dims, onnx::ModelProto* model) {
  auto* tensor = model->mutable_graph()->add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(onnx::TensorProto::FLOAT);
  int64_t count = 1;
  for (const int64_t dim : dims) {
    tensor->add_dims(dim);
    count *= dim;
  }
  for (int64_t k = 0; k < count; ++k) tensor->add_float_data(0.5F);
}

onnx::ModelProto Decoder(const Edits& edits) {
  std::string text = kDecoder;
  for (const auto& [from, to] : edits) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) text.replace(at, from.size(), to);
  }
  auto model = ParseModelText(text);
  EXPECT_TRUE(model.ok()) << model.status() << "\n" << text;
  if (!model.ok()) return {};
  AddWeight("table", {50, 8}, &*model);
  AddWeight("places", {64, 8}, &*model);
  AddWeight("head", {8, 50}, &*model);
  return *std::move(model);
}

DecoderPorts PortsOf(const onnx::ModelProto& model) {
  const auto reading = ReadPorts(model);
  EXPECT_TRUE(reading.ok()) << reading.status();
  if (!reading.ok()) return {};
  EXPECT_TRUE(reading->ports) << reading->refusal->text;
  return reading->ports.value_or(DecoderPorts());
}

DecoderPorts PortsOf(const Edits& edits) { return PortsOf(Decoder(edits)); }

Finding RefusalOf(const onnx::ModelProto& model) {
  const auto reading = ReadPorts(model);
  EXPECT_TRUE(reading.ok()) << reading.status();
  if (!reading.ok()) return {};
  EXPECT_FALSE(reading->ports);
  const Finding refusal = reading->refusal.value_or(Finding());
  EXPECT_EQ(refusal.code, "KV254");
  return refusal;
}

// Returns the text of the refusal, which names the nodes that it is about.
std::string Refused(const Edits& edits) { return RefusalOf(Decoder(edits)).text; }

TEST(Ports, ModelByHand) {
  const DecoderPorts ports = PortsOf(Edits());
  EXPECT_EQ(ports.token_input, "a");
  EXPECT_EQ(SequenceSource(ports), "token_ids");
  EXPECT_EQ(ports.logits_output, "f");
  EXPECT_EQ(ports.write_indices_input, "b");
  EXPECT_EQ(ports.kv_sequence_length_input, "c");
  EXPECT_THAT(ports.key_cache_inputs, ElementsAre("d0", "d1"));
  EXPECT_THAT(ports.value_cache_inputs, ElementsAre("e0", "e1"));
  EXPECT_THAT(ports.key_cache_outputs, ElementsAre("g0", "g1"));
  EXPECT_THAT(ports.value_cache_outputs, ElementsAre("h0", "h1"));
  EXPECT_THAT(ports.other_inputs, IsEmpty());
  EXPECT_THAT(ports.other_outputs, IsEmpty());
}

TEST(Ports, Text) {
  EXPECT_EQ(MetadataText(PortsOf({{"int64[B,S] a", "int64[B,S] a, float[B] unread"}})),
            R"(model:
  io:
    token_input: "a"
    sequence_source: "token_ids"
    logits_output: "f"
    static_cache:
      write_indices_input: "b"
      kv_sequence_length_input: "c"
      key_cache_inputs:
        - "d0"
        - "d1"
      value_cache_inputs:
        - "e0"
        - "e1"
      key_cache_outputs:
        - "g0"
        - "g1"
      value_cache_outputs:
        - "h0"
        - "h1"
)");
}

TEST(Ports, ViewsAndCasts) {
  const DecoderPorts ports = PortsOf({
      // The cache of keys is stored flat and written as heads.
      {"g0 = TensorScatter<axis = 1>(d0, k0, b)",
       "d = Reshape(d0, heads) k = Reshape(k0, heads) g = TensorScatter<axis = 1>(d, k, b) "
       "gi = Identity(g) g0 = Reshape(gi, flat)"},
      {"(x, g0, h0, , , , c)", "(x, g0, r, , , , n)"},
      {"y0 = ",
       "i = Cast<to = 6>(c) j = Unsqueeze(i, zero) l = Squeeze(j, zero) "
       "n = Cast<to = 7>(l) s = Slice(h0, zero, four, one) r = Identity(s) y0 = "},
      {"(d1, k1, b)", "(d1, k1, t)"},
      {"g1 = ", "o = Identity(b) t = Reshape(o, minus) g1 = "},
  });
  EXPECT_THAT(ports.key_cache_inputs, ElementsAre("d0", "d1"));
  EXPECT_THAT(ports.key_cache_outputs, ElementsAre("g0", "g1"));
  EXPECT_EQ(ports.write_indices_input, "b");
  EXPECT_EQ(ports.kv_sequence_length_input, "c");
}

TEST(Ports, QuantisedCaches) {
  const DecoderPorts ports = PortsOf({
      {"float[B,32,8] d0", "int8[B,32,8] d0"},
      {"float[B,32,8] g0", "int8[B,32,8] g0"},
      {"(d0, k0, b)", "(d0, kq, b)"},
      {"g0 = ",
       "scale = Constant<value_float = 0.5>() offset = Constant<value = int8 {0}>() "
       "kq = QuantizeLinear(k0, scale, offset) g0 = "},
      {"(x, g0, h0,", "(x, rs, h0,"},
      {"y0 = ", "r = DequantizeLinear(g0, scale, offset) rs = Mul(scale, r) y0 = "},
  });
  EXPECT_THAT(ports.key_cache_inputs, ElementsAre("d0", "d1"));
}

TEST(Ports, LayersInTheOrderOfAttention) {
  // The inputs of the second layer come first, and its values before its keys.
  const DecoderPorts ports =
      PortsOf({{"float[B,32,8] d0, float[B,32,8] e0, float[B,32,8] d1,\n"
                "   float[B,32,8] e1",
                "float[B,32,8] e1, float[B,32,8] d1, float[B,32,8] e0, "
                "float[B,32,8] d0"}});
  EXPECT_THAT(ports.key_cache_inputs, ElementsAre("d0", "d1"));
  EXPECT_THAT(ports.value_cache_inputs, ElementsAre("e0", "e1"));
}

TEST(Ports, LayersThatShareCaches) {
  const DecoderPorts ports =
      PortsOf({{"f = MatMul(y1, head)",
                "y2 = Attention<q_num_heads = 2, kv_num_heads = 2>(y1, g0, h0, , , , c) "
                "f = MatMul(y2, head)"}});
  EXPECT_THAT(ports.key_cache_inputs, ElementsAre("d0", "d1"));
}

TEST(Ports, CallsOfFunctions) {
  const DecoderPorts ports =
      PortsOf({{R"(["" : 24])", R"(["" : 24, "own" : 1])"},
               {"g0 = TensorScatter<axis = 1>(d0, k0, b)", "g0 = own.write(d0, k0, b)"},
               {"f = MatMul(y1, head)\n}",
                "f = MatMul(y1, head)\n}\n"
                R"(<opset_import: ["" : 24], domain: "own">
        write (past, rows, at) => (present) { present = TensorScatter<axis = 1>(past, rows, at) })"}});
  EXPECT_THAT(ports.key_cache_inputs, ElementsAre("d0", "d1"));
}

// Learned positions are rows of a table, too: the scores tell which table is that of the tokens.
const Edits kLearnedPositions = {
    {"int64[B,S] a", "int64[B,S] a, int64[B,S] p"},
    {"x = Gather(table, a)", "w = Gather(table, a) q = Gather(places, p) x = Add(w, q)"}};

TEST(Ports, LearnedPositions) {
  const DecoderPorts ports = PortsOf(kLearnedPositions);
  EXPECT_EQ(ports.token_input, "a");
  EXPECT_EQ(ports.position_ids_input, "");
  EXPECT_THAT(ports.other_inputs, ElementsAre("p"));
}

TEST(Ports, TablesBehindOtherNodes) {
  // A table that is stored by columns, and one of ONNX Runtime's own form that lacks operands.
  const DecoderPorts ports =
      PortsOf({{"x = Gather(table, a)", "rows = Transpose(head) x = Gather(rows, a)"}});
  EXPECT_EQ(ports.token_input, "a");
  EXPECT_EQ(ports.logits_output, "f");
  const DecoderPorts odd = PortsOf({{R"(["" : 24])", R"(["" : 24, "com.microsoft" : 1])"},
                                    {"x = Gather(table, a)",
                                     "w = com.microsoft.GatherBlockQuantized(table) "
                                     "x = Gather(table, a)"}});
  EXPECT_EQ(odd.token_input, "a");
}

TEST(Ports, AmbiguousTokens) {
  Edits edits = kLearnedPositions;
  edits.push_back({"Gather(places, p)", "Gather(table, p)"});
  const DecoderPorts ports = PortsOf(edits);
  EXPECT_EQ(ports.token_input, "");
  EXPECT_EQ(SequenceSource(ports), "");
  EXPECT_THAT(ports.other_inputs, ElementsAre("a", "p"));
}

const Edits kRotation = {{"int64[B,S] a", "int64[B,S] a, int64[B,S] p"},
                         {"k0 = Neg(x)", "turn = Gather(places, p) k0 = Mul(x, turn)"}};

TEST(Ports, Positions) {
  const DecoderPorts ports = PortsOf(kRotation);
  EXPECT_EQ(ports.token_input, "a");
  EXPECT_EQ(ports.position_ids_input, "p");
  EXPECT_THAT(ports.other_inputs, IsEmpty());
}

TEST(Ports, AnInputOfAnotherShapeIsNoPosition) {
  Edits edits = kRotation;
  edits[0].second = "int64[B,S] a, int64[B,T] p";
  const DecoderPorts ports = PortsOf(edits);
  EXPECT_EQ(ports.position_ids_input, "");
  EXPECT_THAT(ports.other_inputs, ElementsAre("p"));
}

const Edits kEmbedded = {{"int64[B,S] a", "float[B,S,8] a"},
                         {"x = Gather(table, a)", "x = Identity(a)"}};

TEST(Ports, Embeddings) {
  Edits edits = kEmbedded;
  edits.push_back({"float[B,S,8] a", "float[B,S,8] a, int64[B,S] p"});
  edits.push_back(kRotation[1]);
  const DecoderPorts ports = PortsOf(edits);
  EXPECT_EQ(ports.token_input, "");
  EXPECT_EQ(ports.inputs_embeds_input, "a");
  EXPECT_EQ(SequenceSource(ports), "inputs_embeds");
  EXPECT_EQ(ports.position_ids_input, "p");
  EXPECT_EQ(ports.logits_output, "f");
}

TEST(Ports, HiddenStatesAreNoLogits) {
  for (const Edits& source : {Edits(), kEmbedded}) {
    Edits edits = source;
    edits.push_back({"float[B,S,50] f", "float[B,S,8] f"});
    edits.push_back({"f = MatMul(y1, head)", "f = Identity(y1)"});
    const DecoderPorts ports = PortsOf(edits);
    EXPECT_EQ(ports.logits_output, "");
    EXPECT_THAT(ports.other_outputs, ElementsAre("f"));
  }
  const DecoderPorts both =
      PortsOf({{"float[B,S,50] f", "float[B,S,8] m, float[B,S,50] f"},
               {"f = MatMul(y1, head)", "m = Identity(y1) f = MatMul(y1, head)"}});
  EXPECT_EQ(both.logits_output, "f");
  EXPECT_THAT(both.other_outputs, ElementsAre("m"));
}

Edits Masked(const std::string& type) {
  return {{"int64[B,S] a", "int64[B,S] a, " + type + " m"},
          {"y0 = ", "mb = Cast<to = 9>(m) m3 = Unsqueeze(mb, one) m4 = Unsqueeze(m3, one) y0 = "},
          {"(x, g0, h0, , , , c)", "(x, g0, h0, m4, , , c)"}};
}

TEST(Ports, PaddingMask) {
  const DecoderPorts ports = PortsOf(Masked("int64[B,32]"));
  EXPECT_EQ(ports.attention_mask_input, "m");
  EXPECT_THAT(ports.other_inputs, IsEmpty());
  EXPECT_EQ(PortsOf(Masked("int64[B,T]")).attention_mask_input, "");
}

TEST(PortsRefused, NoTensorScatter) {
  EXPECT_THAT(RefusalOf(*ParseModelText(R"(<ir_version: 12, opset_import: ["" : 24]>
                g (float[B,2,P,4] past, float[B,2,S,4] rows) => (float[B,2,T,4] present)
                { present = Concat<axis = 2>(past, rows) })"))
                  .text,
              HasSubstr("no TensorScatter writes a cache; `convert --target genai-static`"));
  EXPECT_THAT(RefusalOf(*ParseModelText(R"(<ir_version: 12, opset_import: ["" : 24]>
                g (bool go, float[B,2,M,4] past, float[B,2,S,4] rows, int64[B] at)
                  => (float[B,2,M,4] present) {
                  present = If(go) <
                    then_branch = t () => (float[B,2,M,4] y) { y = TensorScatter(past, rows, at) },
                    else_branch = e () => (float[B,2,M,4] z) { z = Identity(past) }> })"))
                  .text,
              HasSubstr("TensorScatter y stands in a body of If present"));
}

TEST(PortsRefused, WhatIsWritten) {
  EXPECT_THAT(Refused({{"(d0, k0, b)", "(d, k0, b)"}, {"g0 = ", "d = Neg(d0) g0 = "}}),
              HasSubstr("TensorScatter g0 writes into d, which is no input of the model but made "
                        "by Neg d"));
  EXPECT_THAT(Refused({{"g0 = ", "d = TensorScatter<axis = 1>(d0, k0, b) g0 = "},
                       {"g0 = TensorScatter<axis = 1>(d0", "g0 = TensorScatter<axis = 1>(d"},
                       {"float[B,32,8] g0", "float[B,32,8] g0, float[B,32,8] d"}}),
              HasSubstr("two nodes write into d0, TensorScatter d and TensorScatter g0"));
  EXPECT_THAT(Refused({{"(e0, v0, b)", "(d0, v0, b)"}}),
              HasSubstr("two nodes write into d0, TensorScatter g0 and TensorScatter h0"));
  EXPECT_THAT(Refused({{"g0 = TensorScatter<axis = 1>(d0, k0, b)",
                        "gi = TensorScatter<axis = 1>(d0, k0, b) g0 = Neg(gi)"}}),
              HasSubstr("no output hands back what TensorScatter gi writes into d0"));
  EXPECT_THAT(Refused({{"float[B,32,8] g0", "float[B,32,8] g0, float[B,32,8] u"},
                       {"y0 = ", "u = Identity(g0) y0 = "}}),
              HasSubstr("TensorScatter g0 hands d0 back twice, as g0 and as u"));
  EXPECT_THAT(Refused({{"g0 = TensorScatter<axis = 1>",
                        "g0 = TensorScatter<axis = 1, mode = \"circular\">"}}),
              HasSubstr("d0 is a ring"));
}

TEST(PortsRefused, OtherCachesBeside) {
  EXPECT_THAT(
      Refused({{"float[B,32,8] e1", "float[B,P,8] e1"},
               {"float[B,32,8] h1", "float[B,T,8] h1"},
               {"h1 = TensorScatter<axis = 1>(e1, v1, b)", "h1 = Concat<axis = 1>(e1, v1)"}}),
      HasSubstr("Concat h1 makes h1 of e1, and no TensorScatter writes it"));
  EXPECT_THAT(Refused({{"int64[B] b", "int64[B] b, int64[B,S,8] r"},
                       {"h1 = TensorScatter<axis = 1>(e1, v1, b)",
                        "hi = ScatterElements<axis = 1>(e1, r, v1) h1 = Identity(hi)"}}),
              HasSubstr("ScatterElements hi makes h1 of e1"));
  EXPECT_THAT(
      Refused({{"int64[B] b", "int64[B] b, float[B,2,P,4] pk, float[B,2,P,4] pv"},
               {"f = MatMul(y1, head)",
                "y2, nk, nv = Attention<q_num_heads = 2, kv_num_heads = 2>(y1, k1, v1, , "
                "pk, pv) f = MatMul(y2, head)"},
               {"float[B,32,8] g0", "float[B,32,8] g0, float[B,2,T,4] nk, float[B,2,T,4] nv"}}),
      HasSubstr("Attention y2 makes nk of pk"));
  EXPECT_THAT(Refused({{"int64[B] b", "int64[B] b, float[B,2,P,4] pk, float[B,2,P,4] pv"},
                       {"f = MatMul(y1, head)",
                        "y2 = Attention<q_num_heads = 2, kv_num_heads = 2>(y1, k1, v1, , pk, pv) "
                        "f = MatMul(y2, head)"}}),
              HasSubstr("Attention y2 appends to a past of its own, pk"));
}

TEST(PortsRefused, WhatAttentionReads) {
  EXPECT_THAT(Refused({{"(x, g0, h0,", "(x, g0, g0,"}}),
              HasSubstr("d0 holds keys and values in one tensor (read by Attention y0)"));
  EXPECT_THAT(Refused({{"(x, g0, h0,", "(x, g0, vn,"}, {"y0 = ", "vn = Neg(h0) y0 = "}}),
              HasSubstr("Attention y0 reads keys from g0 and values from no cache"));
  EXPECT_THAT(Refused({{"(x, g0, h0,", "(x, d0, h0,"}}),
              HasSubstr("Attention y0 reads d0 without the rows of the step"));
  EXPECT_THAT(Refused({{"(x, g0, h0,", "(x, part, h0,"},
                       {"y0 = ", "part = Gather<axis = 0>(g0, zero) y0 = "}}),
              HasSubstr("Attention y0 reads a part of d0 (Gather part)"));
  EXPECT_THAT(Refused({{"(y0, g1, h1,", "(y0, g1, h0,"}}),
              HasSubstr("Attention y1 reads d1 and e0 as keys and values, and Attention y0 reads "
                        "one of them otherwise"));
  EXPECT_THAT(
      Refused({{"(y0, g1, h1,", "(y0, kn, vn,"}, {"y1 = ", "kn = Neg(g1) vn = Neg(h1) y1 = "}}),
      HasSubstr("no Attention reads g1 as keys or values"));
}

TEST(PortsRefused, ControlInputs) {
  EXPECT_THAT(Refused({{"(d1, k1, b)", "(d1, k1)"}}),
              HasSubstr("TensorScatter g1 has no write_indices; `convert --target "
                        "genai-static` makes it an input where the source's caches grow"));
  EXPECT_THAT(Refused({{"g0 = ", "at = Sub(c, one) g0 = "}, {"(d0, k0, b)", "(d0, k0, at)"}}),
              HasSubstr("write_indices of TensorScatter g0 is at, which Sub at computes"));
  EXPECT_THAT(Refused({{"(d0, k0, b)", "(d0, k0, zero)"}}),
              HasSubstr("write_indices of TensorScatter g0 is zero, which is a constant"));
  EXPECT_THAT(Refused({{"int64[B] b", "int64[B] b, int64[B] z"}, {"(e0, v0, b)", "(e0, v0, z)"}}),
              HasSubstr("write_indices of TensorScatter h0 is z, and of others b"));
  EXPECT_THAT(Refused({{"y0 = ", "n = Add(b, one) y0 = "}, {"h0, , , , c)", "h0, , , , n)"}}),
              HasSubstr("nonpad_kv_seqlen of Attention y0 is n, which Add n computes; "
                        "`convert --target genai-static` makes it an input"));
  EXPECT_THAT(Refused({{"(y0, g1, h1, , , , c)", "(y0, g1, h1)"}}),
              HasSubstr("Attention y1 has no nonpad_kv_seqlen"));
  EXPECT_THAT(Refused({{"h0, , , , c)", "h0, , , , b)"}, {"h1, , , , c)", "h1, , , , b)"}}),
              HasSubstr("b is both the write index and the length of the valid rows"));
}

TEST(PortsRefused, NamesThatNoFileHolds) {
  onnx::ModelProto model = Decoder({});
  model.mutable_graph()->mutable_input(3)->set_name("d\xff");
  for (auto& node : *model.mutable_graph()->mutable_node()) {
    for (auto& input : *node.mutable_input()) {
      if (input == "d0") input = "d\xff";
    }
  }
  EXPECT_THAT(RefusalOf(model).text, HasSubstr("not valid UTF-8"));
}

TEST(PortsRefused, NamesItsNodes) {
  EXPECT_THAT(RefusalOf(Decoder({{"(d1, k1, b)", "(d1, k1)"}})).nodes, ElementsAre("g1"));
}

}  // namespace
}  // namespace kvlift
