// LIBS: exec oracle onnxio
// The oracle's bounds on random graphs: what the executor gives, in either order and any float
// type, lies within them, and they are not absurdly wide.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "exec/session/session.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "ir/graph.h"
#include "onnxio/model/model.h"
#include "oracle/core/interpreter.h"
#include "oracle/core/sums.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

// A chain of operators on tensors of rank 2, each reading what came before.
class Chain {
 public:
  Chain(uint32_t seed, int32_t type) : rng_(seed), type_(type) {
    model_.set_ir_version(12);
    auto* opset = model_.add_opset_import();
    opset->set_version(24);
    model_.mutable_graph()->set_name("chain");
    auto* input = model_.mutable_graph()->add_input();
    input->set_name("x");
    auto* info = input->mutable_type()->mutable_tensor_type();
    info->set_elem_type(type);
    info->mutable_shape()->add_dim()->set_dim_value(kRows);
    info->mutable_shape()->add_dim()->set_dim_value(kWidth);
    last_ = "x";
    const int length = 4 + static_cast<int>(rng_() % 12);
    for (int i = 0; i < length; ++i) Add();
    auto* output = model_.mutable_graph()->add_output();
    output->set_name(last_);
    output->mutable_type()->mutable_tensor_type()->set_elem_type(type);
  }

  static constexpr int64_t kRows = 3, kWidth = 24;
  std::shared_ptr<const onnx::ModelProto> model() const {
    return std::make_shared<const onnx::ModelProto>(model_);
  }
  const std::string& output() const { return last_; }
  std::vector<float> Numbers(int64_t count, double size) {
    std::normal_distribution<double> normal;
    std::vector<float> values(static_cast<size_t>(count));
    for (float& v : values) v = static_cast<float>(size * normal(rng_));
    return values;
  }
  std::string names() const { return names_; }

 private:
  onnx::NodeProto* Node(const std::string& op, const std::vector<std::string>& inputs) {
    auto* node = model_.mutable_graph()->add_node();
    node->set_op_type(op);
    for (const std::string& name : inputs) node->add_input(name);
    last_ = fmt::format("v{}", next_++);
    node->add_output(last_);
    names_ += op + " ";
    return node;
  }
  static void Int(onnx::NodeProto* node, const std::string& name, int64_t value) {
    auto* a = node->add_attribute();
    a->set_name(name);
    a->set_type(onnx::AttributeProto::INT);
    a->set_i(value);
  }
  std::string Weights(const std::vector<int64_t>& dims, double size) {
    auto* tensor = model_.mutable_graph()->add_initializer();
    tensor->set_name(fmt::format("w{}", next_++));
    tensor->set_data_type(type_);
    int64_t count = 1;
    for (int64_t d : dims) {
      tensor->add_dims(d);
      count *= d;
    }
    for (float v : Numbers(count, size)) {
      if (type_ == TensorProto::FLOAT) tensor->add_float_data(v);
      if (type_ == TensorProto::DOUBLE) tensor->add_double_data(static_cast<double>(v));
      if (type_ == TensorProto::FLOAT16) tensor->add_int32_data(exec::FloatToHalf(v));
      if (type_ == TensorProto::BFLOAT16) tensor->add_int32_data(exec::FloatToBfloat(v));
    }
    return tensor->name();
  }
  std::string Square(const std::string& x) {
    Node("Mul", {x, x});
    return last_;
  }
  void Add() {
    const std::string x = last_;
    switch (rng_() % 16) {
      case 0:
      case 1:
        Node("MatMul", {x, Weights({kWidth, kWidth}, 0.25)});
        break;
      case 2:
        Node("Add", {x, Weights({kWidth}, 1)});
        break;
      case 3:
        Node("Mul", {x, Weights({kRows, kWidth}, 1)});
        break;
      case 4:
        Node(rng_() % 2 == 0 ? "Tanh" : "Sigmoid", {x});
        break;
      case 5:
        Node(rng_() % 2 == 0 ? "Erf" : "Gelu", {x});
        break;
      case 6:
        Node(rng_() % 2 == 0 ? "Sin" : "Cos", {x});
        break;
      case 7:
        Int(Node("Softmax", {x}), "axis", -1);
        break;
      case 8:
        Node("LayerNormalization", {x, Weights({kWidth}, 1), Weights({kWidth}, 1)});
        break;
      case 9:
        Node("RMSNormalization", {x, Weights({kWidth}, 1)});
        break;
      case 10:
        Node("Sub", {x, Weights({kRows, 1}, 2)});
        break;
      case 11: {  // a norm, spelt out
        const std::string square = Square(x);
        Int(Node("ReduceMean", {square}), "keepdims", 1);
        const std::string mean = last_;
        Square(Weights({1}, 1));
        Node("Add", {mean, last_});
        Node("Sqrt", {last_});
        Node("Div", {x, last_});
        break;
      }
      case 12:
        Node("Tanh", {x});
        Node("Exp", {last_});
        break;
      case 13:
        Node("Add", {x, "x"});
        break;
      case 14: {  // attention of rows
        Node("Transpose", {x});
        const std::string turned = last_;
        Node("MatMul", {x, turned});
        Node("Softmax", {last_});
        Node("MatMul", {last_, x});
        break;
      }
      default:
        Node("Relu", {x});
        break;
    }
  }

