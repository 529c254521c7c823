// LIBS: contract
#include "contract/manifest.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "contract/manifest_json.h"
#include "contract/words.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace kvlift {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

// As the contract prints it, with every kind of entry.
constexpr char kText[] = R"({
  "schema": "kvlift/manifest/1", "semantics": "onnx-1.23-errata", "source_sha256": "ab12",
  "target": "spec", "capacity": {"dim": "max_sequence_length", "value": null},
  "mode": "linear", "read": "prefix", "uniform": true, "uniform_reason": "one mask for all",
  "caches": [
    {"id": "0.key", "layer": 0, "role": "key", "input": "past.0.key", "output": "present.0.key",
     "dtype": "float32", "layout": "BNSD", "axis": 2, "alias": "safe",
     "source": {"input": "past", "output": "present", "kind": "concat", "layout": "BSND",
                "axis": 1, "growing": true, "select": [{"axis": 0, "index": 1}]}},
    {"id": "0.value", "layer": 0, "role": "value", "input": "past.0.value",
     "output": "present.0.value", "dtype": "float16", "layout": "BNSD", "axis": 2, "alias": "copy",
     "readers": ["Shape_7", "Add_9"], "ring": {"window": 1023},
     "source": {"input": "pv", "output": "qv", "kind": "scatter", "layout": "BNSD", "axis": 2,
                "growing": false, "select": []}}],
  "inputs": [
    {"name": "input_ids", "as": "same"},
    {"name": "write_indices", "as": "control", "value": "P", "dtype": "int64", "shape": ["B"]},
    {"name": "attention_mask", "as": "pad_to_capacity", "axis": 1, "fill": 0},
    {"name": "past.0.key", "as": "cache", "id": "0.key"},
    {"name": "new", "as": "renamed", "source": "old"}],
  "outputs": [
    {"name": "logits", "as": "same"},
    {"name": "present.0.key", "as": "cache", "id": "0.key"}],
  "dropped": [{"name": "position_ids", "requires": "P..T-1"}],
  "preconditions": [{"code": "KV301", "text": "inside", "status": "guarded"}]
})";

Manifest Parsed(const std::string& text = kText) {
  auto manifest = ManifestFromJson(text);
  EXPECT_TRUE(manifest.ok()) << manifest.status();
  return manifest.ok() ? *manifest : Manifest();
}

std::string ErrorOf(const ordered_json& json) {
  return std::string(ManifestFromJson(json.dump()).status().message());
}

TEST(Manifest, KeysKeepTheirOrderAndNothingIsLost) {
  // dump() keeps the order of the keys, so equal texts mean equal orders.
  EXPECT_EQ(ToJson(Parsed()).dump(), ordered_json::parse(kText).dump());
}

// After 9 tokens a buffer of 9 slots is full. The next token makes room for 5, so that the newest 5
// of 10 stay, and so on.
TEST(SlidingBuffer, HoldsTheWindowAndAtMostItsSlots) {
  const SlidingBuffer buffer{5, 9};
  const std::vector<int64_t> held = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 5, 6, 7, 8, 9, 5, 6};
  for (size_t tokens = 0; tokens < held.size(); ++tokens) {
    EXPECT_EQ(buffer.RowsHeld(static_cast<int64_t>(tokens)), held[tokens]) << tokens;
  }
  const SlidingBuffer tight{4, 4}, open{4, std::nullopt};
  for (int64_t tokens = 0; tokens < 40; ++tokens) {
    EXPECT_EQ(tight.RowsHeld(tokens), std::min<int64_t>(tokens, 4));
    EXPECT_GE(open.RowsHeld(tokens), std::min<int64_t>(tokens, 4));
    EXPECT_LE(open.RowsHeld(tokens), std::min(tokens, open.slots()));
  }
}

TEST(Manifest, SlidingBuffersAreReadAndWritten) {
  ordered_json json = ordered_json::parse(kText);
  ordered_json& source = json["caches"][0]["source"];
  source["kind"] = "sliding";
  EXPECT_THAT(ErrorOf(json), HasSubstr("source.sliding is missing"));
  source["sliding"] = {{"window", 5}, {"capacity", nullptr}};
  EXPECT_EQ(ToJson(Parsed(json.dump())).dump(), json.dump());
  source["sliding"]["capacity"] = 9;
  EXPECT_EQ(ToJson(Parsed(json.dump())).dump(), json.dump());
  EXPECT_EQ(Parsed(json.dump()).caches[0].source.sliding, (SlidingBuffer{5, 9}));
  source["sliding"]["capacity"] = 4;
  EXPECT_THAT(ErrorOf(json), HasSubstr("sliding.capacity is less than the window"));
  source["sliding"] = {{"window", 0}, {"capacity", nullptr}};
  EXPECT_THAT(ErrorOf(json), HasSubstr("sliding.window is not between 1 and"));
  source["sliding"] = {{"window", 5}, {"capacity", nullptr}};
  source["growing"] = false;
  EXPECT_THAT(ErrorOf(json), HasSubstr("source.growing is false, and the kind \"sliding\""));
  source["growing"] = true;
  source["kind"] = "concat";
  EXPECT_THAT(ErrorOf(json), HasSubstr("source.sliding needs the kind \"sliding\""));
}

