// LIBS: verify
// SRCS: support/verdict.cc
// Caches that grow in the source, in other layouts than [B, N, P, D]: several in one tensor, heads
// in the batch, the sequence first, windows, whole numbers; and steps that a source cannot take.
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/verdict.h"
#include "verify/judge/verify.h"

namespace kvlift {
namespace {

// One layer of two heads. `caches`: nodes that give keys and values, float[B,2,L,4], from key and
// value, float[B,2,S,4]. `shift`: nodes that give begin, int64[1] or int64[B,1,1,1], the number of
// keys in front of the first new one.
std::string Decoder(const std::string& inputs, const std::string& outputs,
                    const std::string& caches, const std::string& shift,
                    const std::string& sees = "see = LessOrEqual (columns, rows)") {
  return absl::StrCat("<ir_version: 12, opset_import: [\"\" : 24]>\ng (int64[B,S] ids, ", inputs,
                      ") => (float[B,S,8] logits, ", outputs, ")", R"(
<float[4,8] table = {0.9,-1.2,0.3,1.7,-0.6,1.1,-1.9,0.4, -1.4,0.8,1.6,-0.2,1.3,-0.9,0.5,1.8,
   0.7,1.5,-1.1,0.6,-1.6,0.2,1.2,-0.8, 1.9,-0.3,0.1,-1.5,0.4,1.4,-0.7,-1.3},
 float[8] wk = {1.5,-0.7,0.9,1.1,-1.3,0.6,1.7,-0.4},
 float[8] wv = {-0.5,1.2,0.8,-1.6,0.7,1.4,-0.9,1.1},
 int64[4] heads = {0, 0, 2, 4}, int64[3] flat = {0, 0, 8}, int64[1] none = {0}, int64[1] one = {1},
 int64[1] two = {2}, int64[1] four = {4}, int64[1] minus3 = {-3}, int64[1] far = {1000000},
 int64[3] all_axes = {1, 2, 3}, int64 first = {0}, int64 next = {1}, float low = {-10000.0},
 float grain = {0.05}, float fine = {20.0}>
{
  batch = Shape <start = 0, end = 1> (ids)
  news = Shape <start = 1, end = 2> (ids)
  count = Squeeze (news)
  steps = Range (first, count, next)
  x = Gather (table, ids)
  k = Mul (x, wk)
  v = Mul (x, wv)
  k4 = Reshape (k, heads)
  v4 = Reshape (v, heads)
  q4 = Reshape (x, heads)
  key = Transpose <perm = [0, 2, 1, 3]> (k4)
  value = Transpose <perm = [0, 2, 1, 3]> (v4)
  query = Transpose <perm = [0, 2, 1, 3]> (q4)
)",
                      caches, "\n", shift, R"(
  length1 = Shape <start = 2, end = 3> (keys)
  length = Squeeze (length1)
  columns = Range (first, length, next)
  steps2 = Unsqueeze (steps, one)
  rows = Add (begin, steps2)
  )",
                      sees, R"(
  turned = Transpose <perm = [0, 1, 3, 2]> (keys)
  scores = MatMul (query, turned)
  masked = Where (see, scores, low)
  probs = Softmax (masked)
  y = MatMul (probs, values)
  y4 = Transpose <perm = [0, 2, 1, 3]> (y)
  logits = Reshape (y4, flat)
})");
}

constexpr char kEnd[] = "begin = Sub (length0, news)";
constexpr char kLengthOfKeys[] = "length0 = Shape <start = 2, end = 3> (keys) ";
constexpr char kAt[] = "begin = Unsqueeze (at, all_axes)";

std::string Grows() { return absl::StrCat(kLengthOfKeys, kEnd); }

