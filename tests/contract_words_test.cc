// LIBS: contract
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "contract/words.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace kvlift {
namespace {

using nlohmann::json;
using ::testing::ElementsAreArray;

template <typename Kind>
std::vector<std::string> Words() {
  std::vector<std::string> words;
  for (const KindWord<Kind>& known : WordsOf<Kind>()) words.emplace_back(known.word);
  return words;
}

// Returns the words that a schema of docs/schema allows at a place.
std::vector<std::string> InSchema(const std::string& schema, const std::string& place) {
  std::ifstream file(std::string(KVLIFT_TESTDATA_DIR) + "/../docs/schema/" + schema +
                     ".schema.json");
  const json document = json::parse(file, nullptr, /*allow_exceptions=*/false);
  const json::json_pointer at(place + "/enum");
  EXPECT_TRUE(!document.is_discarded() && document.contains(at)) << schema << " " << place;
  std::vector<std::string> words;
  if (document.is_discarded() || !document.contains(at)) return words;
  for (const json& word : document.at(at)) {
    if (word.is_string() && word != "") words.push_back(word);
  }
  return words;
}

template <typename Kind>
void ExpectInSchema(const std::string& schema, const std::string& place) {
  EXPECT_THAT(InSchema(schema, place), ElementsAreArray(Words<Kind>())) << schema << " " << place;
}

TEST(Words, AreThoseOfTheSchemaOfManifests) {
  const std::string caches = "/properties/caches/items/properties";
  const std::string inputs = "/properties/inputs/items/properties";
  const std::string m = "manifest";
  ExpectInSchema<BufferMode>(m, "/properties/mode");
  ExpectInSchema<CacheRead>(m, "/properties/read");
  ExpectInSchema<ShownEquality>(m, "/properties/equality");
  ExpectInSchema<CacheRole>(m, caches + "/role");
  ExpectInSchema<CacheAlias>(m, caches + "/alias");
  ExpectInSchema<UpdateKind>(m, caches + "/source/properties/kind");
  ExpectInSchema<InputAs>(m, inputs + "/as");
  ExpectInSchema<ControlValue>(m, inputs + "/value");
  ExpectInSchema<AllElements>(m, inputs + "/requires");
  ExpectInSchema<OutputAs>(m, "/properties/outputs/items/properties/as");
  ExpectInSchema<PreconditionStatus>(m, "/properties/preconditions/items/properties/status");
  ExpectInSchema<CompanionStep>(m, "/properties/maintenance/properties/does/items");
  ExpectInSchema<ShortSteps>(m, "/properties/frozen/properties/short_steps");
  ExpectInSchema<PositionSource>(m, "/properties/maintenance/properties/positions");
  ExpectInSchema<AssumptionKind>(m, "/properties/assumptions/items/properties/kind");
  ExpectInSchema<AssumptionSource>(m, "/properties/assumptions/items/properties/source");
}

TEST(Words, AreThoseOfTheOtherSchemas) {
  for (const char* schema : {"inspect", "convert"}) {
    ExpectInSchema<UpdateKind>(schema, "/$defs/cache/properties/kind");
    // Sources have no caches of scales.
    std::vector<std::string> roles;
    for (const KindWord<CacheRole>& known : WordsOf<CacheRole>()) {
      if (!HoldsScales(known.kind)) roles.emplace_back(known.word);
    }
    EXPECT_THAT(InSchema(schema, "/$defs/cache/properties/role"), ElementsAreArray(roles));
  }
  ExpectInSchema<PreconditionStatus>("convert", "/$defs/precondition/properties/status");
  ExpectInSchema<PositionSource>("emit-maintenance", "/properties/positions");
  ExpectInSchema<AssumptionSource>(
      "convert", "/properties/equality/properties/assumptions/items/properties/source");
  ExpectInSchema<AssumptionSource>("verify", "/properties/assumptions/items/properties/source");
  std::vector<std::string> shown = Words<ShownEquality>();
  shown.insert(shown.end(), {"different", "inconclusive"});  // of conversions that are withheld
  EXPECT_THAT(InSchema("convert", "/properties/equality/properties/shown"),
              ElementsAreArray(shown));
}

template <typename Kind>
class WordsOfKind : public ::testing::Test {};

using Kinds = ::testing::Types<InputAs, OutputAs, ControlValue, AllElements, DroppedValue,
                               CacheRole, CacheAlias, UpdateKind, BufferMode, CacheRead,
                               PreconditionStatus, ShownEquality, CompanionStep, PositionSource,
                               AssumptionKind, AssumptionSource>;
TYPED_TEST_SUITE(WordsOfKind, Kinds);

TYPED_TEST(WordsOfKind, StandForOneKindEach) {
  std::set<std::string_view> words;
  std::set<TypeParam> kinds;
  for (const KindWord<TypeParam>& known : WordsOf<TypeParam>()) {
    EXPECT_FALSE(known.word.empty());
    EXPECT_TRUE(words.insert(known.word).second) << known.word;
    EXPECT_TRUE(kinds.insert(known.kind).second) << known.word;
    EXPECT_EQ(WordOf(known.kind), known.word);
    EXPECT_EQ(ReadWord<TypeParam>(known.word), known.kind);
  }
  EXPECT_EQ(ReadWord<TypeParam>("nonsense"), std::nullopt);
  EXPECT_EQ(ReadWord<TypeParam>(""), std::nullopt);
  // The enumerators are listed without a gap, in their order.
  int next = 0;
  for (const KindWord<TypeParam>& known : WordsOf<TypeParam>()) {
    EXPECT_EQ(static_cast<int>(known.kind), next++) << known.word;
  }
}

TEST(Words, OfDroppedInputsAreNotThoseOfAllElements) {
  for (const KindWord<DroppedValue>& known : WordsOf<DroppedValue>()) {
    EXPECT_EQ(ReadWord<AllElements>(known.word), std::nullopt) << known.word;
  }
}

TEST(Words, RolesOfScales) {
  for (const KindWord<CacheRole>& known : WordsOf<CacheRole>()) {
    EXPECT_TRUE(HoldsScales(ScalesOf(known.kind))) << known.word;
    if (HoldsScales(known.kind)) continue;
    EXPECT_EQ(WordOf(ScalesOf(known.kind)), std::string(known.word) + "_scale");
  }
}

}  // namespace
}  // namespace kvlift
