// LIBS: proof rewrites
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// Sequences of different lengths: what the source gives for one alone is what the conversion gives
// for it among others; and what holds at some sizes only is no proof for all of them.
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "proof/prove/prove_conversion.h"
#include "support/proof_pair.h"

namespace kvlift {
namespace {

using ::testing::Contains;
using ::testing::Not;

constexpr char kMore[] =
    " int64[1] at_0 = {0}, int64[1] at_1 = {1}, int64[1] to_last = {-1}, int64[1] five = {5},"
    " int64 number_1 = {1}, float third = {0.375},";

// Both models get `more` constants and end with these statements, which make y of y0.
Proof WithEnds(
    const std::string& end_of_source, const std::string& end,
    const std::function<void(Manifest*)>& change = [](Manifest*) {}) {
  return ProofOfPair(kCase,
                     {{kLastOfSource, "y0 = Reshape(context4, y_shape)\n" + end_of_source},
                      {kConstantsOfSource, std::string(kConstantsOfSource) + kMore}},
                     {{kLast, "y0 = Reshape (context4, y_shape)\n" + end},
                      {kConstants, std::string(kConstants) + kMore}},
                     change);
}

Proof WithEnd(const std::string& end) { return WithEnds(end, end); }

Manifest* Uniform(Manifest* relation) {
  relation->uniform = true;
  relation->uniform_reason = "a test says so";
  return relation;
}

TEST(Sequences, TheFirstOneForAllIsNoneOfTheirOwn) {
  const std::string first = "first = Slice(y0, at_0, at_1, at_0)\ny = Add(y0, first)";
  EXPECT_NE(Unproved(WithEnd(first)).find("gives each sequence"), std::string::npos);
  // In steps of one length both models are run once for all sequences.
  EXPECT_EQ(Unproved(WithEnds(first, first, Uniform)), "");
}

TEST(Sequences, ANormalizationInTrainingTakesInAllOfThem) {
  const auto normalised = [](const std::string& training) {
    return "size = Constant<value_ints = [16]>()\n"
           "ones = ConstantOfShape<value = float[1] {1}>(size)\n"
           "zeros = ConstantOfShape(size)\n"
           "turned = Transpose<perm = [0, 2, 1]>(y0)\n" +
           (training.empty() ? "done" : std::string("done, mean, variance")) +
           " = BatchNormalization" + training +
           "(turned, ones, zeros, zeros, ones)\n"
           "y = Transpose<perm = [0, 2, 1]>(done)";
  };
  EXPECT_EQ(Unproved(WithEnd(normalised(""))), "");
  EXPECT_NE(Unproved(WithEnd(normalised("<training_mode = 1>"))).find("gives each sequence"),
            std::string::npos);
}

// Places that data decides are looked up in the sequence's own numbers, or in a table.
TEST(Sequences, LookUpPlacesOfTheirOwn) {
  const auto found = [](const std::string& lookup) {
    const std::string best = "most, best = TopK<axis = 2>(y0, at_1)\n";
    return Unproved(WithEnd(best + lookup));
  };
  const std::string table =
      "size = Constant<value_ints = [16, 16]>()\n"
      "table = ConstantOfShape<value = float[1] {1}>(size)\n";
  EXPECT_EQ(found("own = GatherElements<axis = 2>(y0, best)\ny = Add(y0, own)"), "");
  EXPECT_EQ(found(table + "row = GatherND(table, best)\ny = Add(y0, row)"), "");
  // Here the place is that of a sequence.
  EXPECT_NE(found("own = GatherElements<axis = 0>(y0, best)\ny = Add(y0, own)")
                .find("gives each sequence"),
            std::string::npos);
  EXPECT_NE(found("others = GatherND(y0, best)\nsum = ReduceSum<keepdims = 0>(others, at_1)\n"
                  "y = Add(y0, sum)")
                .find("gives each sequence"),
            std::string::npos);
}

// A present of the first sequence alone broadcasts in the source's attention.
TEST(Sequences, APresentOfOneIsNoneOfAll) {
  const auto with = [](const std::string& present) {
    return Unproved(
        ProofOfPair("fixed_buffer_scatter_free_slots",
                    {{"present_v = Transpose<perm = [1, 2, 0, 3]>(v_done)", present},
                     {"int64[1] axes_1 = {1},", "int64[1] axes_1 = {1}, int64[1] at_0 = {0},"}},
                    {}));
  };
  const std::string all = "v_all = Transpose<perm = [1, 2, 0, 3]>(v_done)\n";
  EXPECT_EQ(with(all + "present_v = Identity(v_all)"), "");
  EXPECT_NE(with(all + "present_v = Slice(v_all, at_0, axes_1, at_0)"), "");
}

TEST(Sequences, ALargestOfAllReachesEachOfThem) {
  EXPECT_NE(Unproved(WithEnd("top = ReduceMax<axes = [0]>(y0)\ny = Sub(y0, top)")), "");
  EXPECT_EQ(Unproved(WithEnd("top = ReduceMax<axes = [2]>(y0)\ny = Sub(y0, top)")), "");
}

TEST(Sequences, TheirNumberIsNoneOfOneAlone) {
  EXPECT_NE(Unproved(WithEnd("b = Shape<start = 0, end = 1>(q)\nmany = Equal(b, five)\n"
                             "more = Cast<to = 1>(many)\ny = Add(y0, more)")),
            "");
  EXPECT_EQ(Unproved(WithEnd("s = Shape<start = 1, end = 2>(q)\nmany = Equal(s, five)\n"
                             "more = Cast<to = 1>(many)\ny = Add(y0, more)")),
            "");
}

// How many elements are not zero is told by those of all sequences.
TEST(Sequences, WhatAllOfThemCountIsNoneOfOneAlone) {
  const auto with = [](const std::string& chosen, const std::string& read) {
    return Unproved(
        WithEnd("n = Shape<start = 1, end = 2>(q)\ns = Squeeze(n, at_0)\n"
                "zero_0 = Squeeze(at_0, at_0)\nnew = Range(zero_0, s, number_1)\n" +
                chosen + read + "more = Cast<to = 1>(count)\ny = Add(y0, more)"));
  };
  const std::string of_data = "some = Greater(y0, third)\nplaces = NonZero(some)\n";
  const std::string of_sizes = "some = Equal(new, five)\nplaces = NonZero(some)\n";
  const std::string axis = "count = Shape<start = 1, end = 2>(places)\n";
  const std::string all = "count = Size(places)\n";
  const std::string last =
      "m = Shape<start = 1, end = 2>(places)\nm0 = Squeeze(m, at_0)\n"
      "numbers = Range(zero_0, m0, number_1)\ncount = ReduceMax<keepdims = 0>(numbers)\n";
  const std::string sum =
      "m = Shape<start = 1, end = 2>(places)\nones = Expand(at_1, m)\n"
      "count = ReduceSum<keepdims = 0>(ones)\n";
  for (const std::string& read : {axis, all, last, sum}) {
    EXPECT_NE(with(of_data, read), "") << read;
    EXPECT_EQ(with(of_sizes, read), "") << read;
  }
}

TEST(Sequences, FoldedIntoRowsTheyStayApart) {
  EXPECT_EQ(Unproved(WithEnd("flat = Flatten<axis = 2>(y0)\nsoft = Softmax<axis = -1>(flat)\n"
                             "shape = Shape(y0)\ny = Reshape(soft, shape)")),
            "");
  EXPECT_NE(Unproved(WithEnd("flat = Flatten<axis = 2>(y0)\nsoft = Softmax<axis = 0>(flat)\n"
                             "shape = Shape(y0)\ny = Reshape(soft, shape)")),
            "");
}

// Where the visible rows of all sequences are merged into one axis, rows of the longest one stand
// behind those of a shorter one.
TEST(Sequences, MergedWithTheirRowsTheyAreNotKnownApart) {
  const auto with = [](const std::string& merged, bool uniform) {
    const std::string rest = "mean = ReduceMean<keepdims = 0>(flat)\ny = Add(y0, mean)";
    const std::string shapes =
        " int64[1] all = {-1}, int64[2] fours = {-1, 4}, int64[3] heads = {-1, 2, 4},";
    return Unproved(ProofOfPair(
        kCase,
        {{kLastOfSource, "y0 = Reshape(context4, y_shape)\nflat = " +
                             absl::StrReplaceAll(merged, {{"KEYS", "present_k"}}) + rest},
         {kConstantsOfSource, kConstantsOfSource + shapes}},
        {{kLast, "y0 = Reshape (context4, y_shape)\nflat = " +
                     absl::StrReplaceAll(merged, {{"KEYS", "\"/kvlift/layers.0/key/visible\""}}) +
                     rest},
         {kConstants, kConstants + shapes}},
        [&](Manifest* relation) {
          if (uniform) Uniform(relation);
        }));
  };
  for (const char* merged : {"Reshape(KEYS, all)\n", "Reshape(KEYS, fours)\n",
                             "Reshape(KEYS, heads)\n", "Flatten<axis = 3>(KEYS)\n"}) {
    EXPECT_NE(with(merged, false), "") << merged;
    EXPECT_EQ(with(merged, true), "") << merged;
  }
}

// Positions differ by sequence in the conversion, where the source has one row of them for all.
TEST(Sequences, AnAngleOfTheFirstOneIsNotTheirOwn) {
  const std::string rest =
      "number = Cast<to = 1>(places)\nturned = Mul(number, third)\nangle = Cos(turned)\n";
  const std::string of_source =
      "past_n = Shape<start = 2, end = 3>(past_k)\np0 = Squeeze(past_n, at_0)\n"
      "n = Shape<start = 1, end = 2>(q)\ns0 = Squeeze(n, at_0)\nt0 = Add(p0, s0)\n"
      "own = Range(p0, t0, number_1)\nplaces = Unsqueeze(own, at_1)\n";
  const std::string of_result =
      "n = Shape<start = 1, end = 2>(q)\ns0 = Squeeze(n, at_0)\nzero_0 = Squeeze(at_0, at_0)\n"
      "new = Range(zero_0, s0, number_1)\nstarts = Unsqueeze(write_indices, at_1)\n"
      "counted = Add(starts, new)\nplaces = Unsqueeze(counted, two)\n";
  const auto with = [&](const std::string& angle) {
    return Unproved(ProofOfPair(
        kCase,
        {{"q4 = Reshape(q, q_shape)",
          of_source + rest + "q1 = Mul(q, angle)\nq4 = Reshape(q1, q_shape)"},
         {kConstantsOfSource, std::string(kConstantsOfSource) + kMore}},
        {{"q4 = Reshape (q, q_shape)",
          of_result + rest + angle + "q1 = Mul(q, own_angle)\nq4 = Reshape(q1, q_shape)"},
         {kConstants, std::string(kConstants) + kMore + " int64[1] two = {2},"}}));
  };
  EXPECT_EQ(with("own_angle = Identity(angle)\n"), "");
  EXPECT_NE(with("own_angle = Slice(angle, at_0, at_1, at_0)\n"), "");
}

constexpr char kLengths[] = "\"\", \"\", \"/kvlift/shared/nonpad_kv_seqlen\")";
constexpr char kLongest[] =
    "ReduceMax (\"/kvlift/shared/nonpad_kv_seqlen\", \"/kvlift/constant/ints_0\")";

TEST(Lengths, ThereIsOneForEachSequence) {
  EXPECT_NE(
      Unproved(ProofOfPair(kCase, {},
                           {{kConstants, std::string(kConstants) + kMore},
                            {"[\"/kvlift/layers.0/Attention\"]",
                             "few = Slice (\"/kvlift/shared/nonpad_kv_seqlen\", at_0, to_last)\n"
                             "[\"/kvlift/layers.0/Attention\"]"},
                            {kLengths, "\"\", \"\", few)"}})),
      "");
}

TEST(Lengths, TheLongestIsThatOfAllSequences) {
  const std::string fewer =
      "[\"/kvlift/shared/visible_length\"] \"/kvlift/shared/visible_length\" = ";
  EXPECT_NE(
      Unproved(ProofOfPair(
          kCase, {},
          {{kConstants, std::string(kConstants) + kMore},
           {fewer + kLongest, "few = Slice (\"/kvlift/shared/nonpad_kv_seqlen\", at_0, to_last)\n" +
                                  fewer + "ReduceMax (few, \"/kvlift/constant/ints_0\")"}})),
      "");
}

// The converted model declares one name for its sequences and for the slots of its caches. Their
// difference, B - M, is then 0 in the forms, and -M + B in most steps.
TEST(Sizes, OfAxesWithOneNameAreAssumedToBeEqual) {
  const std::string made = "[\"/kvlift/shared/nonpad_kv_seqlen\"] ";
  const std::string length = made + "\"/kvlift/shared/nonpad_kv_seqlen\" = Add (write_indices, ";
  const std::string longer =
      "slots = Shape <start: int = 2, end: int = 3> (past_k)\n"
      "many = Shape <start: int = 0, end: int = 1> (past_k)\nmore = Sub (many, slots)\n"
      "later = Add (write_indices, more)\n" +
      made + "\"/kvlift/shared/nonpad_kv_seqlen\" = Add (later, ";
  const auto ledger = [&](const std::string& name, const std::string& visible) {
    const Proof proof = ProofOfPair(
        kCase, {},
        {{"int64[B] write_indices", "int64[" + name + "] write_indices"}, {length, visible}});
    std::set<std::string> conditions;
    if (!Unproved(proof).empty()) conditions.insert("not proved");
    for (const Assumption& a : proof.assumptions.all()) conditions.insert(a.condition);
    return conditions;
  };
  EXPECT_THAT(ledger("max_sequence_length", longer), Contains("past_k.shape[2] = B"));
  EXPECT_THAT(ledger("max_sequence_length", length), Contains("past_k.shape[2] = B"));
  EXPECT_THAT(ledger("B", length), Not(Contains("past_k.shape[2] = B")));
  EXPECT_THAT(ledger("B", longer), Contains("not proved"));
}

// Heads and channels, 2 and 4, cannot be one size.
TEST(Sizes, OfAxesWithOneNameAreNotTwoNumbers) {
  const std::string made = "[\"/kvlift/shared/nonpad_kv_seqlen\"] ";
  const auto with = [&](const std::string& cache) {
    return Unproved(ProofOfPair(
        kCase, {},
        {{"float[B,2,max_sequence_length,4] past_k", cache + " past_k"},
         {made,
          "heads = Shape <start: int = 1, end: int = 2> (past_k)\n"
          "channels = Shape <start: int = 3, end: int = 4> (past_k)\n"
          "more = Sub (channels, heads)\nlater = Add (write_indices, more)\n" +
              made},
         {"= Add (write_indices, \"/kvlift/shared/S\")", "= Add (later, \"/kvlift/shared/S\")"}}));
  };
  EXPECT_NE(with("float[B,x,max_sequence_length,x]"), "");
  EXPECT_NE(with("float[B,x,max_sequence_length,z]"), "");
}

// A length of 7 * ((P + S) div 7) - P rows is S in some steps, and is broadcast or refused in
// others.
TEST(Sizes, ThatAreEqualInSomeStepsAreNoGround) {
  const std::string rows = "rows = Range(p, t, one)";
  const std::string seven = " int64 seven = {7},";
  const TextChanges cut = {{rows,
                            "sevens = Div(t, seven)\nmost = Mul(sevens, seven)\n"
                            "rows = Range(p, most, one)"},
                           {kConstantsOfSource, kConstantsOfSource + seven}};
  EXPECT_NE(Unproved(ProofOfPair(kCase, cut, {})), "");
  const TextChanges less = {{rows, "most = Sub(t, seven)\nrows = Range(p, most, one)"},
                            {kConstantsOfSource, kConstantsOfSource + seven}};
  EXPECT_NE(Unproved(ProofOfPair(kCase, less, {})), "");
}

// The smaller of two sizes is as many as there are rows in some steps only.
TEST(Sizes, OfWhatIsCutAtAnotherSizeAreNoGround) {
  const std::string longer =
      "twice = Concat<axis = 1>(y0, y0)\nb = Shape<start = 0, end = 1>(q)\n"
      "cut = Slice(twice, at_0, b, at_1)\ny = Add(y0, cut)";
  EXPECT_NE(Unproved(WithEnds(longer, "y = Add (y0, y0)")), "");
}

// A length that a product beyond 64 bits decides is another one than S; an operator that broadcasts
// does not refuse it where there is one token.
TEST(Sizes, ThatDataDecidesAreNoGroundOfABroadcast) {
  const TextChanges rows = {
      {"rows = Range(p, t, one)",
       "much = Mul(t, huge)\nmost = Div(much, huge)\nrows = Range(p, most, one)"},
      {kConstantsOfSource,
       std::string(kConstantsOfSource) + " int64 huge = {4611686018427387904},"}};
  EXPECT_NE(Unproved(ProofOfPair(kCase, rows, {})), "");
}

// Where no cache grows, sizes are equal in some steps only as well: heads that are cut at the
// number of sequences.
TEST(Sizes, OfModelsOfFixedCachesAreNoGroundEither) {
  const std::string fixed = "fixed_buffer_prefix_read";
  EXPECT_EQ(Unproved(ProofOfPair(fixed, {}, {})), "");
  EXPECT_NE(
      Unproved(ProofOfPair(
          fixed,
          {{"k_t = Transpose<perm = [0, 1, 3, 2]>(k_seen)",
            "twice = Concat<axis = 1>(k_seen, k_seen)\nb = Shape<start = 0, end = 1>(past_v)\n"
            "cut = Slice(twice, first, b, axes_1)\n"
            "k_t = Transpose<perm = [0, 1, 3, 2]>(cut)"}},
          {})),
      "");
}

// A decoder with a buffer of M slots, whose mask has as many columns as `counted` has rows.
std::string WithBuffer(const std::string& counted, const std::string& slots) {
  return "<ir_version: 8, opset_import: [\"\" : 17]>\n"
         "decoder (float[B,S,16] q, float[B,S,16] k, float[B,S,16] v, int64[B,S] position_ids,\n"
         "         float[B,4," +
         slots + ",4] past_k, float[B,4," + slots +
         ",4] past_v) =>\n"
         "        (float[B,S,16] y, float[B,4," +
         slots + ",4] present_k, float[B,4," + slots +
         ",4] present_v)\n"
         "<int64 zero = {0}, int64 one = {1}, int64[1] to_0 = {0}, int64[1] to_1 = {1},\n"
         " int64[1] last = {-1}, int64 to_2 = {2}, int64[4] heads = {0, 0, 4, 4},\n"
         " int64[3] flat = {0, 0, 16}, float scale = {0.5}, float low = {-inf}>\n"
         "{ q4 = Reshape(q, heads) q_heads = Transpose<perm = [0, 2, 1, 3]>(q4)\n"
         "  k4 = Reshape(k, heads) k_new = Transpose<perm = [0, 2, 1, 3]>(k4)\n"
         "  v4 = Reshape(v, heads) v_new = Transpose<perm = [0, 2, 1, 3]>(v4)\n"
         "  each = Unsqueeze(position_ids, to_1) each4 = Unsqueeze(each, last)\n"
         "  new_shape = Shape(k_new) places = Expand(each4, new_shape)\n"
         "  present_k = ScatterElements<axis = 2>(past_k, places, k_new)\n"
         "  present_v = ScatterElements<axis = 2>(past_v, places, v_new)\n"
         "  dims = Shape(" +
         counted +
         ") many = Gather(dims, to_2) own = Range(zero, many, one)\n"
         "  cols = Unsqueeze(own, to_0) rows = Unsqueeze(position_ids, last)\n"
         "  sees = LessOrEqual(cols, rows) sees4 = Unsqueeze(sees, to_1)\n"
         "  k_t = Transpose<perm = [0, 1, 3, 2]>(present_k) product = MatMul(q_heads, k_t)\n"
         "  scores = Mul(product, scale) masked = Where(sees4, scores, low)\n"
         "  probs = Softmax<axis = -1>(masked) context = MatMul(probs, present_v)\n"
         "  context4 = Transpose<perm = [0, 2, 1, 3]>(context) y = Reshape(context4, flat) }";
}

// A column for each new token is one for each slot where there are as many, and one for all slots
// where there is one token.
TEST(Sizes, OfAStepAreNotThoseOfABuffer) {
  const auto with = [](const std::string& counted, const std::string& slots) -> std::string {
    const auto right = ParseModelText(WithBuffer("past_k", slots));
    const auto source = ParseModelText(WithBuffer(counted, slots));
    EXPECT_TRUE(right.ok() && source.ok()) << right.status();
    if (!right.ok() || !source.ok()) return "no model";
    const auto conversion = Convert(AsModel(*right), {}, AllRules());
    EXPECT_TRUE(conversion.ok() && conversion->model) << conversion.status();
    if (!conversion.ok() || !conversion->model) return "no conversion";
    return Unproved(ProveConversion(*source, *conversion->model, conversion->manifest));
  };
  for (const char* slots : {"M", "8"}) {
    EXPECT_EQ(with("past_k", slots), "") << slots;
    EXPECT_NE(with("k_new", slots), "") << slots;
  }
}

// An index that the source finds in its table is behind the end of a shorter one.
TEST(Lookups, AShorterTableRefusesIndices) {
  const auto end = [](const std::string& table) {
    return "n = Shape<start = 1, end = 2>(q)\ns = Squeeze(n, at_0)\n"
           "zero_0 = Squeeze(at_0, at_0)\nnew = Range(zero_0, s, number_1)\n" +
           table +
           "row = Gather<axis = 0>(some, new)\nwide = Unsqueeze(row, at_1)\ny = Add(y0, wide)";
  };
  const std::string table = "hundred = ConstantOfShape(many)\n";
  const auto with = [&](const std::string& of_source, const std::string& after) {
    const std::string many = " int64[1] many = {100},";
    return Unproved(
        ProofOfPair(kCase,
                    {{kLastOfSource, "y0 = Reshape(context4, y_shape)\n" + end(table + of_source)},
                     {kConstantsOfSource, std::string(kConstantsOfSource) + kMore + many}},
                    {{kLast, "y0 = Reshape (context4, y_shape)\n" + end(table + after)},
                     {kConstants, std::string(kConstants) + kMore + many}}));
  };
  const std::string whole = "some = Identity(hundred)\n";
  EXPECT_EQ(with(whole, whole), "");
  EXPECT_NE(with(whole, "some = Slice(hundred, at_0, five, at_0)\n"), "");
}

}  // namespace
}  // namespace kvlift
