// LIBS: maintenance onnxio
// What the number of a slot means to a model, case by case.
#include "maintenance/slots.h"

#include <string>

#include "contract/words.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "maintenance/maintenance.h"
#include "onnxio/model/model.h"

namespace kvlift {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// One layer whose queries and keys are rotated, of sorts, by a table of 64 positions.
struct Layer {
  std::string inputs = "int64[B,S] position_ids, int64[B,T] attention_mask";
  std::string positions = "place = Identity(position_ids)";
  std::string mask = "";    // nodes
  std::string masked = "";  // operand
  std::string read = "k = Identity(present_key) v = Identity(present_value)";
  std::string nonpad = "valid = Add(write_indices, tokens)";
  std::string scatter = "axis = 2";
  std::string causal = "is_causal = 1";

  std::string Text() const {
    return fmt::format(R"(<ir_version: 12, opset_import: ["" : 24]>
      g (float[B,2,S,4] q, float[B,2,S,4] key, float[B,2,S,4] value, {0},
         int64[B] write_indices, float[64,4] table, float[B,2,M,4] past_key, float[B,2,M,4] past_value)
        => (float[B,2,S,4] y, float[B,2,M,4] present_key, float[B,2,M,4] present_value)
        <int64 zero = {{0}}, int64 one = {{1}}, int64[1] heads = {{1}},
         int64[1] first = {{0}}, int64[1] second = {{1}}, int64[1] slots_axis = {{2}},
         int64[1] last = {{3}}> {{
        tokens = Shape<start = 2, end = 3>(key)
        slots = Shape<start = 2, end = 3>(past_key)
        number = Squeeze(tokens)
        count = Squeeze(slots)
        line = Range(zero, number, one)
        column = Range(zero, count, one)
        start = Unsqueeze(write_indices, second)
        {1}
        angles = Gather(table, place)
        turn = Unsqueeze(angles, heads)
        turned_q = Mul(q, turn)
        turned_key = Mul(key, turn)
        {2}
        present_key = TensorScatter<{3}>(past_key, turned_key, write_indices)
        present_value = TensorScatter<{3}>(past_value, value, write_indices)
        {4}
        {5}
        y = Attention<{6}>(turned_q, k, v, {7}, , , valid)
      }})",
                       inputs, positions, mask, scatter, read, nonpad, causal, masked);
  }
};

Manifest ManifestOf() {
  Manifest manifest;
  for (const CacheRole role : {CacheRole::kKey, CacheRole::kValue}) {
    ManifestCache cache;
    cache.id = fmt::format("0.{}", WordOf(role));
    cache.input = fmt::format("past_{}", WordOf(role));
    cache.output = fmt::format("present_{}", WordOf(role));
    cache.role = role;
    cache.layout = "BNSD";
    cache.dtype = "float32";
    cache.alias = CacheAlias::kSafe;
    manifest.caches.push_back(cache);
  }
  manifest.inputs.push_back({"write_indices", ControlInput{}});
  return manifest;
}

