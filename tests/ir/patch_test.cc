// LIBS: onnxio
#include "ir/patch.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnxio/model/model.h"

namespace kvlift {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kChain[] =
    R"(g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] v = {3, 4}> {
    [a] a = Relu(x)
    [b] b = Add(a, w)
    [c] c = Mul(b, v)
    [d] y = Neg(c)
})";

Graph Build(const std::string& text) {
  auto model = ParseModelText(R"(<ir_version: 10, opset_import: ["" : 18, "custom" : 2],
      metadata_props: ["k" : "v"]>)" +
                              text);
  EXPECT_TRUE(model.ok()) << model.status();
  auto graph = Graph::Build(std::make_shared<onnx::ModelProto>(*std::move(model)));
  EXPECT_TRUE(graph.ok()) << graph.status();
  return std::move(graph).value();
}

onnx::NodeProto Node(const std::string& op, const std::vector<std::string>& inputs,
                     const std::string& output) {
  onnx::NodeProto node;
  node.set_op_type(op);
  node.set_name(output);
  for (const auto& input : inputs) node.add_input(input);
  node.add_output(output);
  return node;
}

std::vector<std::string> Names(const onnx::ModelProto& model) {
  std::vector<std::string> names;
  for (const auto& node : model.graph().node()) names.push_back(node.name());
  return names;
}

std::string Error(const Graph& graph, const Patch& patch) {
  const std::string before = graph.model().SerializeAsString();
  const auto edited = Apply(graph, patch);
  EXPECT_EQ(edited.status().code(), absl::StatusCode::kInternal) << edited.status();
  EXPECT_EQ(graph.model().SerializeAsString(), before);
  return std::string(edited.status().message());
}

TEST(Apply, NothingChangesNothing) {
  const Graph g = Build(kChain);
  const auto edited = Apply(g, Patch{});
  ASSERT_TRUE(edited.ok()) << edited.status();
  EXPECT_EQ(edited->SerializeAsString(), g.model().SerializeAsString());
}

TEST(Apply, NewNodesComeRightBeforeTheirFirstReader) {
  const Graph g = Build(kChain);
  Patch patch;
  patch.new_nodes = {Node("Sqrt", {"n1"}, "n2"), Node("Abs", {"x"}, "n1")};
  patch.replace_uses = {{"b", "n2"}};
  const auto edited = Apply(g, patch);
  ASSERT_TRUE(edited.ok()) << edited.status();
  EXPECT_THAT(Names(*edited), ElementsAre("n1", "n2", "c", "d"));  // a and b are dead
  EXPECT_EQ(edited->graph().node(2).input(0), "n2");
  ASSERT_EQ(edited->graph().initializer_size(), 1);  // so is w
  EXPECT_EQ(edited->graph().initializer(0).name(), "v");
  EXPECT_EQ(edited->opset_import_size(), 2);
  EXPECT_EQ(edited->metadata_props(0).key(), "k");

  patch.remove_dead = false;
  const auto all = Apply(g, patch);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(Names(*all), ElementsAre("a", "b", "n1", "n2", "c", "d"));
  EXPECT_EQ(all->graph().initializer_size(), 2);
}

TEST(Apply, NewNodesReadWhatTheySay) {
  const Graph g = Build(kChain);
  Patch patch;
  patch.new_nodes = {Node("Abs", {"b"}, "n")};
  patch.replace_uses = {{"b", "n"}};
  const auto edited = Apply(g, patch);
  ASSERT_TRUE(edited.ok()) << edited.status();
  EXPECT_THAT(Names(*edited), ElementsAre("a", "b", "n", "c", "d"));
}

TEST(Apply, OneOperandOnlyAndInitializers) {
  const Graph g = Build(kChain);
  Patch patch;
  auto& tensor = patch.new_initializers.emplace_back(g.proto().initializer(0));
  tensor.set_name("w2");
  patch.replace_inputs[{1, 1}] = "w2";
  const auto edited = Apply(g, patch);
  ASSERT_TRUE(edited.ok()) << edited.status();
  EXPECT_THAT(edited->graph().node(1).input(), ElementsAre("a", "w2"));
  EXPECT_EQ(edited->graph().initializer(0).name(), "v");
  EXPECT_EQ(edited->graph().initializer(1).name(), "w2");
}

TEST(Apply, SourceNodesMoveWhenTheyMust) {
  const Graph g = Build(R"(g (float[2] x) => (float[2] y, float[2] z) {
      [a] y = Relu(x)
      [b] b = Relu(x)
      [c] z = Relu(b)
  })");
  Patch patch;
  patch.replace_inputs[{0, 0}] = "b";
  const auto edited = Apply(g, patch);
  ASSERT_TRUE(edited.ok()) << edited.status();
  EXPECT_THAT(Names(*edited), ElementsAre("b", "a", "c"));
}

TEST(Apply, GraphOutputsKeepTheirNameAndTakeANewProducer) {
  const Graph g = Build(kChain);
  Patch patch;
  patch.remove_nodes = {3};
  patch.new_nodes = {Node("Abs", {"c"}, "y")};
  const auto edited = Apply(g, patch);
  ASSERT_TRUE(edited.ok()) << edited.status();
  EXPECT_EQ(edited->graph().node(3).op_type(), "Abs");
}