  std::mt19937 rng_;
  int32_t type_;
  onnx::ModelProto model_;
  std::string last_, names_;
  int next_ = 0;
};

exec::Tensor MakeInput(Chain& chain, int32_t type) {
  exec::Tensor x(type, {Chain::kRows, Chain::kWidth});
  const std::vector<float> values = chain.Numbers(x.size(), 1.5);
  for (int64_t i = 0; i < x.size(); ++i) {
    if (type == TensorProto::FLOAT) x.span<float>()[i] = values[i];
    if (type == TensorProto::DOUBLE) x.span<double>()[i] = static_cast<double>(values[i]);
    if (type == TensorProto::FLOAT16) x.span<uint16_t>()[i] = exec::FloatToHalf(values[i]);
    if (type == TensorProto::BFLOAT16) x.span<uint16_t>()[i] = exec::FloatToBfloat(values[i]);
  }
  return x;
}

exec::Tensor RunExecutor(const Chain& chain, const exec::Tensor& x, exec::Order order) {
  auto graph = Graph::Build(chain.model());
  EXPECT_TRUE(graph.ok()) << graph.status();
  exec::CompileOptions options;
  options.order = order;
  options.threads = 1;
  const auto program =
      exec::Program::Compile(std::make_shared<const Graph>(*std::move(graph)), options);
  EXPECT_TRUE(program.ok()) << program.status();
  exec::Session session(*program);
  exec::Fetches fetches;
  exec::Feeds feeds;
  feeds["x"] = x;
  const absl::Status status = session.Step(feeds, &fetches);
  EXPECT_TRUE(status.ok()) << status;
  return fetches[chain.output()];
}

struct Ratios {
  std::vector<double> all;  // |executor - oracle| / bound
  int64_t beyond = 0, beyond_worst = 0, unlimited = 0;
};

void Hold(uint32_t seed, int32_t type, Ratios* ratios) {
  Chain chain(seed, type);
  const exec::Tensor x = MakeInput(chain, type);
  const auto interpreter = oracle::Interpreter::Create(chain.model(), "");
  ASSERT_TRUE(interpreter.ok()) << interpreter.status();
  oracle::Reals reals(x.size());
  for (int64_t i = 0; i < x.size(); ++i) reals.value[i] = exec::ElementAsDouble(x.view(), i);
  oracle::Values inputs;
  inputs["x"] = oracle::Value::FromReals(type, {Chain::kRows, Chain::kWidth}, reals);
  int64_t work = 0;
  const auto outputs = interpreter->Run(inputs, int64_t{1} << 40, &work);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  const oracle::Value& value = outputs->at(chain.output());
  for (const exec::Order order : {exec::Order::kCanonical, exec::Order::kFast}) {
    const exec::Tensor got = RunExecutor(chain, x, order);
    ASSERT_EQ(got.size(), value.size());
    for (int64_t i = 0; i < got.size(); ++i) {
      const oracle::Number n = value.reals().At(i);
      const double distance = std::fabs(exec::ElementAsDouble(got.view(), i) - n.value);
      const double bound = oracle::BoundOf(n.worst, n.spread);
      if (std::isinf(bound)) ++ratios->unlimited;
      if (distance > n.worst) ++ratios->beyond_worst;
      if (distance > bound) {
        ++ratios->beyond;
        ADD_FAILURE() << "seed " << seed << ", type " << type << ", element " << i << ": "
                      << distance << " > " << bound << " (worst " << n.worst << ")\n"
                      << chain.names();
        return;
      }
      if (bound > 0) ratios->all.push_back(distance / bound);
    }
  }
}

