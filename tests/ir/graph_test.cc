// LIBS: onnxio
#include "ir/graph.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/subgraphs.h"
#include "ir/tensor_data.h"
#include "onnxio/model/model.h"

namespace kvlift {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::shared_ptr<onnx::ModelProto> Parse(const std::string& graph, int ir_version = 10) {
  auto model = ParseModelText("<ir_version: " + std::to_string(ir_version) +
                              R"(, opset_import: ["" : 18]>)" + graph);
  EXPECT_TRUE(model.ok()) << model.status();
  return std::make_shared<onnx::ModelProto>(model.value_or(onnx::ModelProto()));
}

Graph Build(const std::string& text, int ir_version = 10) {
  auto graph = Graph::Build(Parse(text, ir_version));
  EXPECT_TRUE(graph.ok()) << graph.status();
  return std::move(graph).value();
}

std::string Error(const std::string& text) {
  const auto graph = Graph::Build(Parse(text));
  EXPECT_EQ(graph.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(graph.status().message());
}

std::vector<std::string> NodeOrder(const Graph& graph) {
  std::vector<std::string> names;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) names.push_back(graph.NodeName(n));
  return names;
}

TEST(Graph, IndexesUsesAndProducers) {
  const Graph g = Build(R"(g (float[2,"P + S"] x, int64 i) => (float[2,N] y) {
      a = Relu(x)
      y = Add(a, a)
      unused, second = Split(a)
  })");
  EXPECT_EQ(g.opset(), 18);
  EXPECT_EQ(g.num_nodes(), 3);
  const ValueId x = g.Find("x"), a = g.Find("a"), y = g.Find("y");
  EXPECT_TRUE(g.is_graph_input(x));
  EXPECT_EQ(g.producer(x), kNoNode);
  EXPECT_EQ(g.producer(a), 0);
  EXPECT_THAT(g.uses(a),
              ElementsAre(Use{Use::Kind::kNodeInput, 1, 0}, Use{Use::Kind::kNodeInput, 1, 1},
                          Use{Use::Kind::kNodeInput, 2, 0}));
  EXPECT_THAT(g.uses(y), ElementsAre(Use{Use::Kind::kGraphOutput, kNoNode, 0}));
  EXPECT_TRUE(g.is_graph_output(y));
  EXPECT_FALSE(g.is_graph_output(a));
  EXPECT_EQ(g.output_index(g.Find("second")), 1);
  EXPECT_THAT(g.graph_inputs(), ElementsAre(x, g.Find("i")));
  EXPECT_THAT(g.graph_outputs(), ElementsAre(y));
  EXPECT_EQ(g.type(x).elem_type, onnx::TensorProto::FLOAT);
  EXPECT_EQ(g.type(x).shape->at(0).value, 2);
  EXPECT_EQ(g.type(x).shape->at(1).param, "P + S");
  EXPECT_EQ(g.Find("nothing"), kNoValue);
  EXPECT_TRUE(g.Is(0, "Relu"));
  EXPECT_FALSE(g.Is(0, "Add"));
}

TEST(Graph, OmittedOperandsAreNoValues) {
  auto model = Parse(R"(g (float[2] x) => (float[2] y) { y = Clip(x, "", x) })");
  const auto g = Graph::Build(model);
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(g->inputs(0)[1], kNoValue);
  EXPECT_THAT(g->uses(g->Find("x")),
              ElementsAre(Use{Use::Kind::kNodeInput, 0, 0}, Use{Use::Kind::kNodeInput, 0, 2}));
}

TEST(Graph, SortsAndKeepsTheFilesOrderWhereItCan) {
  const Graph g = Build(R"(g (float[2] x) => (float[2] y) {
      [late] y = Add(b, c)
      [c] c = Relu(b)
      [free] f = Relu(x)
      [b] b = Relu(x)
  })");
  EXPECT_THAT(NodeOrder(g), ElementsAre("free", "b", "c", "late"));
  EXPECT_EQ(g.producer(g.Find("y")), 3);
}

