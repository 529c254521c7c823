// LIBS: rewrites verify
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// Sources that hold the newest rows in buffers (GroupQueryAttention with sliding_window_cache): a
// conversion is proved only if the relation says of each buffer what the graph says.
#include <string>

#include "support/proof_mutants.h"
#include "support/proof_pair.h"

namespace kvlift {
namespace {

constexpr char kSliding[] = "attention_op_group_query_sliding";
constexpr char kSlots[] = "attention_op_group_query_sliding_slots";
constexpr char kGrowing[] = "attention_op_group_query";

// Returns what is not proved of the case with changes to its source and its relation.
std::string With(
    const char* name, const TextChanges& source,
    const std::function<void(Manifest*)>& change = [](Manifest*) {}) {
  return Unproved(ProofOfPair(name, source, {}, change));
}

TEST(Sliding, BuffersAreProved) {
  EXPECT_EQ(With(kSliding, {}), "");
  EXPECT_EQ(With(kSlots, {}), "");
  EXPECT_EQ(With("attention_op_group_query_sliding_ring", {}), "");
}

TEST(Sliding, BuffersAreInTheLedger) {
  const Proof proof = ProofOfPair(kSliding, {}, {});
  for (const char* past : {"past_k", "past_v"}) {
    const auto& all = proof.assumptions.all();
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const Assumption& a) {
      return a.subject == past && a.condition.find("5 or more") != std::string::npos;
    })) << past;
  }
}

TEST(Sliding, AnotherWindowOfTheSourceIsNotProved) {
  const TextChanges wider = {{"local_window_size = 5", "local_window_size = 6"}};
  EXPECT_NE(With(kSliding, wider), "");
  EXPECT_NE(With(kSliding, wider,
                 [](Manifest* m) {
                   for (ManifestCache& cache : m->caches) cache.source.sliding->window = 6;
                 }),
            "");
}

TEST(Sliding, ARelationThatDoesNotSaySoProvesNothing) {
  const auto forget = [](Manifest* m) {
    for (ManifestCache& cache : m->caches) {
      cache.source.kind = UpdateKind::kConcat;
      cache.source.sliding.reset();
    }
  };
  EXPECT_NE(With(kSliding, {}, forget), "");
  EXPECT_NE(With(kSlots, {}, forget), "");
  const auto forget_one = [](Manifest* m) {
    m->caches[1].source.kind = UpdateKind::kConcat;
    m->caches[1].source.sliding.reset();
  };
  EXPECT_NE(With(kSliding, {}, forget_one), "");
}

TEST(Sliding, ARelationThatSaysSoOfAnotherCacheProvesNothing) {
  EXPECT_EQ(With(kGrowing, {}), "");
  EXPECT_NE(With(kGrowing, {},
                 [](Manifest* m) {
                   for (ManifestCache& cache : m->caches) {
                     cache.source.kind = UpdateKind::kSliding;
                     cache.source.sliding = SlidingBuffer{5, std::nullopt};
                   }
                 }),
            "");
}

TEST(Sliding, BuffersHaveTheSlotsThatTheRelationSays) {
  const auto with_slots = [&](const char* name, std::optional<int64_t> slots) {
    return With(name, {}, [&](Manifest* m) {
      for (ManifestCache& cache : m->caches) cache.source.sliding->capacity = slots;
    });
  };
  EXPECT_EQ(with_slots(kSlots, 9), "");
  EXPECT_NE(with_slots(kSlots, 10), "");
  EXPECT_NE(with_slots(kSlots, std::nullopt), "");
  EXPECT_NE(with_slots(kSliding, 9), "");
}

// The rows of a buffer are not those of a past that grows, so another reader would see others.
TEST(Sliding, BuffersThatAnotherNodeReadsAreNotProved) {
  const std::string node = "last, total)\n";
  EXPECT_EQ(With(kSliding, {{node, node}}), "");
  EXPECT_NE(With(kSliding, {{"(q, k, v, past_k", "(q2, k, v, past_k"},
                            {"counted = ReduceSum",
                             "some = ReduceSum<keepdims = 0>(past_k)\n  q2 = Add(q, some)\n  "
                             "counted = ReduceSum"}}),
            "");
  EXPECT_NE(With(kSliding, {{"last, total)",
                             "last, total)\n  n = Shape(present_k)\n  "
                             "f = Cast<to = 1>(n)\n  s = ReduceSum<keepdims = "
                             "0>(f)\n  y = Add(y0, s)"},
                            {"y, present_k, present_v = com", "y0, present_k, present_v = com"}}),
            "");
}

// ONNX Runtime takes 1 alone for true.
TEST(Sliding, AnotherNumberOfTheAttributeIsNotProved) {
  for (const char* number : {"2", "-1", "0"}) {
    EXPECT_NE(With(kSliding,
                   {{"sliding_window_cache = 1", std::string("sliding_window_cache = ") + number}}),
              "")
        << number;
  }
}

// What a buffer declares is a number of slots, and an input of that size does not tell P.
TEST(Sliding, SlotsAreNotThePastsLength) {
  const TextChanges source = {{"int64[B,T] mask", "int64[B,T] mask, float[C] other"}};
  const auto take = [](Manifest* m) { m->inputs.push_back({"other"}); };
  const std::string index = "int64[B] write_indices)";
  EXPECT_EQ(Unproved(ProofOfPair(kSliding, source,
                                 {{index, "int64[B] write_indices, float[C] other)"}}, take)),
            "");
  const std::string key = "(past_k, \"/kvlift/fused.0/key\", write_indices)";
  const Proof wrong = ProofOfPair(
      kSliding, source,
      {{index, "int64[B] write_indices, float[C] other)"},
       {"\"/kvlift/fused.0/query_split\" = Reshape (q",
        "slots = Shape (other)\n zeros = Sub (write_indices, write_indices)\n at = Add (zeros, "
        "slots)\n \"/kvlift/fused.0/query_split\" = Reshape (q"},
       {key, "(past_k, \"/kvlift/fused.0/key\", at)"}},
      take);
  EXPECT_NE(Unproved(wrong), "");
}

TEST(Sliding, WindowsOfTheResultAreTheSources) {
  for (const char* name : {kSliding, kSlots, "attention_op_group_query_sliding_ring"}) {
    const auto c = LoadCase(fmt::format("{}/rewrites/{}.onnxtxt", KVLIFT_TESTDATA_DIR, name));
    ASSERT_TRUE(c.ok()) << c.status();
    const auto source = ParseModelText(c->before);
    ASSERT_TRUE(source.ok()) << source.status();
    const auto conversion = Convert(AsModel(*source), c->options, AllRules());
    ASSERT_TRUE(conversion.ok() && conversion->model) << conversion.status();
    const auto after = std::make_shared<const onnx::ModelProto>(*conversion->model);
    const Manifest& relation = conversion->manifest;
    EXPECT_GT(ExpectNoMutantProved(*source, after, relation, LimitsOf(relation)), 10) << name;
  }
}

}  // namespace
}  // namespace kvlift
