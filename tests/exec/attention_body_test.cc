// LIBS: exec onnxio
// Attention of any form against the function body by which ONNX defines it, drawn at random.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "exec/session/session.h"
#include "fmt/format.h"
#include "gtest/gtest.h"

namespace kvlift::exec {
namespace {

using onnx::TensorProto;

class Draw {
 public:
  explicit Draw(uint32_t seed) : rng_(seed) {}
  int64_t In(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(rng_);
  }
  bool Chance(int percent) { return In(0, 99) < percent; }

  Tensor Numbers(int32_t type, Shape shape) {
    Tensor t(type, std::move(shape));
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < t.size(); ++i) Set(t, i, normal(rng_));
    return t;
  }
  // A float mask holds bias, zeros and -inf; a bool mask true and false.
  Tensor Mask(int32_t type, Shape shape) {
    Tensor t = Numbers(type, std::move(shape));
    for (int64_t i = 0; i < t.size(); ++i) {
      if (type == TensorProto::BOOL) {
        t.span<uint8_t>()[i] = Chance(70) ? 1 : 0;
      } else if (Chance(25)) {
        Set(t, i, Chance(50) ? 0 : -std::numeric_limits<float>::infinity());
      }
    }
    return t;
  }

 private:
  static void Set(Tensor& t, int64_t i, float value) {
    switch (t.type()) {
      case TensorProto::FLOAT:
        t.span<float>()[i] = value;
        return;
      case TensorProto::DOUBLE:
        t.span<double>()[i] = value;
        return;
      case TensorProto::FLOAT16:
        t.span<uint16_t>()[i] = FloatToHalf(value);
        return;
      case TensorProto::BFLOAT16:
        t.span<uint16_t>()[i] = FloatToBfloat(value);
        return;
      default:
        return;
    }
  }

  std::mt19937 rng_;
};

struct Case {
  onnx::ModelProto model;
  Feeds feeds;
};

class Maker {
 public:
  Maker(Draw& draw, int32_t type) : draw_(draw), type_(type) {}

  Case Make() {
    opset_ = draw_.In(23, 25);
    node_ = case_.model.mutable_graph()->add_node();
    node_->set_op_type("Attention");
    node_->set_name("node");
    const bool past = draw_.Chance(40);
    const bool lengths = opset_ >= 24 && !past && draw_.Chance(40);
    const bool flat = draw_.Chance(30);
    const int64_t batch = draw_.In(1, 3), kv_heads = draw_.In(1, 3);
    const int64_t heads = kv_heads * draw_.In(1, 3), queries = draw_.In(1, 5);
    const int64_t size = draw_.In(1, 9), value_size = draw_.In(1, 9);
    const int64_t before = past ? draw_.In(0, 6) : 0;
    const int64_t fresh = past && draw_.Chance(70) ? queries : draw_.In(1, 9);
    const auto operand = [&](const char* name, int64_t n, int64_t length, int64_t d) {
      Input(name,
            draw_.Numbers(type_, flat ? Shape{batch, length, n * d} : Shape{batch, n, length, d}));
    };
    operand("q", heads, queries, size);
    operand("k", kv_heads, fresh, size);
    operand("v", kv_heads, fresh, value_size);
    if (flat) {
      Int("q_num_heads", heads);
      Int("kv_num_heads", kv_heads);
    }
    AddMask(batch, heads, queries, before + fresh, lengths);
    if (past || lengths) {
      past ? Input("past_key", draw_.Numbers(type_, {batch, kv_heads, before, size})) : Omit();
      past ? Input("past_value", draw_.Numbers(type_, {batch, kv_heads, before, value_size}))
           : Omit();
    }
    if (lengths) {
      Tensor t(TensorProto::INT64, {batch});
      for (int64_t& n : t.span<int64_t>()) n = draw_.In(0, fresh);
      Input("lengths", t);
    }
    AddAttributes();
    AddOutputs(past);
    return std::move(case_);
  }

 private:
  void AddMask(int64_t batch, int64_t heads, int64_t queries, int64_t keys, bool lengths) {
    if (!draw_.Chance(50)) {
      Omit();
      return;
    }
    const auto one_or = [&](int64_t n) { return draw_.Chance(30) ? 1 : n; };
    const bool shorter = opset_ >= 24 && draw_.Chance(lengths ? 40 : 20) && keys > 1;
    Shape shape = {queries, shorter ? draw_.In(1, keys) : keys};
    const int64_t rank = draw_.In(2, 4);
    if (rank >= 3) shape.insert(shape.begin(), one_or(heads));
    if (rank == 4) shape.insert(shape.begin(), one_or(batch));
    Input("mask", draw_.Mask(draw_.Chance(50) ? int32_t{TensorProto::BOOL} : type_, shape));
  }

  void AddAttributes() {
    if (draw_.Chance(50)) Int("is_causal", 1);
    if (draw_.Chance(20)) Float("softcap", 1.5f);
    if (draw_.Chance(20)) Float("scale", 0.3f);
    if (draw_.Chance(20)) Int("softmax_precision", TensorProto::FLOAT);
    if (opset_ >= 25 && draw_.Chance(40)) Int("left_window_size", draw_.In(-1, 5));
    if (opset_ >= 25 && draw_.Chance(30)) Int("right_window_size", draw_.In(-1, 3));
  }