TEST(Manifest, ARingIsCircularWhateverTheOthersAre) {
  Manifest m = Parsed();
  EXPECT_FALSE(IsCircular(m, m.caches[0]));
  ASSERT_TRUE(m.caches[1].ring.has_value());
  EXPECT_EQ(m.caches[1].ring->window, 1023);
  EXPECT_TRUE(IsCircular(m, m.caches[1]));
  m.mode = BufferMode::kCircular;
  EXPECT_TRUE(IsCircular(m, m.caches[0]));
  ordered_json json = ordered_json::parse(kText);
  for (const int64_t window : {int64_t{0}, int64_t{1} << 21}) {
    json["caches"][1]["ring"]["window"] = window;
    EXPECT_THAT(ErrorOf(json), HasSubstr("ring.window"));
  }
}

TEST(Manifest, ACapacityIsPositive) {
  ordered_json json = ordered_json::parse(kText);
  json["capacity"]["value"] = 0;
  EXPECT_THAT(ErrorOf(json), HasSubstr("capacity.value"));
}

// Code that reads a manifest uses axes as indices.
TEST(Manifest, AxesAreThoseOfTheLayout) {
  for (const int64_t axis : {int64_t{-1}, int64_t{4}, int64_t{7}, int64_t{100000000000}}) {
    ordered_json json = ordered_json::parse(kText);
    json["caches"][0]["axis"] = axis;
    EXPECT_THAT(ErrorOf(json), HasSubstr("caches[0].axis is no axis of BNSD"));
    json = ordered_json::parse(kText);
    json["caches"][1]["source"]["axis"] = axis;
    EXPECT_THAT(ErrorOf(json), HasSubstr("source.axis is no axis of BNSD"));
  }
}

TEST(Manifest, FieldsAreRead) {
  const Manifest m = Parsed();
  EXPECT_EQ(m.capacity_value, std::nullopt);
  EXPECT_TRUE(m.uniform);
  ASSERT_EQ(m.caches.size(), 2u);
  EXPECT_EQ(m.caches[0].source.select.at(0).index, 1);
  EXPECT_EQ(m.caches[1].readers, (std::vector<std::string>{"Shape_7", "Add_9"}));
  EXPECT_FALSE(m.caches[1].source.growing);
  EXPECT_TRUE(IsControl(m.inputs[1], ControlValue::kPastLength));
  EXPECT_EQ(NameInSource(m.inputs[4]), "old");
  EXPECT_TRUE(IsGiven(m.dropped[0], DroppedValue::kPositions));
}

TEST(Manifest, FixedCapacity) {
  ordered_json json = ordered_json::parse(kText);
  json["capacity"]["value"] = 128;
  EXPECT_EQ(Parsed(json.dump()).capacity_value, 128);
  EXPECT_EQ(ToJson(Parsed(json.dump()))["capacity"]["value"], 128);
}

TEST(Manifest, LimitsAreKeptWhereThereAreAny) {
  EXPECT_FALSE(ToJson(Parsed()).contains("limits"));
  ordered_json json = ordered_json::parse(kText);
  json["limits"] = {{"new_tokens_with_past", 1}};
  EXPECT_EQ(Parsed(json.dump()).limits.new_tokens_with_past, 1);
  EXPECT_EQ(ToJson(Parsed(json.dump())).dump(), json.dump());
  json["limits"]["new_tokens_with_past"] = 0;
  EXPECT_THAT(ErrorOf(json), HasSubstr("limits.new_tokens_with_past"));
  json["limits"] = "none";
  EXPECT_THAT(ErrorOf(json), HasSubstr("limits"));
}

TEST(Manifest, InputsMayHaveToBeAllOnesOrZeros) {
  ordered_json json = ordered_json::parse(kText);
  json["inputs"][2]["requires"] = "zeros";
  EXPECT_EQ(Parsed(json.dump()).inputs[2].all, AllElements::kZeros);
  EXPECT_EQ(ToJson(Parsed(json.dump())).dump(), json.dump());
  json["inputs"][2]["requires"] = "P..T-1";
  EXPECT_THAT(ErrorOf(json), HasSubstr("inputs[2].requires"));
}