Graph GraphOf(const Layer& layer) {
  const auto proto = ParseModelText(layer.Text());
  EXPECT_TRUE(proto.ok()) << proto.status() << layer.Text();
  auto graph =
      Graph::Build(std::make_shared<const onnx::ModelProto>(proto.value_or(onnx::ModelProto())));
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

SlotReading Read(const Layer& layer) { return ReadSlots(GraphOf(layer), ManifestOf()); }

// "" where rows may be moved.
std::string Code(const Layer& layer) {
  const SlotReading reading = Read(layer);
  if (!reading.refusal) return "";
  EXPECT_THAT(reading.by_slot, IsEmpty());
  EXPECT_FALSE(reading.refusal->text.empty());
  return reading.refusal->code;
}

TEST(Slots, PositionsOfTheHost) {
  EXPECT_EQ(Code({}), "");
  EXPECT_THAT(Read({}).by_slot, IsEmpty());
}

TEST(Slots, PositionsFromTheWriteIndex) {
  Layer layer;
  layer.positions = "place = Add(start, line)";
  EXPECT_EQ(Code(layer), "KV231");
  // The host gives the positions, but the graph bounds them by the index.
  layer.positions = "least = Max(position_ids, start) place = Identity(least)";
  EXPECT_EQ(Code(layer), "KV231");
  layer.positions = "place = Sub(position_ids, start)";
  EXPECT_EQ(Code(layer), "KV231");
}

TEST(Slots, PositionsCountedFromTheMask) {
  Layer layer;
  layer.mask =
      "bits = Cast<to = 9>(attention_mask) wide = Unsqueeze(bits, heads) "
      "seen = Unsqueeze(wide, heads)";
  layer.masked = "seen";
  layer.inputs = "int64[B,S] position_ids, int64[B,T] attention_mask";
  EXPECT_EQ(Code(layer), "");
  EXPECT_THAT(Read(layer).by_slot, ElementsAre("attention_mask"));
  layer.positions =
      "sums = CumSum(attention_mask, one) from = Neg(tokens) place = Slice(sums, from, slots, "
      "second)";
  EXPECT_EQ(Code(layer), "KV231");
  layer.positions =
      "width = Shape<start = 1, end = 2>(attention_mask) from = Sub(width, tokens) "
      "row = Unsqueeze(line, first) place = Add(from, row)";
  EXPECT_EQ(Code(layer), "KV231");
}

TEST(Slots, MasksFromSlots) {
  Layer layer;
  layer.causal = "is_causal = 0";
  layer.masked = "seen";
  const std::string ends =
      "row = Unsqueeze(line, first) end = Add(start, row) far = Unsqueeze(end, last2) "
      "wide = Unsqueeze(far, second) ";
  const std::string axes = "last2 = Constant<value = int64[1] {2}>() ";
  layer.mask = axes + ends + "seen = LessOrEqual(column, wide)";
  EXPECT_EQ(Code(layer), "");
  // The last five tokens, as slots count them.
  layer.mask = axes + ends +
               "five = Constant<value = int64 {5}>() low = Sub(wide, five) "
               "near = Greater(column, low) behind = LessOrEqual(column, wide) "
               "seen = And(near, behind)";
  EXPECT_EQ(Code(layer), "KV232");
  // Hides the last old token.
  layer.mask = axes + ends +
               "two = Constant<value = int64 {2}>() less = Sub(wide, two) "
               "seen = LessOrEqual(column, less)";
  EXPECT_EQ(Code(layer), "KV232");
  // Every other slot.
  layer.mask = axes + ends +
               "two = Constant<value = int64 {2}>() odd = Mod(column, two) "
               "some = Cast<to = 9>(odd) behind = LessOrEqual(column, wide) "
               "seen = And(some, behind)";
  EXPECT_EQ(Code(layer), "KV232");
}

// New tokens see one another as the host says: a tree of drafts.
TEST(Slots, MasksBetweenNewTokens) {
  Layer layer;
  layer.inputs = "int64[B,S] position_ids, bool[B,1,S,S] tree, int64[B,T] attention_mask";
  layer.masked = "seen";
  const std::string all =
      "yes = Constant<value = bool[1] {1}>() batch = Shape<start = 0, end = 1>(tree) "
      "shape = Concat<axis = 0>(batch, heads, tokens, slots) open = Expand(yes, shape) ";
  layer.mask = all + "seen = TensorScatter<axis = 3>(open, tree, write_indices)";
  EXPECT_EQ(Code(layer), "");
  layer.mask = all +
               "bits = Cast<to = 9>(attention_mask) wide = Unsqueeze(bits, heads) "
               "pads = Unsqueeze(wide, heads) "
               "drawn = TensorScatter<axis = 3>(open, tree, write_indices) seen = And(drawn, pads)";
  EXPECT_EQ(Code(layer), "");
  EXPECT_THAT(Read(layer).by_slot, ElementsAre("attention_mask"));
  // A slot further, they hide an old token.
  layer.mask = all +
               "before = Sub(write_indices, second) "
               "seen = TensorScatter<axis = 3>(open, tree, before)";
  EXPECT_EQ(Code(layer), "KV232");
}

TEST(Slots, BiasesFromSlots) {
  Layer layer;
  layer.mask =
      "far = Cast<to = 1>(column) slope = Constant<value = float {0.5}>() "
      "bias = Mul(far, slope) shape = Concat<axis = 0>(heads, heads, tokens, slots) "
      "seen = Expand(bias, shape)";
  layer.masked = "seen";
  EXPECT_EQ(Code(layer), "KV232");
}

TEST(Slots, Rings) {
  Layer layer;
  layer.scatter = "axis = 2, mode = \"circular\"";
  EXPECT_EQ(Code(layer), "KV233");
}

TEST(Slots, OtherReaders) {
  Layer layer;
  // Keys rotated as they are read: by their slots.
  layer.read =
      "cut = Slice(table, first, slots, first) k = Mul(present_key, cut) "
      "v = Identity(present_value)";
  EXPECT_EQ(Code(layer), "KV234");
  layer.read =
      "k = Slice(present_key, second, slots, slots_axis) "
      "v = Slice(present_value, second, slots, slots_axis)";
  EXPECT_EQ(Code(layer), "KV234");
  layer.read =
      "k = Slice(present_key, first, valid, slots_axis) "
      "v = Slice(present_value, first, valid, slots_axis)";
  EXPECT_EQ(Code(layer), "");
  layer.read = "v = Identity(present_value) k = Identity(v)";
  EXPECT_EQ(Code(layer), "");
  layer.read = "k = Identity(key) v = Identity(present_value)";
  EXPECT_EQ(Code(layer), "KV234");
}

TEST(Slots, ValidLength) {
  Layer layer;
  layer.nonpad = "more = Add(tokens, second) valid = Add(write_indices, more)";
  EXPECT_EQ(Code(layer), "KV234");
}

TEST(Slots, CachesThatGrowOrAreMissing) {
  Manifest manifest = ManifestOf();
  manifest.caches[1].grows = true;
  const Graph graph = GraphOf({});
  EXPECT_EQ(ReadSlots(graph, manifest).refusal->code, "KV234");
  EXPECT_FALSE(MakeCompanion(graph, manifest, {}).ok());
  manifest = ManifestOf();
  manifest.caches[1].input = "other";
  EXPECT_EQ(ReadSlots(graph, manifest).refusal->code, "KV234");
  manifest = ManifestOf();
  manifest.caches[0].layout = "SBND";
  EXPECT_FALSE(MakeCompanion(graph, manifest, {}).ok());
  EXPECT_TRUE(MakeCompanion(graph, ManifestOf(), {}).ok());
}

}  // namespace
}  // namespace kvlift
