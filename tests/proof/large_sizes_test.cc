// LIBS: proof rewrites
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// The ledger says how large sizes may be, and no model that is proved declares a larger one.
#include <memory>
#include <string>
#include <vector>

#include "support/proof_pair.h"
#include "sym/forms/forms.h"

namespace kvlift {
namespace {

// Converts the case for a buffer of `slots`, and proves the result.
Proof WithSlots(int64_t slots) {
  const auto c = LoadCase(fmt::format("{}/rewrites/{}.onnxtxt", KVLIFT_TESTDATA_DIR, kCase));
  EXPECT_TRUE(c.ok()) << c.status();
  const onnx::ModelProto source = *ParseModelText(c->before);
  ConvertOptions options;
  options.max_seq_len = slots;
  const auto conversion = Convert(AsModel(source), options, AllRules());
  EXPECT_TRUE(conversion.ok() && conversion->model) << conversion.status();
  if (!conversion.ok() || !conversion->model) return {};
  return ProveConversion(source, *conversion->model, conversion->manifest);
}

std::vector<std::string> LimitsIn(const Proof& proof) {
  std::vector<std::string> limits;
  for (const Assumption& a : proof.assumptions.all()) {
    if (a.kind == AssumptionKind::kIntegerRange) limits.push_back(a.condition);
  }
  return limits;
}

std::string Limit(int64_t most) {
  return fmt::format(
      "no axis has more than {0} elements, and integers that a host feeds lie between -{0} and {0}",
      most);
}

TEST(LargeSizes, TheLedgerHasRoomForTheDeclaredCapacity) {
  for (const auto& [slots, most] : {std::pair<int64_t, int64_t>(16, 1 << 20),
                                    {1 << 20, 1 << 20},
                                    {(1 << 20) + 1, 1 << 21},
                                    {3 << 20, 1 << 22}}) {
    const Proof proof = WithSlots(slots);
    EXPECT_EQ(Unproved(proof), "") << slots;
    EXPECT_EQ(LimitsIn(proof), std::vector<std::string>{Limit(most)}) << slots;
  }
  EXPECT_EQ(sym::MostSize(), 1 << 20);  // the limit of one pair is not that of the next
}

TEST(LargeSizes, WindowsMayKeepManyRows) {
  for (const char* rows : {"-8192", "-32768"}) {
    const auto c =
        LoadCase(fmt::format("{}/rewrites/growing_window_last_rows.onnxtxt", KVLIFT_TESTDATA_DIR));
    ASSERT_TRUE(c.ok()) << c.status();
    std::string text = c->before;
    const size_t at = text.find("{-5}");
    ASSERT_NE(at, std::string::npos);
    text.replace(at, 4, fmt::format("{{{}}}", rows));
    const onnx::ModelProto source = *ParseModelText(text);
    const auto conversion = Convert(AsModel(source), ConvertOptions{}, AllRules());
    ASSERT_TRUE(conversion.ok() && conversion->model) << conversion.status();
    const Proof proof = ProveConversion(source, *conversion->model, conversion->manifest);
    EXPECT_EQ(Unproved(proof), "") << rows;
  }
}

// float32 holds whole numbers up to 2^24 only.
TEST(LargeSizes, ACastThatRoundsLargerSizesIsNotFollowed) {
  const onnx::ModelProto model = *ParseModelText(R"(<ir_version: 10, opset_import: ["" : 23]>
g (float[A] x) => (int64[1] y) { n = Shape(x) r = Cast<to = 1>(n) y = Cast<to = 7>(r) })");
  const auto graph =
      Graph::Build(std::shared_ptr<const onnx::ModelProto>(&model, [](const auto*) {}));
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto size = [&] {
    sym::Forms forms(*graph);
    const auto elements = forms.Elements(graph->Find("y"));
    return elements && elements->size() == 1 ? sym::ToString(elements->front()) : "";
  };
  EXPECT_EQ(size(), "A");
  const sym::SizesUpTo large(int64_t{1} << 26);
  EXPECT_NE(size(), "A");
}

TEST(LargeSizes, LimitsAreNestedAndEnd) {
  {
    const sym::SizesUpTo outer(1 << 22);
    const sym::SizesUpTo inner(1 << 21);
    EXPECT_EQ(sym::MostSize(), 1 << 22);
  }
  EXPECT_EQ(sym::MostSize(), 1 << 20);
}

}  // namespace
}  // namespace kvlift