TEST(Manifest, ReasonOnlyWhereUniform) {
  Manifest m = Parsed();
  m.uniform = false;
  EXPECT_FALSE(ToJson(m).contains("uniform_reason"));
}

TEST(Manifest, EveryRequiredKeyIsMissed) {
  const ordered_json whole = ordered_json::parse(kText);
  for (const char* key : {"schema", "target", "capacity", "mode", "uniform", "caches", "inputs",
                          "outputs", "dropped", "preconditions"}) {
    ordered_json json = whole;
    json.erase(key);
    EXPECT_THAT(ErrorOf(json), HasSubstr(key));
  }
  for (const char* key :
       {"id", "layer", "role", "input", "output", "dtype", "layout", "axis", "alias", "source"}) {
    ordered_json json = whole;
    json["caches"][1].erase(key);
    EXPECT_THAT(ErrorOf(json), HasSubstr(std::string("caches[1].") + key));
  }
}

TEST(Manifest, WrongTypesAndWordsAreNamed) {
  ordered_json json = ordered_json::parse(kText);
  json["caches"][0]["axis"] = "two";
  EXPECT_THAT(ErrorOf(json), HasSubstr("caches[0].axis has the wrong type"));
  json = ordered_json::parse(kText);
  json["inputs"][0]["as"] = "something";
  EXPECT_THAT(ErrorOf(json), HasSubstr("inputs[0].as"));
  json = ordered_json::parse(kText);
  json["outputs"][0]["as"] = "something";
  EXPECT_THAT(ErrorOf(json), HasSubstr("outputs[0].as"));
  json = ordered_json::parse(kText);
  json["schema"] = "kvlift/manifest/9";
  EXPECT_THAT(ErrorOf(json), HasSubstr("kvlift/manifest/9"));
  json = ordered_json::parse(kText);
  json["caches"] = 3;
  EXPECT_THAT(ErrorOf(json), HasSubstr("caches"));
}

// Lists what an input of the manifest may be: every kind, and every value that a kind has.
ordered_json EveryInput() {
  ordered_json inputs = ordered_json::array();
  inputs.push_back({{"name", "same"}, {"as", "same"}});
  inputs.push_back({{"name", "ones"}, {"as", "same"}, {"requires", "ones"}});
  inputs.push_back({{"name", "cache"}, {"as", "cache"}, {"id", "0.key"}});
  inputs.push_back({{"name", "new"}, {"as", "renamed"}, {"source", "old"}});
  inputs.push_back({{"name", "wide"}, {"as", "pad_to_capacity"}, {"axis", 3}, {"fill", -1}});
  inputs.push_back({{"name", "other"},
                    {"as", "pad_to_capacity"},
                    {"axis", 1},
                    {"fill", 0},
                    {"source", "mask"},
                    {"requires", "zeros"}});
  for (const auto& known : WordsOf<ControlValue>()) {
    inputs.push_back({{"name", "control"},
                      {"as", "control"},
                      {"value", known.word},
                      {"dtype", "int32"},
                      {"shape", {"B", "1"}}});
  }
  return inputs;
}

// Expects the text to be read and written again without a change.
void ExpectKept(const ordered_json& json) {
  const auto manifest = ManifestFromJson(json.dump());
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(ToJson(*manifest).dump(), json.dump());
}

TEST(Manifest, EveryKindOfInputAndOutputIsKept) {
  ordered_json json = ordered_json::parse(kText);
  json["inputs"] = EveryInput();
  json["outputs"] = {{{"name", "y"}, {"as", "same"}},
                     {{"name", "new"}, {"as", "renamed"}, {"source", "old"}},
                     {{"name", "present"}, {"as", "cache"}, {"id", "0.key"}}};
  json["dropped"] = ordered_json::array();
  json["dropped"].push_back({{"name", "x"}, {"requires", "words for people"}});
  for (const auto& known : WordsOf<AllElements>()) {
    json["dropped"].push_back({{"name", "x"}, {"requires", known.word}});
  }
  for (const auto& known : WordsOf<DroppedValue>()) {
    json["dropped"].push_back({{"name", "x"}, {"requires", known.word}});
  }
  ExpectKept(json);
  const Manifest m = Parsed(json.dump());
  std::set<size_t> inputs, outputs, dropped;
  for (const ManifestInput& input : m.inputs) inputs.insert(input.as.index());
  for (const ManifestOutput& output : m.outputs) outputs.insert(output.as.index());
  for (const DroppedInput& input : m.dropped) dropped.insert(input.given.index());
  EXPECT_EQ(inputs.size(), std::variant_size_v<decltype(ManifestInput::as)>);
  EXPECT_EQ(outputs.size(), std::variant_size_v<decltype(ManifestOutput::as)>);
  EXPECT_EQ(dropped.size(), std::variant_size_v<decltype(DroppedInput::given)>);
}

