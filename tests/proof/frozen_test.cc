// LIBS: proof rewrites freeze
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// A model with static shapes equals its source in steps of those sizes. The ledger says which, and
// what the sizes hide, such as a factor of S, is judged in the source as it is.
#include <algorithm>
#include <string>

#include "freeze/freeze.h"
#include "ir/node_builder.h"
#include "proof/graphs/frozen_sizes.h"
#include "support/proof_pair.h"

namespace kvlift {
namespace {

struct FrozenPair {
  onnx::ModelProto source, result;
  Manifest relation;
};

// Converts the case, whose source ends with statements that make y of y0, and freezes the result.
FrozenPair Pair(const std::string& end, int64_t batch, int64_t tokens) {
  FrozenPair pair;
  const auto c = LoadCase(fmt::format("{}/rewrites/{}.onnxtxt", KVLIFT_TESTDATA_DIR, kCase));
  EXPECT_TRUE(c.ok()) << c.status();
  TextChanges changes;
  if (!end.empty()) {
    changes = {{kLastOfSource, "y0 = Reshape(context4, y_shape)\n" + end}};
  }
  pair.source = *ParseModelText(Changed(c->before, changes));
  ConvertOptions options;
  options.max_seq_len = 16;
  options.static_shapes = true;
  const auto conversion = Convert(AsModel(pair.source), options, AllRules());
  EXPECT_TRUE(conversion.ok() && conversion->model) << conversion.status();
  if (!conversion.ok() || !conversion->model) return pair;
  const auto frozen = Freeze(*conversion->model, conversion->manifest, {batch, tokens, {}});
  EXPECT_TRUE(frozen.ok() && frozen->model)
      << (frozen.ok() && frozen->refusal ? frozen->refusal->text : "");
  if (!frozen.ok() || !frozen->model) return pair;
  pair.result = *frozen->model;
  pair.relation = frozen->manifest;
  return pair;
}

Proof Proved(const FrozenPair& pair) {
  return ProveConversion(pair.source, pair.result, pair.relation);
}

bool Has(const Proof& proof, AssumptionKind kind, const std::string& text) {
  return std::any_of(
      proof.assumptions.all().begin(), proof.assumptions.all().end(), [&](const Assumption& a) {
        return a.kind == kind && !a.checked && a.condition.find(text) != std::string::npos;
      });
}

TEST(Frozen, IsProvedForItsSizes) {
  for (const int64_t tokens : {1, 4}) {
    const Proof proof = Proved(Pair("", 1, tokens));
    EXPECT_EQ(Unproved(proof), "");
    EXPECT_TRUE(Has(proof, AssumptionKind::kFrozenSize, fmt::format("= {} in every", tokens)));
    EXPECT_TRUE(Has(proof, AssumptionKind::kFrozenSize, "= 1 in every"));
    EXPECT_FALSE(Has(proof, AssumptionKind::kPadding, "no step"));
  }
}

TEST(Frozen, IsProvedForSeveralSequences) { EXPECT_EQ(Unproved(Proved(Pair("", 3, 4))), ""); }

TEST(Frozen, ExcludesPaddingWhereTheNumberOfTokensIsAFactor) {
  const std::string end =
      "n = Shape<start = 1, end = 2>(q)\nnumber = Cast<to = 1>(n)\n"
      "y = Mul(y0, number)";
  const Proof four = Proved(Pair(end, 1, 4)), one = Proved(Pair(end, 1, 1));
  EXPECT_EQ(Unproved(four), "");
  EXPECT_TRUE(Has(four, AssumptionKind::kPadding, "no step has padding tokens"));
  EXPECT_EQ(Unproved(one), "");
  EXPECT_FALSE(Has(one, AssumptionKind::kPadding, "no step"));
}

TEST(Frozen, IsNotProvedForEachSequenceWhereTheirNumberIsAFactor) {
  const std::string end =
      "n = Shape<start = 0, end = 1>(q)\nnumber = Cast<to = 1>(n)\n"
      "y = Mul(y0, number)";
  FrozenPair pair = Pair("", 3, 4);
  ASSERT_FALSE(pair.relation.uniform);
  const FrozenPair other = Pair(end, 1, 4);
  EXPECT_EQ(Unproved(Proved(other)), "");  // the only sequence is that alone
  // Both models get the factor, which is 3 in the frozen one.
  pair.source = other.source;
  auto* graph = pair.result.mutable_graph();
  for (onnx::NodeProto& node : *graph->mutable_node()) {
    for (std::string& output : *node.mutable_output()) {
      if (output == "y") output = "y0";
    }
  }
  onnx::TensorProto* factor = graph->add_initializer();
  factor->set_name("number");
  factor->set_data_type(onnx::TensorProto::FLOAT);
  factor->add_dims(1);
  factor->add_float_data(3);
  onnx::NodeProto* product = graph->add_node();
  product->set_op_type("Mul");
  product->add_input("y0");
  product->add_input("number");
  product->add_output("y");
  EXPECT_NE(Unproved(Proved(pair)).find("that sequence alone"), std::string::npos);
}

TEST(Frozen, ASizeThatOnlyAnOperatorOfTheResultFixesIsNotTaken) {
  const auto c = LoadCase(
      fmt::format("{}/rewrites/growing_concat_packed_last_axis.onnxtxt", KVLIFT_TESTDATA_DIR));
  ASSERT_TRUE(c.ok()) << c.status();
  FrozenPair pair;
  pair.source = *ParseModelText(c->before);
  const auto conversion = Convert(AsModel(pair.source), {}, AllRules());
  ASSERT_TRUE(conversion.ok() && conversion->model) << conversion.status();
  pair.result = *conversion->model;
  pair.relation = conversion->manifest;
  ASSERT_EQ(Unproved(Proved(pair)), "");
  // The Concat of keys and values takes one row of values in steps of one token alone.
  std::string text = PrintModelText(pair.result);
  const size_t reads = text.find("(v, ");
  ASSERT_NE(reads, std::string::npos);
  text.replace(reads, 4, "(v_first, ");
  const size_t body = text.find("\n{\n");
  ASSERT_NE(body, std::string::npos);
  text.insert(body + 3,
              "  test_zero = Constant <value_ints = [0]> ()\n"
              "  test_one = Constant <value_ints = [1]> ()\n"
              "  v_first = Slice (v, test_zero, test_one, test_one)\n");
  pair.result = *ParseModelText(text);
  const Proof proof = Proved(pair);
  EXPECT_NE(Unproved(proof), "");
  EXPECT_FALSE(Has(proof, AssumptionKind::kFrozenSize, "= 1 in every"));
}

TEST(Frozen, WithAnotherScaleIsNotProved) {
  FrozenPair pair = Pair("", 1, 4);
  bool changed = false;
  for (onnx::NodeProto& node : *pair.result.mutable_graph()->mutable_node()) {
    if (node.op_type() != "Attention") continue;
    *node.add_attribute() = MakeAttribute("scale", 0.25F);
    changed = true;
  }
  ASSERT_TRUE(changed);
  EXPECT_NE(Unproved(Proved(pair)), "");
}

TEST(FrozenSizes, AreThoseThatOneModelNamesAndTheOtherNumbers) {
  const FrozenPair pair = Pair("", 2, 4);
  const auto sizes = FrozenSizesOf(pair.source, pair.result, pair.relation);
  ASSERT_EQ(sizes.size(), 2u);
  EXPECT_TRUE(FrozenSizesOf(pair.source, pair.source, pair.relation).empty());
  onnx::ModelProto summed = pair.source;
  auto* shape = summed.mutable_graph()
                    ->mutable_input(0)
                    ->mutable_type()
                    ->mutable_tensor_type()
                    ->mutable_shape();
  shape->mutable_dim(0)->set_dim_param("P + " + sizes[0].name);
  DeclareSizes(sizes, summed.mutable_graph());
  EXPECT_EQ(summed.graph().input(0).type().tensor_type().shape().dim(0).dim_param(),
            fmt::format("P + {}", sizes[0].size));
}

}  // namespace
}  // namespace kvlift