// Scatters into caches of the layout BNSD.
constexpr char kScatters[] = R"(
  nk = TensorScatter <axis = 2> (pk, key, at)
  nv = TensorScatter <axis = 2> (pv, value, at)
  keys = Identity (nk)
  values = Identity (nv)
)";
constexpr char kConcats[] = R"(
  nk = Concat <axis = 2> (pk, key)
  nv = Concat <axis = 2> (pv, value)
  keys = Identity (nk)
  values = Identity (nv)
)";

std::string Two(const std::string& type, const std::string& a, const std::string& b) {
  return absl::StrCat(type, " ", a, ", ", type, " ", b);
}

std::string Converted() {
  return Decoder(Two("float[B,2,M,4]", "pk", "pv") + ", int64[B] at",
                 Two("float[B,2,M,4]", "nk", "nv"), kScatters, kAt);
}

Manifest Relation(const std::string& layout = "BNSD") {
  Manifest m = RelationOf({{"pk", "nk", layout, UpdateKind::kConcat, true},
                           {"pv", "nv", layout, UpdateKind::kConcat, true}},
                          {"ids"}, {"logits"});
  AddControl(&m);
  return m;
}

// The proof knows conversions to Attention; of other models it leaves most open.
void ExpectEqual(const std::string& before, const std::string& after, const Manifest& relation) {
  const VerifyReport report = VerdictOn(before, after, relation);
  EXPECT_TRUE(Accepts(report.verdict, Accept::kTested)) << Summary(report);
  EXPECT_GE(report.controls.size(), 6u);
}

void ExpectNotEqual(const std::string& before, const std::string& after, const Manifest& relation) {
  const VerifyReport report = VerdictOn(before, after, relation);
  EXPECT_FALSE(Accepts(report.verdict, Accept::kTested)) << Summary(report);
}

TEST(LayoutTest, Plain) {
  const std::string before = Decoder(Two("float[B,2,P,4]", "pk", "pv"),
                                     Two("float[B,2,T,4]", "nk", "nv"), kConcats, Grows());
  ExpectEqual(before, Converted(), Relation());
  ExpectNotEqual(before, With(Converted(), "LessOrEqual", "Less"), Relation());
}

TEST(LayoutTest, SequenceFirst) {
  const std::string before =
      Decoder(Two("float[P,B,2,4]", "pk", "pv"), Two("float[T,B,2,4]", "nk", "nv"), R"(
  key_s = Transpose <perm = [2, 0, 1, 3]> (key)
  value_s = Transpose <perm = [2, 0, 1, 3]> (value)
  nk = Concat <axis = 0> (pk, key_s)
  nv = Concat <axis = 0> (pv, value_s)
  keys = Transpose <perm = [1, 2, 0, 3]> (nk)
  values = Transpose <perm = [1, 2, 0, 3]> (nv)
)",
              Grows());
  Manifest relation = Relation();
  for (ManifestCache& cache : relation.caches) {
    cache.source.layout = "SBND";
    cache.source.axis = 0;
  }
  ExpectEqual(before, Converted(), relation);
}

// [B * N, P, D]: the source does not say how many rows a sequence has.
TEST(LayoutTest, HeadsInTheBatch) {
  const char* fold = R"(
  rows1 = Mul (batch, two)
  shape3 = Concat <axis = 0> (rows1, news, four)
  key3 = Reshape (key, shape3)
  value3 = Reshape (value, shape3)
)";
  const char* unfold = R"(
  length3 = Shape <start = 1, end = 2> (nk)
  shape4 = Concat <axis = 0> (batch, two, length3, four)
  keys = Reshape (nk, shape4)
  values = Reshape (nv, shape4)
)";
  const std::string before = Decoder(
      Two("float[BN,P,4]", "pk", "pv"), Two("float[BN,T,4]", "nk", "nv"),
      absl::StrCat(fold, "nk = Concat <axis = 1> (pk, key3) nv = Concat <axis = 1> (pv, value3)",
                   unfold),
      Grows());
  const std::string after =
      Decoder(Two("float[BN,M,4]", "pk", "pv") + ", int64[B] at", Two("float[BN,M,4]", "nk", "nv"),
              absl::StrCat(fold, R"(
  at2 = Unsqueeze (at, one)
  pair = Concat <axis = 0> (batch, two)
  each2 = Expand (at2, pair)
  each = Reshape (each2, rows1)
  nk = TensorScatter <axis = 1> (pk, key3, each)
  nv = TensorScatter <axis = 1> (pv, value3, each)
)",
                           unfold),
              kAt);
  ExpectEqual(before, after, Relation("BSD"));
}