  void AddOutputs(bool past) {
    const bool scores = draw_.Chance(40);
    if (scores) Int("qk_matmul_output_mode", draw_.In(0, 3));
    Output("y");
    if (past || scores) {
      Output(past ? "present_key" : "");
      Output(past ? "present_value" : "");
    }
    if (scores) Output("scores");
    while (node_->input_size() > 3 && node_->input(node_->input_size() - 1).empty()) {
      node_->mutable_input()->RemoveLast();
    }
    case_.model.set_ir_version(11);
    case_.model.add_opset_import()->set_version(opset_);
    case_.model.mutable_graph()->set_name("g");
  }

  void Omit() { node_->add_input(""); }
  void Input(const std::string& name, const Tensor& tensor) {
    node_->add_input(name);
    onnx::ValueInfoProto& info = *case_.model.mutable_graph()->add_input();
    info.set_name(name);
    info.mutable_type()->mutable_tensor_type()->set_elem_type(tensor.type());
    case_.feeds[name] = tensor;
  }
  void Output(const std::string& name) {
    node_->add_output(name);
    if (!name.empty()) case_.model.mutable_graph()->add_output()->set_name(name);
  }
  void Int(const char* name, int64_t value) {
    onnx::AttributeProto& a = *node_->add_attribute();
    a.set_name(name);
    a.set_type(onnx::AttributeProto::INT);
    a.set_i(value);
  }
  void Float(const char* name, float value) {
    onnx::AttributeProto& a = *node_->add_attribute();
    a.set_name(name);
    a.set_type(onnx::AttributeProto::FLOAT);
    a.set_f(value);
  }

  Draw& draw_;
  int32_t type_;
  int64_t opset_ = 0;
  onnx::NodeProto* node_ = nullptr;
  Case case_;
};

absl::StatusOr<Fetches> Execute(const Case& c, const CompileOptions& options) {
  auto graph = Graph::Build(std::make_shared<onnx::ModelProto>(c.model));
  if (!graph.ok()) return graph.status();
  const auto program = Program::Compile(std::make_shared<Graph>(*std::move(graph)), options);
  if (!program.ok()) return program.status();
  Session session(*program);
  Fetches fetches;
  if (const absl::Status status = session.Step(c.feeds, &fetches); !status.ok()) return status;
  return fetches;
}

std::string Describe(const Case& c) {
  std::string text = c.model.opset_import(0).ShortDebugString() + " ";
  for (const auto& [name, tensor] : c.feeds) {
    text += fmt::format("{} {} {}  ", name, tensor.type(), ShapeString(tensor.shape()));
  }
  if (const auto n = c.feeds.find("lengths"); n != c.feeds.end()) {
    for (const int64_t length : n->second.span<int64_t>()) text += fmt::format("{} ", length);
  }
  return text + c.model.graph().node(0).ShortDebugString();
}

struct Type {
  const char* name;
  int32_t type;
  double tolerance;
};

class AttentionBody : public ::testing::TestWithParam<Type> {};

TEST_P(AttentionBody, GivesWhatTheKernelGives) {
  Draw draw(1);
  int failures = 0;
  for (int i = 0; i < 400 && failures < 5; ++i) {
    const Case c = Maker(draw, GetParam().type).Make();
    CompileOptions body, fast;
    body.bodies = true;
    fast.order = Order::kFast;
    const auto wanted = Execute(c, body);
    ASSERT_TRUE(wanted.ok()) << wanted.status() << "\n" << Describe(c);
    for (const CompileOptions& options : {CompileOptions(), fast}) {
      const auto found = Execute(c, options);
      ASSERT_TRUE(found.ok()) << found.status() << "\n" << Describe(c);
      for (const auto& [name, want] : *wanted) {
        const Tensor& got = found->at(name);
        ASSERT_EQ(got.shape(), want.shape()) << name << "\n" << Describe(c);
        ASSERT_EQ(got.type(), want.type()) << name << "\n" << Describe(c);
        double worst = 0;
        for (int64_t k = 0; k < want.size(); ++k) {
          const double a = ElementAsDouble(got.view(), k), b = ElementAsDouble(want.view(), k);
          if (a == b || (std::isnan(a) && std::isnan(b))) continue;
          const double off = std::abs(a - b) / (1 + std::abs(b));
          worst = std::max(worst, std::isnan(off) ? 1e9 : off);
        }
        EXPECT_LE(worst, GetParam().tolerance)
            << name << (options.order == Order::kFast ? " fast" : " canonical") << "\n"
            << Describe(c);
        failures += worst > GetParam().tolerance;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, AttentionBody,
                         ::testing::Values(Type{"Float", TensorProto::FLOAT, 1e-5},
                                           Type{"Double", TensorProto::DOUBLE, 1e-6},
                                           Type{"Half", TensorProto::FLOAT16, 8e-3},
                                           Type{"Bfloat", TensorProto::BFLOAT16, 6e-2}),
                         [](const auto& type) { return std::string(type.param.name); });

}  // namespace
}  // namespace kvlift::exec