TEST(Graph, CapturesOfNestedBodies) {
  const Graph g = Build(R"(g (bool c, float[2] x, float[2] z) => (float[2] y) {
      y = If (c) <
        then_branch = t () => (float[2] t1) {
          t1 = If (d) <
            then_branch = tt () => (float[2] tt1) { tt1 = Add(x, late) },
            else_branch = te () => (float[2] te1) { te1 = Identity(x) }>
        },
        else_branch = e () => (float[2] e1) { x = Relu(z) e1 = Relu(x) }>
      d = Not(c)
      late = Relu(x)
  })");
  ASSERT_EQ(NodeOrder(g).back(), "y");  // after what its bodies read
  std::vector<std::string> captured;
  for (ValueId v : g.captures(2)) captured.push_back(g.name(v));
  EXPECT_THAT(captured, ::testing::UnorderedElementsAre("d", "x", "late", "z"));
  EXPECT_THAT(g.uses(g.Find("z")), ElementsAre(Use{Use::Kind::kCapture, 2, 0}));
  EXPECT_THAT(g.uses(g.Find("x")),
              ElementsAre(Use{Use::Kind::kNodeInput, 1, 0}, Use{Use::Kind::kCapture, 2, 0}));
}

TEST(Graph, BodyNamesThatShadowAreNotCaptures) {
  const Graph g = Build(R"(g (bool c, float[2] x) => (float[2] y) {
      y = If (c) <
        then_branch = t () => (float[2] t1) { x = Constant <value_floats = [1.0, 2.0]> () t1 = Relu(x) },
        else_branch = e () => (float[2] e1) { e1 = Constant <value_floats = [1.0, 2.0]> () }>
  })");
  EXPECT_THAT(g.captures(0), IsEmpty());
  EXPECT_THAT(g.uses(g.Find("x")), IsEmpty());
}

TEST(Graph, ErrorsNameTheCulprit) {
  EXPECT_THAT(Error("g (float[2] x) => (float[2] y) { y = Relu(x) [again] y = Relu(x) }"),
              ::testing::AllOf(HasSubstr("\"y\" is defined twice"), HasSubstr("\"again\"")));
  EXPECT_THAT(Error("g (float[2] x) => (float[2] x2) { x = Relu(x) x2 = Relu(x) }"),
              HasSubstr("\"x\" is defined twice"));
  EXPECT_THAT(Error("g (float[2] x) => (float[2] y) { [n] y = Add(x, gone) }"),
              ::testing::AllOf(HasSubstr("\"n\""), HasSubstr("\"gone\", which nothing defines")));
  EXPECT_THAT(Error("g (float[2] x) => (float[2] y) { z = Relu(x) }"),
              HasSubstr("nothing defines the graph output \"y\""));
  EXPECT_THAT(Error("g (float[2] x, float[2] x) => (float[2] y) { y = Relu(x) }"),
              HasSubstr("two inputs named \"x\""));
  EXPECT_THAT(Error("g (float[2] x) => (float[2] y, float[2] y) { y = Relu(x) }"),
              HasSubstr("two outputs named \"y\""));
  EXPECT_THAT(Error(R"(g (bool c) => (float[2] y) { [branch] y = If (c) <
        then_branch = t () => (float[2] t1) { t1 = Relu(gone) },
        else_branch = e () => (float[2] e1) { e1 = Relu(gone) }> })"),
              ::testing::AllOf(HasSubstr("\"branch\""), HasSubstr("\"gone\"")));
}

