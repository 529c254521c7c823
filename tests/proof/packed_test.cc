// LIBS: proof rewrites verify
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// A cache of all layers in one tensor: the parts are proved, and parts at wrong places are not.
#include <functional>
#include <string>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "ir/tensor_data.h"
#include "proof/prove/prove_conversion.h"
#include "rewrite/convert/convert.h"
#include "support/case_file.h"
#include "support/models.h"

namespace kvlift {
namespace {

using onnx::GraphProto;
using onnx::NodeProto;

class Packed : public testing::Test {
 protected:
  void SetUp() override {
    const auto c = LoadCase(KVLIFT_TESTDATA_DIR "/rewrites/fixed_buffer_packed_kept.onnxtxt");
    ASSERT_TRUE(c.ok()) << c.status();
    const auto before = ParseModelText(c->before);
    ASSERT_TRUE(before.ok()) << before.status();
    source_ = AsModel(*before);
    auto conversion = Convert(source_, c->options, AllRules());
    ASSERT_TRUE(conversion.ok() && conversion->model) << conversion.status();
    after_ = *std::move(conversion->model);
    relation_ = std::move(conversion->manifest);
  }

  // Facts that are not proved of the conversion after a change.
  int Unproved(const std::function<void(GraphProto*)>& change) const {
    onnx::ModelProto model = after_;
    change(model.mutable_graph());
    EXPECT_TRUE(model.SerializeAsString() != after_.SerializeAsString());
    const Proof proof = ProveConversion(*source_.proto, model, relation_);
    int unproved = proof.facts.empty() ? 1 : 0;
    for (const ProofFact& fact : proof.facts) unproved += fact.holds() ? 0 : 1;
    return unproved;
  }

  // The k-th node of an operator.
  static NodeProto* Nth(GraphProto* graph, const std::string& op, int k) {
    for (NodeProto& node : *graph->mutable_node()) {
      if (node.op_type() == op && k-- == 0) return &node;
    }
    ADD_FAILURE() << op;
    return graph->mutable_node(0);
  }

  Model source_;
  onnx::ModelProto after_;
  Manifest relation_;
};

TEST_F(Packed, IsProvedPartByPart) {
  const Proof proof = ProveConversion(*source_.proto, after_, relation_);
  int of_cache = 0;
  for (const ProofFact& fact : proof.facts) {
    EXPECT_TRUE(fact.holds()) << fact.about << ": " << fact.text << ": " << fact.why_not;
    of_cache += fact.about == "cache" ? 1 : 0;
  }
  EXPECT_EQ(of_cache, 1);
}

TEST_F(Packed, WritesAtAnotherPartArentProved) {
  for (int part = 0; part < 4; ++part) {
    for (int other = 0; other < 4; ++other) {
      if (part == other) continue;
      EXPECT_GT(Unproved([&](GraphProto* graph) {
                  *Nth(graph, "TensorScatter", part)->mutable_input(2) =
                      Nth(graph, "TensorScatter", other)->input(2);
                }),
                0)
          << part << " at " << other;
    }
  }
}

TEST_F(Packed, ReadsOfAnotherPartArentProved) {
  for (int attention = 0; attention < 2; ++attention) {
    for (const int operand : {1, 2}) {
      EXPECT_GT(Unproved([&](GraphProto* graph) {
                  *Nth(graph, "Attention", attention)->mutable_input(operand) =
                      Nth(graph, "Attention", 1 - attention)->input(operand);
                }),
                0);
    }
    EXPECT_GT(Unproved([&](GraphProto* graph) {
                NodeProto* node = Nth(graph, "Attention", attention);
                node->mutable_input()->SwapElements(1, 2);
              }),
              0);
  }
}

// Without it a row behind a part would be the next one's.
TEST_F(Packed, WithoutTheGuardNothingIsProved) {
  EXPECT_GT(Unproved([&](GraphProto* graph) {
              NodeProto* guard = Nth(graph, "Where", 0);
              guard->set_input(2, guard->input(1));
            }),
            0);
}

TEST_F(Packed, AGuardThatLetsMoreThroughIsNotEnough) {
  EXPECT_GT(Unproved([&](GraphProto* graph) {
              Nth(graph, "LessOrEqual", 0)->set_input(1, Nth(graph, "Where", 0)->input(2));
            }),
            0);
}

TEST_F(Packed, TheOrderOfTheAxesIsTold) {
  EXPECT_GT(Unproved([&](GraphProto* graph) {
              NodeProto* last = nullptr;
              for (NodeProto& node : *graph->mutable_node()) {
                if (node.output(0) == "present_cache") last = &node;
              }
              ASSERT_NE(last, nullptr);
              NodeProto* swap = graph->add_node();
              last->set_output(0, "swapped");
              swap->set_op_type("Transpose");
              swap->add_input("swapped");
              swap->add_output("present_cache");
              *swap->add_attribute() = [] {
                onnx::AttributeProto perm;
                perm.set_name("perm");
                perm.set_type(onnx::AttributeProto::INTS);
                for (const int64_t axis : {0, 2, 1, 3, 4, 5}) perm.add_ints(axis);
                return perm;
              }();
            }),
            0);
}

}  // namespace
}  // namespace kvlift