constexpr char kStacked[] = R"(
  pk = Gather <axis = 0> (past, first)
  pv = Gather <axis = 0> (past, next)
)";
constexpr char kStack[] = R"(
  nk1 = Unsqueeze (nk, none)
  nv1 = Unsqueeze (nv, none)
  present = Concat <axis = 0> (nk1, nv1)
)";

TEST(LayoutTest, TwoCachesOfOneTensorTakenApart) {
  const std::string before = Decoder("float[2,B,2,P,4] past", "float[2,B,2,T,4] present",
                                     absl::StrCat(kStacked, kConcats, kStack), Grows());
  Manifest relation = Relation();
  for (int k = 0; k < 2; ++k) {
    relation.caches[k].source = {"past", "present", UpdateKind::kConcat, "BNSD", 2, true, {{0, k}}};
  }
  ExpectEqual(before, Converted(), relation);
  std::swap(relation.caches[0].source.select[0].index, relation.caches[1].source.select[0].index);
  ExpectNotEqual(before, Converted(), relation);
}

TEST(LayoutTest, TwoCachesOfOneTensorKeptTogether) {
  const std::string before = Decoder("float[2,B,2,P,4] past", "float[2,B,2,T,4] present",
                                     absl::StrCat(kStacked, kConcats, kStack), Grows());
  const std::string after =
      Decoder("float[2,B,2,M,4] past, int64[B] at", "float[2,B,2,M,4] present",
              absl::StrCat(kStacked, kScatters, kStack), kAt);
  Manifest relation =
      RelationOf({{"past", "present", "KBNSD", UpdateKind::kConcat, true}}, {"ids"}, {"logits"});
  AddControl(&relation);
  ExpectEqual(before, after, relation);
}

// The source keeps three rows, each token sees itself and three before.
TEST(LayoutTest, Window) {
  const char* cut = R"(
  keys = Concat <axis = 2> (pk, key)
  values = Concat <axis = 2> (pv, value)
  nk = Slice (keys, minus3, far, two)
  nv = Slice (values, minus3, far, two)
)";
  const char* near = R"(
  late = LessOrEqual (columns, rows)
  reach = Add (columns, four)
  recent = Less (rows, reach)
  see = And (late, recent)
)";
  const std::string before = Decoder(Two("float[B,2,P,4]", "pk", "pv"),
                                     Two("float[B,2,R,4]", "nk", "nv"), cut, Grows(), near);
  const std::string after = Decoder(Two("float[B,2,M,4]", "pk", "pv") + ", int64[B] at",
                                    Two("float[B,2,M,4]", "nk", "nv"), kScatters, kAt, near);
  Manifest relation = Relation();
  for (ManifestCache& cache : relation.caches) cache.source.kind = UpdateKind::kWindow;
  ExpectEqual(before, after, relation);
  ExpectNotEqual(before, With(after, "see = And (late, recent)", "see = Identity (late)"),
                 relation);
  ExpectNotEqual(before, after, Relation());
}