TEST(Graph, OperandsThatAnOperatorRequiresAreThere) {
  EXPECT_THAT(Error("g (float[2] x) => (float[2] y) { y = Transpose () }"),
              HasSubstr("node \"y\": Transpose has 0 inputs and needs 1"));
  EXPECT_THAT(Error("g (float[2] x) => (float[2] y) { y = Add (x, \"\") }"),
              HasSubstr("Add omits input 1"));
  EXPECT_THAT(Error("g (float[2] x) => (float[2] y) { y = Relu (x, x) }"),
              HasSubstr("takes at most 1 and 1"));
  EXPECT_THAT(Error(R"(g (bool c, float[2] x) => (float[2] y) {
      y = If (c) <then_branch = a () => (float[2] p) { p = Add (x) },
                  else_branch = b () => (float[2] q) { q = Relu (x) }>
  })"),
              HasSubstr("node \"p\": Add has 1 inputs and needs 2"));
  // An operator of a later version than the imported one is read by its name, too.
  onnx::ModelProto old = *ParseModelText(
      R"(<ir_version: 5, opset_import: ["" : 10]> g (float[2] x) => (float[2] y) {
      y = Identity (x) parts = SequenceConstruct (x) })");
  old.mutable_graph()->mutable_node(1)->clear_output();
  EXPECT_THAT(Graph::Build(std::make_shared<const onnx::ModelProto>(old)).status().message(),
              HasSubstr("SequenceConstruct has 0 outputs and needs 1"));
  // What ONNX does not define takes what it takes; optional operands may be omitted.
  Build(R"(g (float[2] x) => (float[2] y) {
      a = com.microsoft.Other ()
      y = Clip (x, "", "")
  })");
}

TEST(Graph, CyclesNameANodeOnThem) {
  EXPECT_THAT(Error(R"(g (float[2] x) => (float[2] y) {
        [behind] y = Relu(b)
        [one] a = Add(x, b)
        [two] b = Relu(a)
      })"),
              ::testing::AllOf(HasSubstr("depends on its own output"),
                               ::testing::AnyOf(HasSubstr("\"one\""), HasSubstr("\"two\""))));
}

TEST(Graph, NeedsTheDefaultDomainOnce) {
  auto model = Parse("g (float[2] x) => (float[2] y) { y = Relu(x) }");
  auto other = std::make_shared<onnx::ModelProto>(*model);
  other->clear_opset_import();
  EXPECT_THAT(std::string(Graph::Build(other).status().message()),
              HasSubstr("the default domain, which the Relu node of \"y\" is of"));
  other->mutable_graph()->mutable_node(0)->set_domain("com.microsoft");
  EXPECT_THAT(std::string(Graph::Build(other).status().message()),
              HasSubstr("ONNX allows that, since no node is of that domain"));
  other = std::make_shared<onnx::ModelProto>(*model);
  auto* import = other->add_opset_import();
  import->set_domain("ai.onnx");
  import->set_version(17);
  EXPECT_THAT(std::string(Graph::Build(other).status().message()), HasSubstr("18 and 17"));
}

TEST(Graph, InitializersThatAnInputNamesAreConstantBeforeIr4Only) {
  const std::string text = R"(g (float[1] x, float[1] w) => (float[1] y) <float[1] w = {2.0}> {
      y = Add(x, w) })";
  const Graph now = Build(text, 10);
  EXPECT_EQ(now.constant(now.Find("w")), nullptr);
  EXPECT_TRUE(now.is_graph_input(now.Find("w")));
  EXPECT_THAT(now.graph_inputs(), ElementsAre(now.Find("x")));
  const Graph old = Build(text, 3);
  EXPECT_NE(old.constant(old.Find("w")), nullptr);
  EXPECT_FALSE(old.is_graph_input(old.Find("w")));
  const Graph plain = Build(R"(g (float[1] x) => (float[1] y) <float[1] w = {2.0}> {
      y = Add(x, w) })");
  ASSERT_NE(plain.constant(plain.Find("w")), nullptr);
  EXPECT_THAT(*ReadFloats(*plain.constant(plain.Find("w"))), ElementsAre(2.0));
}