TEST(Apply, InterfaceAndStaleTypes) {
  const Graph g = Build(R"(g (float[2] x, float[2] old) => (float[2] y) <float[2] a> {
      a = Relu(x) b = Add(a, old) y = Abs(b) })");
  Patch patch;
  patch.remove_inputs = {"old"};
  auto& input = patch.new_inputs.emplace_back();
  input.set_name("fresh");
  *input.mutable_type() = g.proto().input(0).type();
  patch.replace_uses = {{"old", "fresh"}};
  onnx::TypeProto type = g.proto().input(0).type();
  type.mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_param("M");
  patch.retype = {{"x", type}, {"y", type}};
  auto edited = Apply(g, patch);
  ASSERT_TRUE(edited.ok()) << edited.status();
  EXPECT_EQ(edited->graph().input(1).name(), "fresh");
  EXPECT_EQ(edited->graph().input_size(), 2);
  EXPECT_EQ(edited->graph().input(0).type().tensor_type().shape().dim(0).dim_param(), "M");
  EXPECT_EQ(edited->graph().output(0).type().tensor_type().shape().dim(0).dim_param(), "M");
  EXPECT_EQ(edited->graph().value_info_size(), 0);
  patch.drop_value_info = false;
  edited = Apply(g, patch);
  EXPECT_EQ(edited->graph().value_info_size(), 1);
}

constexpr char kBranches[] = R"(g (bool c, float[2] x, float[2] z) => (float[2] y) {
    [r] r = Relu(z)
    [if] y = If (c) <
      then_branch = t () => (float[2] t1) {
        t1 = If (c) <then_branch = i () => (float[2] i1) { i1 = Abs(x) },
                     else_branch = j () => (float[2] j1) { j1 = Abs(r) }>
      },
      else_branch = e () => (float[2] e1) { x = Relu(z) e1 = Abs(x) }>
})";

TEST(Apply, CapturesAreRenamedWhereNothingShadowsThem) {
  const Graph g = Build(kBranches);
  Patch patch;
  patch.new_nodes = {Node("Neg", {"z"}, "n")};
  patch.replace_uses = {{"x", "n"}};
  const auto edited = Apply(g, patch);
  ASSERT_TRUE(edited.ok()) << edited.status();
  EXPECT_THAT(Names(*edited), ElementsAre("r", "n", "if"));  // r lives by its capture
  const auto& node = edited->graph().node(2);
  EXPECT_EQ(node.attribute(0).g().node(0).attribute(0).g().node(0).input(0), "n");
  EXPECT_EQ(node.attribute(1).g().node(1).input(0), "x");
}

TEST(Apply, ANameOfABodyIsNotCaptured) {
  const Graph g = Build(kBranches);
  Patch patch;
  patch.new_nodes = {Node("Neg", {"z"}, "i1")};
  patch.replace_uses = {{"x", "i1"}};
  EXPECT_THAT(Error(g, patch), AllOf(HasSubstr("\"if\""), HasSubstr("\"i1\"")));
}

TEST(Apply, BrokenEditsAreRefused) {
  const Graph g = Build(kChain);
  Patch patch;
  patch.new_nodes = {Node("Abs", {"x"}, "c")};
  EXPECT_THAT(Error(g, patch), HasSubstr("\"c\" is defined twice"));
  patch = {};
  patch.replace_uses = {{"a", "gone"}};
  EXPECT_THAT(Error(g, patch), HasSubstr("\"gone\", which nothing defines"));
  patch = {};
  patch.replace_inputs[{0, 0}] = "c";
  EXPECT_THAT(Error(g, patch), HasSubstr("depends on its own output"));
  patch = {};
  patch.remove_nodes = {3};
  EXPECT_THAT(Error(g, patch), HasSubstr("nothing defines the graph output \"y\""));
  patch = {};
  patch.replace_uses = {{"no such value", "x"}};
  EXPECT_THAT(Error(g, patch), HasSubstr("\"no such value\""));
  patch = {};
  patch.replace_inputs[{1, 2}] = "x";
  EXPECT_THAT(Error(g, patch), HasSubstr("operand 2 of node 1"));
  patch = {};
  patch.remove_inputs = {"w"};
  EXPECT_THAT(Error(g, patch), HasSubstr("no graph input \"w\""));
  patch = {};
  patch.retype["a"];
  EXPECT_THAT(Error(g, patch), HasSubstr("\"a\" to retype"));
  patch = {};
  patch.new_initializers.emplace_back(g.proto().initializer(0)).set_name("a");
  EXPECT_THAT(Error(g, patch), HasSubstr("\"a\" is defined twice"));
}

TEST(Apply, SameEditSameBytes) {
  const Graph g = Build(kChain);
  Patch patch;
  for (int i = 0; i < 50; ++i) {
    const std::string name = "n" + std::to_string(i);
    patch.new_nodes.push_back(Node("Abs", {i == 0 ? "x" : "n" + std::to_string(i - 1)}, name));
  }
  patch.replace_uses = {{"a", "n49"}, {"b", "n20"}, {"c", "n30"}};
  const auto first = Apply(g, patch);
  ASSERT_TRUE(first.ok());
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Apply(Build(kChain), patch)->SerializeAsString(), first->SerializeAsString());
  }
}

}  // namespace
}  // namespace kvlift
