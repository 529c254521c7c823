// LIBS: reduce rewrites pipeline
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// The search of `reduce`, with trials that look at candidates instead of running anything.
#include "reduce/reduce.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/graph.h"
#include "onnxio/model/model.h"
#include "support/proof_pair.h"
#include "verify/inputs/relation_check.h"

namespace kvlift {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

using Shows = std::function<bool(const Subject&)>;

// Trials that show what a function says, up to a number of them.
class Told : public Trials {
 public:
  explicit Told(Shows shows, int most = 100000) : shows_(std::move(shows)), most_(most) {}

  std::optional<Found> FindFirst(size_t count, const Make& make) override {
    for (size_t k = 0; k < count && !over(); ++k) {
      std::optional<Subject> candidate = make(k);
      if (!candidate) continue;
      ++tried;
      if (shows_(*candidate)) return Found{k, *std::move(candidate)};
    }
    return std::nullopt;
  }
  bool over() const override { return tried >= most_; }

  int tried = 0;

 private:
  const Shows shows_;
  const int most_;
};

Subject Parsed(const std::string& signature, const std::string& nodes, int opset = 17) {
  const std::string text = fmt::format("<ir_version: 8, opset_import: [\"\" : {}]> g {} {{ {} }}",
                                       opset, signature, nodes);
  auto model = ParseModelText(text);
  EXPECT_TRUE(model.ok()) << model.status() << "\n" << text;
  Subject subject;
  subject.model = AsModel(model.value_or(onnx::ModelProto()));
  return subject;
}

Subject Reduced(Subject subject, const Shows& shows, const ReduceOptions& options = {}) {
  EXPECT_TRUE(shows(subject));
  Told trials(shows);
  auto reduced = Reduce(std::move(subject), &trials, options);
  EXPECT_TRUE(reduced.ok()) << reduced.status();
  EXPECT_TRUE(shows(*reduced));
  return *std::move(reduced);
}

std::vector<std::string> Operators(const Model& model) {
  std::vector<std::string> names;
  for (const onnx::NodeProto& node : model.proto->graph().node()) names.push_back(node.op_type());
  return names;
}

bool Has(const Model& model, const std::string& op_type) {
  return CountNodes(*model.proto, op_type) > 0;
}

std::vector<std::string> InputsOf(const Model& model) {
  std::vector<std::string> names;
  for (const auto& input : model.proto->graph().input()) names.push_back(input.name());
  return names;
}

std::vector<std::string> OutputsOf(const Model& model) {
  std::vector<std::string> names;
  for (const auto& output : model.proto->graph().output()) names.push_back(output.name());
  return names;
}

constexpr char kChain[] = "(float[B, 8] x, float[B, 8] z) => (float[B, 8] y, float[B, 8] other)";
constexpr char kChainNodes[] =
    "a = Relu(x) b = Exp(a) c = Tanh(b) d = Neg(c) e = Add(d, a) y = Abs(e) other = Neg(z)";

TEST(ReduceModel, OneNodeIsLeft) {
  const Subject reduced =
      Reduced(Parsed(kChain, kChainNodes), [](const Subject& s) { return Has(s.model, "Tanh"); });
  EXPECT_THAT(Operators(reduced.model), ElementsAre("Tanh"));
  EXPECT_THAT(InputsOf(reduced.model), ElementsAre("b"));
  EXPECT_THAT(OutputsOf(reduced.model), ElementsAre("c"));
  const auto graph = Graph::Build(reduced.model.proto);
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(graph->type(graph->Find("b")).shape->at(1).value, 8);
  EXPECT_EQ(graph->type(graph->Find("b")).shape->at(0).param, "B");
}

TEST(ReduceModel, TwoNodesFarApartAreLeft) {
  const Subject reduced = Reduced(Parsed(kChain, kChainNodes), [](const Subject& s) {
    return Has(s.model, "Relu") && Has(s.model, "Abs");
  });
  EXPECT_THAT(Operators(reduced.model), ElementsAre("Relu", "Abs"));
}

TEST(ReduceModel, NodesInBetweenArePassed) {
  // The output has to depend on the input.
  const auto reaches = [](const Subject& s) {
    const std::vector<std::string> operators = {"Relu", "Exp", "Tanh", "Neg", "Add", "Abs"};
    return ReachedBy(s.model.proto->graph(), {"x"}, operators).contains("y");
  };
  const Subject reduced = Reduced(Parsed(kChain, kChainNodes), reaches);
  EXPECT_THAT(Operators(reduced.model), ElementsAre("Abs"));
}

TEST(ReduceModel, OnlyAskedForOutputsStay) {
  const Subject reduced = Reduced(Parsed(kChain, kChainNodes), [](const Subject& s) {
    const auto outputs = OutputsOf(s.model);
    return std::find(outputs.begin(), outputs.end(), "other") != outputs.end();
  });
  EXPECT_THAT(OutputsOf(reduced.model), ElementsAre("other"));
  EXPECT_THAT(InputsOf(reduced.model), ElementsAre("z"));
}

constexpr char kIf[] = "(bool c, float[B, 8] x) => (float[B, 8] y)";
constexpr char kIfNodes[] =
    "z = Exp(x) "
    "y = If (c) <then_branch = g1 () => (float[B, 8] t) { a = Exp(z) b = Tanh(a) t = Neg(b) }, "
    "else_branch = g2 () => (float[B, 8] f) { e = Sin(z) f = Cos(e) }>";

bool HasInBody(const Model& model, const std::string& op_type) {
  for (const onnx::NodeProto& node : model.proto->graph().node()) {
    for (const auto& attribute : node.attribute()) {
      for (const onnx::NodeProto& inner : attribute.g().node()) {
        if (inner.op_type() == op_type) return true;
      }
    }
  }
  return false;
}

TEST(ReduceModel, NodesInBranchesArePassed) {
  const Subject subject = Parsed(kIf, kIfNodes);
  EXPECT_EQ(SizeOf(subject).nodes, 7);
  const Subject reduced =
      Reduced(subject, [](const Subject& s) { return HasInBody(s.model, "Tanh"); });
  EXPECT_THAT(Operators(reduced.model), ElementsAre("If"));
  const auto& branches = reduced.model.proto->graph().node(0).attribute();
  ASSERT_EQ(branches.size(), 2);
  for (const auto& branch : branches) EXPECT_EQ(branch.g().node_size(), 1) << branch.name();
  EXPECT_EQ(SizeOf(reduced).nodes, 3) << PrintModelText(*reduced.model.proto);
}

TEST(ReduceModel, ABranchTakesThePlaceOfItsIf) {
  const Subject reduced = Reduced(Parsed(kIf, kIfNodes), [](const Subject& s) {
    return Has(s.model, "Tanh") || HasInBody(s.model, "Tanh");
  });
  EXPECT_THAT(Operators(reduced.model), ElementsAre("Tanh"));
}

TEST(ReduceModel, NodesInALoopArePassed) {
  const Subject subject = Parsed(
      "(int64 n, bool c, float[8] x, float[8] w) => (float[8] y)",
      "y = Loop (n, c, x) <body = g1 (int64 i, bool go, float[8] s) => (bool on, float[8] next) "
      "{ on = Identity(go) a = Add(s, w) b = Tanh(a) d = Sin(b) next = Mul(d, s) }>");
  const Subject reduced =
      Reduced(subject, [](const Subject& s) { return HasInBody(s.model, "Tanh"); });
  EXPECT_THAT(Operators(reduced.model), ElementsAre("Loop"));
  const auto& body = reduced.model.proto->graph().node(0).attribute(0).g();
  EXPECT_EQ(body.node_size(), 2)  // Tanh and the condition
      << PrintModelText(*reduced.model.proto);
  EXPECT_THAT(InputsOf(reduced.model), Not(Contains("w")));
}

TEST(ReduceModel, KnownIntegersBecomeConstants) {
  const Subject subject =
      Parsed("(float[B, 4, 6] x, float[B, 4, 6] z) => (float[B, K] y)",
             "s = Shape<start: int = 1>(x) p = ReduceProd<keepdims: int = 1>(s) "
             "m = Constant<value: tensor = int64[1] {-1}>() t = Concat<axis: int = 0>(m, p) "
             "w = Relu(z) y = Reshape(w, t)");
  const Subject reduced =
      Reduced(subject, [](const Subject& s) { return Has(s.model, "Reshape"); });
  EXPECT_THAT(Operators(reduced.model), ElementsAre("Reshape"));
  EXPECT_THAT(InputsOf(reduced.model), ElementsAre("w"));
  ASSERT_EQ(reduced.model.proto->graph().initializer_size(), 1);
  EXPECT_EQ(reduced.model.proto->graph().initializer(0).name(), "t");
}

TEST(ReduceModel, CandidatesAreValid) {
  const Subject reduced = Reduced(Parsed(kChain, kChainNodes), [](const Subject& s) {
    EXPECT_TRUE(CheckModel(*s.model.proto).ok());
    return Has(s.model, "Exp");
  });
  EXPECT_THAT(Operators(reduced.model), ElementsAre("Exp"));
}

TEST(ReduceModel, TypesOfOnnxSufficeForPlainModels) {
  ReduceOptions options;
  options.types = TypesFrom::kOnnx;
  const Subject reduced = Reduced(
      Parsed(kChain, kChainNodes), [](const Subject& s) { return Has(s.model, "Tanh"); }, options);
  EXPECT_THAT(Operators(reduced.model), ElementsAre("Tanh"));
}

TEST(ReduceModel, WeightsBecomeInputsOrRows) {
  Subject subject = Parsed("(float[B, 16] x) => (float[B, 16] y)", "y = MatMul(x, w)");
  onnx::ModelProto model = *subject.model.proto;
  onnx::TensorProto& weight = *model.mutable_graph()->add_initializer();
  weight.set_name("w");
  weight.set_data_type(onnx::TensorProto::FLOAT);
  weight.add_dims(16);
  weight.add_dims(16);
  for (int k = 0; k < 256; ++k) weight.add_float_data(static_cast<float>(k));
  subject.model = AsModel(model);

  const Subject fed = Reduced(subject, [](const Subject& s) { return Has(s.model, "MatMul"); });
  EXPECT_THAT(fed.model.proto->graph().initializer(), IsEmpty());
  EXPECT_THAT(InputsOf(fed.model), UnorderedElementsAre("x", "w"));

  const Subject kept = Reduced(subject, [](const Subject& s) {
    return Has(s.model, "MatMul") && InputsOf(s.model) == std::vector<std::string>{"x"};
  });
  EXPECT_THAT(Operators(kept.model), ElementsAre("Expand", "MatMul"));
  EXPECT_LT(SizeOf(kept).bytes, SizeOf(subject).bytes / 2);
}

TEST(ReduceModel, EndsWhenTheTimeIsOver) {
  Told trials([](const Subject& s) { return Has(s.model, "Tanh"); }, 2);
  const auto reduced = Reduce(Parsed(kChain, kChainNodes), &trials);
  ASSERT_TRUE(reduced.ok());
  EXPECT_TRUE(Has(reduced->model, "Tanh"));
  EXPECT_LE(trials.tried, 3);
}

TEST(ReduceModel, BodiesKeepWhatTheyCapture) {
  const Subject subject = Parsed(
      "(float[B, 8] x, bool c) => (float[B, 8] y)",
      "a = Relu(x) b = Exp(a) y = If(c) <then_branch = g1 () => (float[B, 8] t) { t = Neg(b) }, "
      "else_branch = g2 () => (float[B, 8] e) { e = Abs(a) }>");
  const Subject reduced = Reduced(subject, [](const Subject& s) { return Has(s.model, "If"); });
  EXPECT_THAT(Operators(reduced.model), ElementsAre("If"));
  EXPECT_THAT(InputsOf(reduced.model), UnorderedElementsAre("c", "a", "b"));
}

// A decoder and its conversion.
Subject Pair() {
  const auto c = LoadCase(fmt::format("{}/rewrites/{}.onnxtxt", KVLIFT_TESTDATA_DIR, kCase));
  EXPECT_TRUE(c.ok()) << c.status();
  Subject subject;
  subject.model = AsModel(*ParseModelText(c->before));
  auto conversion = Convert(subject.model, c->options, AllRules());
  EXPECT_TRUE(conversion.ok() && conversion->model) << conversion.status();
  subject.conversion = {AsModel(*conversion->model), conversion->manifest};
  return subject;
}

// Fails the test if a candidate is no pair that `verify` can judge.
void ExpectValid(const Subject& s, const std::set<std::string>& integers) {
  ASSERT_TRUE(s.is_pair());
  for (const Model* model : {&s.model, &s.conversion->model}) {
    EXPECT_TRUE(CheckModel(*model->proto).ok());
    for (const auto& input : model->proto->graph().input()) {
      if (IsFloatType(input.type().tensor_type().elem_type())) continue;
      EXPECT_THAT(integers, Contains(input.name()));
    }
    for (const auto& output : model->proto->graph().output()) {
      EXPECT_TRUE(IsFloatType(output.type().tensor_type().elem_type())) << output.name();
    }
  }
  const auto before = Graph::Build(s.model.proto), after = Graph::Build(s.conversion->model.proto);
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_EQ(Misfit(*before, *after, s.conversion->relation), "");
  EXPECT_THAT(s.conversion->relation.caches, Not(IsEmpty()));
}

std::set<std::string> IntegerInputs(const Subject& s) {
  std::set<std::string> names;
  for (const Model* model : {&s.model, &s.conversion->model}) {
    for (const auto& input : model->proto->graph().input()) names.insert(input.name());
  }
  return names;
}

TEST(ReducePair, EveryCandidateIsAPair) {
  const Subject pair = Pair();
  const std::set<std::string> integers = IntegerInputs(pair);
  Told trials([&](const Subject& s) {
    ExpectValid(s, integers);
    return Has(s.model, "Softmax") && Has(s.conversion->model, "Attention");
  });
  const auto reduced = Reduce(pair, &trials);
  ASSERT_TRUE(reduced.ok()) << reduced.status();
  EXPECT_GT(trials.tried, 5);
  EXPECT_LT(SizeOf(*reduced).nodes, SizeOf(pair).nodes);
  // Keys and values are read, so both caches stay.
  EXPECT_THAT(reduced->conversion->relation.caches, SizeIs(2));
}

TEST(ReducePair, OneCacheStays) {
  const Subject pair = Pair();
  const Subject reduced = Reduced(pair, [](const Subject& s) {
    return s.conversion->relation.caches.size() < 3 && !s.conversion->relation.outputs.empty();
  });
  EXPECT_THAT(reduced.conversion->relation.caches, SizeIs(1));
  EXPECT_EQ(CountNodes(*reduced.model.proto, "Concat"), 1);
  EXPECT_THAT(Operators(reduced.conversion->model), ElementsAre("TensorScatter"));
}

TEST(ReducePair, NamesAreAligned) {
  Subject pair = Pair();
  // The last node reads a value of another name in the conversion.
  onnx::ModelProto after = *pair.conversion->model.proto;
  for (onnx::NodeProto& node : *after.mutable_graph()->mutable_node()) {
    for (auto* names : {node.mutable_input(), node.mutable_output()}) {
      for (std::string& name : *names) {
        if (name == "context4") name = "elsewhere";
      }
    }
  }
  pair.conversion->model = AsModel(after);
  const auto makes_y = [](const Model& model) {
    const auto& nodes = model.proto->graph().node();
    return std::any_of(nodes.begin(), nodes.end(),
                       [](const onnx::NodeProto& node) { return node.output(0) == "y"; });
  };
  const Subject reduced = Reduced(
      pair, [&](const Subject& s) { return makes_y(s.model) && makes_y(s.conversion->model); });
  EXPECT_THAT(InputsOf(reduced.model), Contains("context4"));
  EXPECT_THAT(InputsOf(reduced.conversion->model), Contains("context4"));
}

TEST(ReducePair, TheResultIsAlwaysTheSame) {
  const auto shows = [](const Subject& s) { return Has(s.conversion->model, "Attention"); };
  const Subject once = Reduced(Pair(), shows), again = Reduced(Pair(), shows);
  EXPECT_EQ(*SerializeModel(*once.model.proto), *SerializeModel(*again.model.proto));
  EXPECT_EQ(*SerializeModel(*once.conversion->model.proto),
            *SerializeModel(*again.conversion->model.proto));
}

}  // namespace
}  // namespace kvlift