TEST(LayoutTest, WholeNumbers) {
  const char* narrow = R"(
  key_r = Mul (key, fine)
  value_r = Mul (value, fine)
  key8 = Cast <to = 3> (key_r)
  value8 = Cast <to = 3> (value_r)
)";
  const char* widen = R"(
  keys_r = Cast <to = 1> (nk)
  values_r = Cast <to = 1> (nv)
  keys = Mul (keys_r, grain)
  values = Mul (values_r, grain)
)";
  const std::string before = Decoder(
      Two("int8[B,2,P,4]", "pk", "pv"), Two("int8[B,2,T,4]", "nk", "nv"),
      absl::StrCat(narrow, "nk = Concat <axis = 2> (pk, key8) nv = Concat <axis = 2> (pv, value8)",
                   widen),
      Grows());
  const std::string after =
      Decoder(Two("int8[B,2,M,4]", "pk", "pv") + ", int64[B] at", Two("int8[B,2,M,4]", "nk", "nv"),
              absl::StrCat(narrow,
                           "nk = TensorScatter <axis = 2> (pk, key8, at) "
                           "nv = TensorScatter <axis = 2> (pv, value8, at)",
                           widen),
              kAt);
  Manifest relation = Relation();
  for (ManifestCache& cache : relation.caches) cache.dtype = "int8";
  ExpectEqual(before, after, relation);
}

// A branch traced with one token: behind a past, new tokens see each other.
TEST(LayoutTest, OneTokenBehindAPastOnly) {
  const std::string before = Decoder(Two("float[B,2,P,4]", "pk", "pv") + ", bool[1] with_past",
                                     Two("float[B,2,T,4]", "nk", "nv"), kConcats, Grows(), R"(
  late = LessOrEqual (columns, rows)
  see = Or (late, with_past)
)");
  Manifest relation = Relation();
  relation.dropped.push_back({"with_past", DroppedValue::kWithPast});
  ExpectNotEqual(before, Converted(), relation);
  relation.limits.new_tokens_with_past = 1;
  ExpectEqual(before, Converted(), relation);
}

// Order of sequences before the append: the host feeds 0, 1, ...
TEST(LayoutTest, OrderOfSequences) {
  const std::string before = Decoder(
      Two("float[B,2,P,4]", "pk0", "pv0") + ", int64[B] beams", Two("float[B,2,T,4]", "nk", "nv"),
      absl::StrCat("pk = Gather <axis = 0> (pk0, beams) pv = Gather <axis = 0> (pv0, beams)",
                   kConcats),
      Grows());
  const std::string after = Decoder(
      Two("float[B,2,M,4]", "pk0", "pv0") + ", int64[B] beams, int64[B] at",
      Two("float[B,2,M,4]", "nk", "nv"),
      absl::StrCat("pk = Gather <axis = 0> (pk0, beams) pv = Gather <axis = 0> (pv0, beams)",
                   kScatters),
      kAt);
  Manifest relation = RelationOf({{"pk0", "nk", "BNSD", UpdateKind::kConcat, true},
                                  {"pv0", "nv", "BNSD", UpdateKind::kConcat, true}},
                                 {"ids", "beams"}, {"logits"});
  AddControl(&relation);
  ExpectEqual(before, after, relation);
}

// Its rows are its sequences: it runs where there are as many tokens, and with one of each. Nothing
// is said of batches that it does not take.
TEST(LayoutTest, SourceThatRunsWithAsManyTokensAsSequences) {
  const std::string turned = "turned_key = Transpose <perm = [2, 1, 0, 3]> (key)\n";
  const std::string before =
      Decoder(Two("float[B,2,P,4]", "pk", "pv"), Two("float[B,2,T,4]", "nk", "nv"),
              turned + With(kConcats, "(pk, key)", "(pk, turned_key)"), Grows());
  const std::string after = Decoder(
      Two("float[B,2,M,4]", "pk", "pv") + ", int64[B] at", Two("float[B,2,M,4]", "nk", "nv"),
      turned + With(kScatters, "(pk, key, at)", "(pk, turned_key, at)"), kAt);
  const VerifyReport report = VerdictOn(before, after, Relation());
  EXPECT_NE(report.verdict, VerdictKind::kDifferent) << Summary(report);
}