TEST(Graph, ConstantNodesOfEveryKind) {
  const Graph g = Build(R"(g (float[1] x) => (float[1] y) {
      t = Constant <value = int64[2] {3, 4}> ()
      f = Constant <value_float = 1.5> ()
      fs = Constant <value_floats = [1.0, 2.0]> ()
      i = Constant <value_int = -7> ()
      is = Constant <value_ints = [5, 6]> ()
      s = Constant <value_string = "a"> ()
      ss = Constant <value_strings = ["a", "b"]> ()
      y = Relu(x)
  })");
  const auto constant = [&](const char* name) { return g.constant(g.Find(name)); };
  EXPECT_THAT(*ReadInts(*constant("t")), ElementsAre(3, 4));
  EXPECT_THAT(*ReadFloats(*constant("f")), ElementsAre(1.5));
  EXPECT_THAT(*ReadFloats(*constant("fs")), ElementsAre(1.0, 2.0));
  EXPECT_THAT(*ReadInts(*constant("i")), ElementsAre(-7));
  EXPECT_THAT(*ReadInts(*constant("is")), ElementsAre(5, 6));
  EXPECT_EQ(constant("s")->string_data(0), "a");
  EXPECT_EQ(constant("ss")->dims(0), 2);
  EXPECT_TRUE(g.type(g.Find("i")).shape->empty());
  EXPECT_EQ(g.type(g.Find("is")).shape->at(0).value, 2);
  EXPECT_EQ(constant("y"), nullptr);
}

TEST(Graph, SparseConstantsAreNotConstantsToUs) {
  auto model =
      Parse("g (float[1] x) => (float[1] y) { c = Constant <value_int = 1> () y = Relu(x) }");
  auto* attribute = model->mutable_graph()->mutable_node(0)->mutable_attribute(0);
  attribute->Clear();
  attribute->set_name("sparse_value");
  attribute->mutable_sparse_tensor()->add_dims(3);
  const auto g = Graph::Build(model);
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(g->constant(g->Find("c")), nullptr);
}

TEST(Graph, ConstantWithoutValueIsAnError) {
  auto model =
      Parse("g (float[1] x) => (float[1] y) { c = Constant <value_int = 1> () y = Relu(x) }");
  model->mutable_graph()->mutable_node(0)->clear_attribute();
  EXPECT_THAT(std::string(Graph::Build(model).status().message()),
              HasSubstr("the Constant node of \"c\""));
}

TEST(Graph, DeepBodiesDoNotRecurse) {
  // Deeper than any stack would bear; such a model can be built in memory only.
  auto model = Parse("g (bool c) => (bool y) { y = Not(c) }");
  onnx::NodeProto node = model->graph().node(0);
  auto* at = model->mutable_graph()->mutable_node(0);
  at->set_op_type("If");
  constexpr int kDepth = 2000;
  for (int i = 0; i < kDepth; ++i) {
    auto* attribute = at->add_attribute();
    attribute->set_name("then_branch");
    attribute->set_type(onnx::AttributeProto::GRAPH);
    at = attribute->mutable_g()->add_node();
    *at = node;
    at->set_output(0, "y" + std::to_string(i));
  }
  const auto g = Graph::Build(model);
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_THAT(g->captures(0), ElementsAre(g->Find("c")));
}

TEST(Attributes, FallBack) {
  const Graph g = Build(
      "g (float[1] x) => (float[1] y) { y = Op <a = 3, f = 0.5, s = \"t\", l = [1, 2]> (x) }");
  const auto& node = g.node(0);
  EXPECT_EQ(IntAttribute(node, "a", 1), 3);
  EXPECT_EQ(IntAttribute(node, "b", 1), 1);
  EXPECT_EQ(FloatAttribute(node, "f", 1), 0.5f);
  EXPECT_EQ(StringAttribute(node, "s", ""), "t");
  EXPECT_EQ(StringAttribute(node, "f", "other"), "other");
  EXPECT_THAT(IntsAttribute(node, "l"), ElementsAre(1, 2));
  EXPECT_THAT(IntsAttribute(node, "none"), IsEmpty());
}

}  // namespace
}  // namespace kvlift
