// LIBS: contract
// The words of cache kinds are those of the manifest's schema, each once.
#include "contract/cache_kind.h"

#include <fstream>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace kvlift {
namespace {

// Collects the words of "kind" of every "source" below a part of the schema.
void CollectKinds(const nlohmann::json& schema, std::set<std::string>* words) {
  if (!schema.is_structured()) return;
  const nlohmann::json::json_pointer place("/source/properties/kind/enum");
  if (schema.is_object() && schema.contains(place)) {
    for (const auto& word : schema[place]) words->insert(word.get<std::string>());
  }
  for (const auto& inner : schema) CollectKinds(inner, words);
}

TEST(CacheKindTest, WordsAreThoseOfTheSchema) {
  std::ifstream file(std::string(KVLIFT_TESTDATA_DIR) + "/../docs/schema/manifest.schema.json");
  std::set<std::string> schema, table;
  CollectKinds(nlohmann::json::parse(file), &schema);
  for (const auto& [kind, word] : kCacheKindWords) {
    EXPECT_TRUE(table.emplace(word).second) << word;
    EXPECT_EQ(WordOf(kind), word);
  }
  EXPECT_EQ(table, schema);
}

}  // namespace
}  // namespace kvlift