// An input that stays is fed what the relation requires: the causal order that a mask of the host
// could carry is not asked of the converted model.
TEST(LayoutTest, KeptMaskIsAllOnes) {
  const std::string mask = ", bool[B,1,S,T] mask";
  const std::string before =
      Decoder(Two("float[B,2,P,4]", "pk", "pv") + mask, Two("float[B,2,T,4]", "nk", "nv"), kConcats,
              Grows(), "see = Identity (mask)");
  const std::string after = With(
      With(Converted(), "int64[B] at", "int64[B] at" + mask), "see = LessOrEqual (columns, rows)",
      "end = Add (begin, news) see = Less (columns, end) width = Shape (mask)");
  Manifest relation = Relation();
  ManifestInput& kept = relation.inputs.emplace_back();
  kept.name = "mask";
  kept.all = AllElements::kOnes;
  ExpectEqual(before, after, relation);
  EXPECT_TRUE(VerdictOn(before, after, relation).assumptions.Has(AssumptionKind::kAllOnes, "mask"));
  kept.all.reset();
  ExpectNotEqual(before, after, relation);
  kept.all = AllElements::kZeros;  // NaN everywhere in the source
  ExpectNotEqual(before, after, relation);
}

// What a precondition says of a dropped mask is what the source is fed.
TEST(LayoutTest, DroppedMaskIsAllOnes) {
  const std::string before =
      Decoder(Two("float[B,2,P,4]", "pk", "pv") + ", bool[B,1,S,T] mask",
              Two("float[B,2,T,4]", "nk", "nv"), kConcats, Grows(), "see = Identity (mask)");
  const std::string after = With(Converted(), "see = LessOrEqual (columns, rows)",
                                 "end = Add (begin, news) see = Less (columns, end)");
  Manifest relation = Relation();
  relation.dropped.push_back({"mask", AllElements::kOnes});
  ExpectEqual(before, after, relation);
  ExpectNotEqual(before, Converted(), relation);
}

// Without a manifest both sides may grow.
TEST(LayoutTest, GrowingOnBothSides) {
  const std::string before = Decoder(Two("float[B,2,P,4]", "pk", "pv"),
                                     Two("float[B,2,T,4]", "nk", "nv"), kConcats, Grows());
  Manifest relation = RelationOf({{"pk", "nk", "BNSD", UpdateKind::kConcat, true},
                                  {"pv", "nv", "BNSD", UpdateKind::kConcat, true}},
                                 {"ids"}, {"logits"});
  for (ManifestCache& cache : relation.caches) cache.grows = true;
  const VerifyReport report = VerdictOn(before, before, relation);
  EXPECT_TRUE(Accepts(report.verdict, Accept::kTested)) << Summary(report);
  ExpectNotEqual(before, With(before, "(pv, value)", "(pv, key)"), relation);
}

// What a host allocates by is compared with the converted model.
TEST(LayoutTest, TypesOfTheRelationAreThoseOfTheModel) {
  const std::string before = Decoder(Two("float[B,2,P,4]", "pk", "pv"),
                                     Two("float[B,2,T,4]", "nk", "nv"), kConcats, Grows());
  const auto reason = [&](const std::function<void(Manifest*)>& change) {
    Manifest relation = Relation();
    change(&relation);
    const VerifyReport report = VerdictOn(before, Converted(), relation);
    return Accepts(report.verdict, Accept::kTested) ? "" : report.reason;
  };
  EXPECT_EQ(reason([](Manifest*) {}), "");
  EXPECT_THAT(reason([](Manifest* m) { m->caches[0].dtype = "int8"; }),
              testing::HasSubstr("pk does not hold int8"));
  EXPECT_THAT(reason([](Manifest* m) {
                for (ManifestInput& input : m->inputs) {
                  auto* control = std::get_if<ControlInput>(&input.as);
                  if (control != nullptr) control->dtype = "float32";
                }
              }),
              testing::HasSubstr("does not hold float32"));
}

}  // namespace
}  // namespace kvlift
