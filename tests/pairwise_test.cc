// LIBS: soundness verify
// Each pair of values of mask, positions, layout, window, order of sequences, storage, target, read
// and control occurs in one of the decoders here: it is refused, or converted and equal.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "contract/manifest_json.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "onnxio/model/model.h"
#include "proof/graphs/proof.h"
#include "rewrite/convert/convert.h"
#include "soundness/interpretation.h"
#include "soundness/sources.h"
#include "verify/judge/verify.h"

namespace kvlift::soundness {
namespace {

// How many values each factor has, in the order of `Row`.
constexpr int kValues[] = {5, 3, 2, 2, 2, 3, 5, 3, 3};
constexpr int kFactors = std::size(kValues);
using Row = std::vector<int>;

// Rows in which each pair of values of two factors occurs: of the rows that may come next, one that
// has many pairs that are new.
std::vector<Row> CoveringRows() {
  using Pair = std::pair<std::pair<int, int>, std::pair<int, int>>;
  std::set<Pair> open;
  for (int a = 0; a < kFactors; ++a) {
    for (int b = a + 1; b < kFactors; ++b) {
      for (int x = 0; x < kValues[a]; ++x) {
        for (int y = 0; y < kValues[b]; ++y) open.insert({{a, x}, {b, y}});
      }
    }
  }
  const auto pairs_of = [](const Row& row) {
    std::vector<Pair> pairs;
    for (int a = 0; a < kFactors; ++a) {
      for (int b = a + 1; b < kFactors; ++b) pairs.push_back({{a, row[a]}, {b, row[b]}});
    }
    return pairs;
  };
  Random random(1);
  std::vector<Row> rows;
  while (!open.empty()) {
    Row best;
    int most = -1;
    for (int attempt = 0; attempt < 60; ++attempt) {
      Row row;
      for (int values : kValues) row.push_back(static_cast<int>(random.Pick(0, values - 1)));
      // One pair that is open is in it.
      const Pair& needed = *open.begin();
      row[needed.first.first] = needed.first.second;
      row[needed.second.first] = needed.second.second;
      int fresh = 0;
      for (const Pair& pair : pairs_of(row)) fresh += open.contains(pair) ? 1 : 0;
      if (fresh > most) {
        most = fresh;
        best = row;
      }
    }
    for (const Pair& pair : pairs_of(best)) open.erase(pair);
    rows.push_back(best);
  }
  return rows;
}

Choices ChoicesOf(const Row& row) {
  Choices choices;
  choices.mask = static_cast<MaskInput>(row[0]);
  choices.places = static_cast<Places>(row[1]);
  choices.tokens_first = row[2] == 1;
  choices.windowed = row[3] == 1;
  choices.reordered = row[4] == 1;
  choices.opset = 17;
  return choices;
}

ConvertOptions OptionsOf(const Row& row) {
  ConvertOptions options;
  if (row[5] > 0) options.quantize_cache = ReadCacheQuantization(row[5] == 1 ? "int8:2" : "fp8");
  options.target = static_cast<Target>(row[6]);
  options.read = static_cast<ReadForm>(row[7]);
  options.control = static_cast<Control>(row[8]);
  if (options.target == Target::kTensorRt) options.max_seq_len = 16;
  return options;
}

class Pairwise : public testing::TestWithParam<Row> {};

TEST_P(Pairwise, IsRefusedOrEqual) {
  Random random(11);
  const auto source =
      std::make_shared<const onnx::ModelProto>(DrawSource(random, ChoicesOf(GetParam())));
  ASSERT_TRUE(CheckModel(*source).ok()) << CheckModel(*source);
  Model before, after;
  before.proto = source;
  auto conversion = Convert(before, OptionsOf(GetParam()), AllRules());
  ASSERT_TRUE(conversion.ok()) << conversion.status();
  if (!conversion->model) {
    const Inspection& inspection = conversion->inspection;
    const bool said = !inspection.near_misses.empty() ||
                      std::any_of(inspection.caches.begin(), inspection.caches.end(),
                                  [](const CacheReport& c) { return c.reason.has_value(); }) ||
                      std::any_of(inspection.attention.begin(), inspection.attention.end(),
                                  [](const AttentionReport& a) { return a.reason.has_value(); });
    EXPECT_TRUE(said) << "refused without a reason";
    RecordProperty("outcome", "refused");
    return;
  }
  after.proto = std::make_shared<const onnx::ModelProto>(*std::move(conversion->model));
  const Manifest& manifest = conversion->manifest;
  const auto report = Verify(before, after, manifest, {});
  ASSERT_TRUE(report.ok()) << report.status();
  // Learned positions of the whole batch become a row for each sequence, and what the source adds
  // them to is then the same wherever both have elements, which is no proof of a whole.
  const bool in_common = GetParam() == Row{0, 0, 0, 0, 0, 0, 3, 0, 2};
  EXPECT_TRUE(Accepts(report->verdict, in_common ? Accept::kTested : Accept::kProved))
      << report->reason << "\n"
      << PrintModelText(*source);
  // Tokens that see no key are left out, whether a precondition says so or not.
  Assumptions assumptions = report->proof.assumptions;
  assumptions.Add({AssumptionKind::kPadding, "", "tokens see themselves"});
  const auto meaning = Interpretation::Create(before.proto, after.proto, manifest, assumptions);
  // Caches in few bits, and what the host adds to the scores: see soundness_test.
  if (!meaning.ok() || GetParam()[0] == static_cast<int>(MaskInput::kAdded)) return;
  const Decision decision = meaning->Decide(100, random);
  EXPECT_FALSE(decision.difference)
      << decision.difference->where << "\n"
      << PrintModelText(*source) << PrintModelText(*after.proto) << ToJson(manifest).dump();
}

INSTANTIATE_TEST_SUITE_P(Rows, Pairwise, testing::ValuesIn(CoveringRows()), [](const auto& row) {
  std::string name = "values";
  for (int value : row.param) name += fmt::format("_{}", value);
  return name;
});

TEST(PairwiseRows, AreFew) { EXPECT_LT(CoveringRows().size(), 60U); }

}  // namespace
}  // namespace kvlift::soundness