// Puts each word of a kind in the place and expects it to be kept.
template <typename Kind>
void ExpectWordsKept(const std::string& place) {
  ordered_json json = ordered_json::parse(kText);
  json["equality"] = "proved";
  json["assumptions"] = ordered_json::parse(
      R"([{"kind": "ones", "subject": "x", "condition": "", "source": "host", "checked": true}])");
  json["maintenance"] = ordered_json::parse(
      R"({"does": ["keep"], "positions": "given", "position_inputs": ["p"], "by_slot": []})");
  for (const auto& known : WordsOf<Kind>()) {
    json[ordered_json::json_pointer(place)] = known.word;
    // A sliding buffer is described beside its kind.
    ordered_json& source = json["caches"][0]["source"];
    source.erase("sliding");
    if (source["kind"] == "sliding") source["sliding"] = {{"window", 5}, {"capacity", nullptr}};
    ExpectKept(json);
  }
  // Any other word is refused, and so is none.
  for (const char* word : {"nonsense", "SAME", ""}) {
    json[ordered_json::json_pointer(place)] = word;
    if (place == "/maintenance/positions" && *word == '\0') {
      ExpectKept(json);
      continue;
    }
    const absl::Status status = ManifestFromJson(json.dump()).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << place << ": " << status;
    const size_t slash = place.rfind('/');
    const std::string last = place.substr(slash + 1);
    const std::string key = last == "0" ? "does" : last;
    EXPECT_THAT(status.message(), HasSubstr(key + " is \"" + word + "\""));
  }
}

TEST(Manifest, EveryWordIsKeptAndOthersAreRefused) {
  ExpectWordsKept<ControlValue>("/inputs/1/value");
  ExpectWordsKept<AllElements>("/inputs/2/requires");
  ExpectWordsKept<CacheRole>("/caches/0/role");
  ExpectWordsKept<CacheAlias>("/caches/0/alias");
  ExpectWordsKept<UpdateKind>("/caches/0/source/kind");
  ExpectWordsKept<BufferMode>("/mode");
  ExpectWordsKept<CacheRead>("/read");
  ExpectWordsKept<PreconditionStatus>("/preconditions/0/status");
  ExpectWordsKept<ShownEquality>("/equality");
  ExpectWordsKept<CompanionStep>("/maintenance/does/0");
  ExpectWordsKept<PositionSource>("/maintenance/positions");
  ExpectWordsKept<AssumptionKind>("/assumptions/0/kind");
  ExpectWordsKept<AssumptionSource>("/assumptions/0/source");
}

TEST(Manifest, AnEntryThatIsTheSameHasNoOtherSource) {
  for (const char* list : {"inputs", "outputs"}) {
    ordered_json json = ordered_json::parse(kText);
    const std::string name = json[list][0]["name"];
    json[list][0]["source"] = name;
    EXPECT_EQ(ErrorOf(json), "");
    json[list][0]["source"] = "other";
    EXPECT_THAT(ErrorOf(json), HasSubstr(std::string(list) + "[0].source is \"other\""));
  }
}

TEST(Manifest, TheFullReadIsNotTheDefault) {
  ordered_json json = ordered_json::parse(kText);
  json.erase("read");
  EXPECT_EQ(Parsed(json.dump()).read, CacheRead::kPrefix);
}

TEST(Manifest, HostileTextsAreErrors) {
  for (const char* text : {"", "[]", "null", "{", "{\"schema\": 1}", "{\"capacity\": []}"}) {
    EXPECT_FALSE(ManifestFromJson(text).ok()) << text;
  }
}

TEST(Manifest, MetadataCarriesItAndReplacesAnOlderOne) {
  onnx::ModelProto model;
  auto* other = model.add_metadata_props();
  other->set_key("author");
  other->set_value("someone");
  EXPECT_TRUE(absl::IsNotFound(ManifestFromMetadata(model).status()));
  Manifest m = Parsed();
  StampMetadata(m, &model);
  m.target = "ort";
  StampMetadata(m, &model);
  EXPECT_EQ(model.metadata_props_size(), 3);
  EXPECT_EQ(model.metadata_props(0).key(), "author");
  const auto read = ManifestFromMetadata(model);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToJson(*read), ToJson(m));
}

TEST(Manifest, PathBesideTheModel) {
  EXPECT_EQ(ManifestPathFor("out.onnx"), "out.kv.json");
  EXPECT_EQ(ManifestPathFor("dir.x/out"), "dir.x/out.kv.json");
  EXPECT_EQ(ManifestPathFor("a/b.v2.onnx"), "a/b.v2.kv.json");
}

}  // namespace
}  // namespace kvlift