// Weights are 1 and 0, where a derivative is 0, but the scores are not told apart.
TEST(OracleBounds, WeightsOfScoresThatMayTurn) {
  std::vector<oracle::Number> row = {{0, 400, 5}, {-30, 400, 5}, {-HUGE_VAL, 0, 0}};
  oracle::SoftmaxRow(row, TensorProto::FLOAT);
  for (size_t i : {0, 1}) EXPECT_GT(oracle::BoundOf(row[i].worst, row[i].spread), 0.99);
  row = {{0, 1e-6, 1e-8}, {-30, 1e-6, 1e-8}, {-HUGE_VAL, 0, 0}};
  oracle::SoftmaxRow(row, TensorProto::FLOAT);
  for (size_t i : {0, 1}) EXPECT_LT(oracle::BoundOf(row[i].worst, row[i].spread), 1e-5);
}

TEST(OracleBounds, HoldForTheExecutorOnRandomGraphs) {
  for (const int32_t type :
       {TensorProto::FLOAT, TensorProto::FLOAT16, TensorProto::BFLOAT16, TensorProto::DOUBLE}) {
    Ratios ratios;
    for (uint32_t seed = 0; seed < 400; ++seed) Hold(seed, type, &ratios);
    ASSERT_FALSE(ratios.all.empty());
    std::sort(ratios.all.begin(), ratios.all.end());
    const double median = ratios.all[ratios.all.size() / 2], most = ratios.all.back();
    std::cout << "type " << type << ": " << ratios.all.size() << " elements, |error| / bound "
              << median << " (median), " << most << " (most), " << ratios.unlimited
              << " without a bound\n";
    EXPECT_EQ(ratios.beyond, 0);
    EXPECT_EQ(ratios.beyond_worst, 0);
    EXPECT_LT(ratios.unlimited, static_cast<int64_t>(ratios.all.size() / 50));
    // In double the oracle itself rounds like the executor.
    if (type == TensorProto::DOUBLE) continue;
    EXPECT_GT(median, 1e-3) << "the bounds say nothing";
  }
}

// Numbers of uint64 from 2^63 on have no sign.
TEST(OracleIntegers, UnsignedNumbersAreNotNegative) {
  const auto model = ParseModelText(
      "<ir_version: 10, opset_import: [\"\" : 24]> g (uint64[2] x) => (uint64[2] a, uint64[2] s) "
      "{ a = Abs(x) s = Sign(x) }");
  ASSERT_TRUE(model.ok()) << model.status();
  const auto interpreter =
      oracle::Interpreter::Create(std::make_shared<const onnx::ModelProto>(*model), "");
  ASSERT_TRUE(interpreter.ok()) << interpreter.status();
  oracle::Values inputs;
  inputs["x"] = oracle::Value::FromIntegers(TensorProto::UINT64, {2}, {-1, 5});
  int64_t work = 0;
  const auto outputs = interpreter->Run(inputs, int64_t{1} << 40, &work);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ(outputs->at("a").integers(), (std::vector<int64_t>{-1, 5}));
  EXPECT_EQ(outputs->at("s").integers(), (std::vector<int64_t>{1, 1}));
}

}  // namespace
}  // namespace kvlift
