// LIBS: proof rewrites
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// Operators of the conversion that refuse to run where the source runs: steps and divisors of 0,
// extents below 0, coordinates outside of a table.
#include <algorithm>
#include <string>

#include "support/proof_pair.h"

namespace kvlift {
namespace {

constexpr char kShape[] = "[\"/kvlift/shared/S\"] \"/kvlift/shared/S\" = Shape";

// The conversion with statements that make the integers `other` of the size s, and nothing of the
// cache, in front of all that reads the number of tokens. Only the shape of what they give is read.
std::string OpenWith(const std::string& statements, const TextChanges& before = {}) {
  return Unproved(ProofOfPair(
      kCase, before,
      {{kConstants, std::string(kConstants) +
                        " int64[1] at_0 = {0}, int64[1] at_1 = {1}, int64[1] five = {5},"
                        " int64[1] three = {3}, int64 zero = {0}, int64 one = {1},"},
       {std::string(kShape) + " <start: int = 1, end: int = 2> (q)",
        "n = Shape <start: int = 1, end: int = 2> (q)\ns = Squeeze (n, at_0)\n" + statements +
            "\nnothing = Mul (other, zero)\nspread = Cast <to: int = 1> (nothing)\n"
            "all = Add (q, spread)\n" +
            kShape + " <start: int = 1, end: int = 2> (all)"}}));
}

TEST(Needs, AStepOfZeroIsRefused) {
  EXPECT_EQ(OpenWith("steps = Range (zero, s, one)\nother = Size (steps)"), "");
  EXPECT_NE(OpenWith("steps = Range (zero, s, zero)\nother = Size (steps)"), "");
  EXPECT_NE(OpenWith("step = Sub (s, one)\nsteps = Range (zero, s, step)\nother = Size (steps)"),
            "");
}

TEST(Needs, ADivisorOfZeroIsRefused) {
  EXPECT_EQ(OpenWith("other = Div (one, s)"), "");
  EXPECT_NE(OpenWith("other = Div (one, zero)"), "");
  EXPECT_NE(OpenWith("less = Sub (s, one)\nother = Div (one, less)"), "");
  EXPECT_NE(OpenWith("less = Sub (s, one)\nother = Mod (one, less)"), "");
}

TEST(Needs, AnExtentBelowZeroIsRefused) {
  EXPECT_EQ(OpenWith("more = Add (n, three)\nmany = Expand (at_0, more)\nother = Size (many)"), "");
  EXPECT_NE(OpenWith("less = Sub (n, three)\nmany = Expand (at_0, less)\nother = Size (many)"), "");
}

TEST(Needs, PartsAreAsLongAsTheAxis) {
  const std::string parts =
      "parts = Concat <axis: int = 0> (n, three)\n"
      "a, b = Split <axis: int = 0> (many, parts)\nother = Size (a)";
  EXPECT_EQ(OpenWith("more = Add (n, three)\nmany = Expand (at_0, more)\n" + parts), "");
  EXPECT_NE(OpenWith("more = Add (n, five)\nmany = Expand (at_0, more)\n" + parts), "");
}

// A table with one row has none at 5, nor at S - 1.
TEST(Lookups, CoordinatesOutsideOfATableAreRefused) {
  EXPECT_EQ(OpenWith("row = GatherND (three, at_0)\nother = Mul (row, zero)"), "");
  EXPECT_NE(OpenWith("row = GatherND (three, five)\nother = Mul (row, zero)"), "");
  EXPECT_NE(OpenWith("last = Sub (n, at_1)\nrow = GatherND (three, last)\n"
                     "other = Mul (row, zero)"),
            "");
  EXPECT_NE(OpenWith("row = GatherElements <axis: int = 0> (three, five)\n"
                     "other = Mul (row, zero)"),
            "");
}

// The source looks up the first S rows of 100; one row more may be behind the last.
TEST(Lookups, MorePlacesThanTheSourceLooksUpAreNotInside) {
  const auto end = [](const std::string& last, const std::string& rows) {
    return "n = Shape <start: int = 1, end: int = 2> (q)\ns_0 = Squeeze (n, at_0)\n"
           "start_0 = Squeeze (at_0, at_0)\nend_0 = Add (s_0, " +
           last +
           ")\nplaces = Range (start_0, end_0, number_1)\nhundred = ConstantOfShape (many)\n"
           "found = Gather <axis: int = 0> (hundred, places)\n" +
           rows + "wide = Unsqueeze (row, at_1)\ny = Add (y0, wide)";
  };
  const std::string more =
      " int64[1] at_0 = {0}, int64[1] at_1 = {1}, int64 number_0 = {0}, int64 number_1 = {1},"
      " int64[1] many = {100},";
  const auto with = [&](const std::string& last, const std::string& rows) {
    const std::string of_source = "int64[3] y_shape = {0, 0, 16},";
    return Unproved(ProofOfPair(
        kCase,
        {{"y = Reshape(context4, y_shape)",
          "y0 = Reshape(context4, y_shape)\n" + end("number_0", "row = Identity (found)\n")},
         {of_source, of_source + more}},
        {{"y = Reshape (context4, y_shape)",
          "y0 = Reshape (context4, y_shape)\n" + end(last, rows)},
         {kConstants, kConstants + more}}));
  };
  EXPECT_EQ(with("number_0", "row = Identity (found)\n"), "");
  EXPECT_NE(with("number_1", "row = Slice (found, at_0, n, at_0)\n"), "");
}

// The source scales by a number of rows, and the conversion by S.
std::string ScaledByRows(const std::string& rows) {
  return Unproved(
      ProofOfPair(kCase,
                  {{kConstantsOfSource, std::string(kConstantsOfSource) +
                                            " int64[1] at_0 = {0}, int64[1] at_1 = {1},"
                                            " int64[1] at_2 = {2}, int64[1] at_3 = {3},"},
                   {kLastOfSource, "q_dims = Shape(q) tokens = Slice(q_dims, at_1, at_2)\n" + rows +
                                       " factor = Cast<to = 1>(count)\n"
                                       "y0 = Reshape(context4, y_shape) y = Mul(y0, factor)"}},
                  {{kLast,
                    "factor = Cast <to: int = 1> (\"/kvlift/shared/S\")\n"
                    "y0 = Reshape (context4, y_shape)\ny = Mul (y0, factor)"}}));
}

// A Slice of the past has S rows only where S <= P, which the first step does not keep.
TEST(Bounds, TheFirstStepKeepsThem) {
  EXPECT_EQ(ScaledByRows("count = Identity(tokens)"), "");
  EXPECT_NE(ScaledByRows("part = Slice(past_k, at_0, tokens, at_2) part_dims = Shape(part)"
                         " count = Slice(part_dims, at_2, at_3)"),
            "");
  EXPECT_EQ(ScaledByRows("part = Slice(present_k, at_0, tokens, at_2) part_dims = Shape(part)"
                         " count = Slice(part_dims, at_2, at_3)"),
            "");
}

constexpr char kKeyWrite[] =
    "[\"/kvlift/layers.0/key/TensorScatter\"] present_k = TensorScatter <axis: int = 2>"
    " (past_k, k_new, write_indices)";

constexpr char kSeen[] =
    "[\"/kvlift/shared/mask_2\"] \"/kvlift/shared/mask_2\" = Expand"
    " (\"/kvlift/shared/mask_1\", \"/kvlift/shared/shape\")";
constexpr char kSeenByMany[] =
    "many = Not (few)\nany = Or (\"/kvlift/shared/mask_1\", many)\n"
    "\"/kvlift/shared/mask_2\" = Expand (any, \"/kvlift/shared/shape\")";

// The conversion with a write that fails unless a step has at most three tokens, and a mask that is
// right for such steps only.
Proof WithWriteOfFewTokens(const std::string& write) {
  return ProofOfPair(kCase, {},
                     {{kKeyWrite,
                       "limit = Constant <value = int64[1] {3}> ()\n"
                       "number = Shape <start: int = 1, end: int = 2> (q)\n"
                       "few = LessOrEqual (number, limit)\n"
                       "room = Shape <start: int = 2, end: int = 3> (past_k)\n"
                       "index = Where (few, write_indices, room)\n" +
                           write},
                      {kSeen, kSeenByMany}});
}

// A write that every step needs excludes the steps in which it fails, and the ledger says so. A
// write that no output needs excludes nothing: a runtime need not run it.
TEST(Guards, ExcludeStepsInTheLedgerAndOnlyWhereTheyAreNeeded) {
  const Proof live =
      WithWriteOfFewTokens("present_k = TensorScatter <axis: int = 2> (past_k, k_new, index)");
  EXPECT_EQ(Unproved(live), "");
  const auto& entries = live.assumptions.all();
  EXPECT_TRUE(std::any_of(entries.begin(), entries.end(), [](const Assumption& entry) {
    return entry.condition == "S <= 3; the converted model stops in other steps" && entry.checked;
  }));
  EXPECT_NE(Unproved(WithWriteOfFewTokens(
                "unread = TensorScatter <axis: int = 2> (past_k, k_new, index)\n" +
                std::string(kKeyWrite))),
            "");
}

// A manifest that names an input of another rank, an axis that the cache does not have or a name
// that no input has is answered, not followed.
TEST(Caches, HaveTheAxesOfTheirLayouts) {
  const auto not_tried = [](const std::function<void(ManifestCache*)>& change) {
    return ProofOfPair(kCase, {}, {}, [&](Manifest* m) { change(&m->caches.front()); }).not_tried;
  };
  EXPECT_EQ(not_tried([](ManifestCache*) {}), "");
  EXPECT_NE(not_tried([](ManifestCache* cache) { cache->input = "write_indices"; }), "");
  EXPECT_NE(not_tried([](ManifestCache* cache) { cache->input = "nowhere"; }), "");
  EXPECT_NE(not_tried([](ManifestCache* cache) { cache->axis = 4; }), "");
  EXPECT_NE(not_tried([](ManifestCache* cache) { cache->axis = -1; }), "");
  EXPECT_NE(not_tried([](ManifestCache* cache) { cache->source.axis = 4; }), "");
  EXPECT_NE(not_tried([](ManifestCache* cache) { cache->layout = "BNSDX"; }), "");
}

}  // namespace
}  // namespace kvlift
