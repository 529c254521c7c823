// LIBS: exec onnxio
// Every kernel on inputs drawn at random, most of which make no sense: it answers or refuses, and
// reads and writes nothing that is not there (which a run with sanitizers shows).
#include <cstdint>
#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "exec/kernels/common/kernel.h"
#include "exec/session/session.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "onnx/defs/schema.h"

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

  int32_t Type() {
    constexpr int32_t kTypes[] = {
        TensorProto::FLOAT, TensorProto::FLOAT,        TensorProto::FLOAT,  TensorProto::INT64,
        TensorProto::INT64, TensorProto::INT32,        TensorProto::BOOL,   TensorProto::FLOAT16,
        TensorProto::UINT8, TensorProto::INT8,         TensorProto::DOUBLE, TensorProto::BFLOAT16,
        TensorProto::INT4,  TensorProto::FLOAT8E4M3FN, TensorProto::STRING};
    return kTypes[In(0, std::size(kTypes) - 1)];
  }

  Tensor Any(int32_t type, const Shape& like) {
    Shape shape = like;
    if (like.empty() || Chance(50)) {
      shape.clear();
      for (int64_t rank = In(0, 4); rank > 0; --rank) shape.push_back(In(0, 9) == 0 ? 0 : In(1, 4));
    }
    Tensor t(type, shape);
    if (type == TensorProto::STRING) return t;
    if (t.data() != nullptr) std::memset(t.data(), 0, static_cast<size_t>(t.view().bytes()));
    for (int64_t i = 0; i < t.size(); ++i) {
      const int64_t value = Chance(95) ? In(-2, 4) : In(INT64_MIN, INT64_MAX);
      if (type == TensorProto::INT64) t.span<int64_t>()[i] = value;
      if (type == TensorProto::INT32) t.span<int32_t>()[i] = static_cast<int32_t>(value);
      if (type == TensorProto::FLOAT) t.span<float>()[i] = static_cast<float>(value);
      if (type == TensorProto::DOUBLE) t.span<double>()[i] = static_cast<double>(value);
      if (type == TensorProto::BOOL) t.span<uint8_t>()[i] = value > 0;
      if (type == TensorProto::UINT8) t.span<uint8_t>()[i] = static_cast<uint8_t>(value);
    }
    return t;
  }

 private:
  std::mt19937 rng_;
};

void AddAttribute(Draw& draw, const onnx::OpSchema::Attribute& formal, onnx::NodeProto* node) {
  onnx::AttributeProto attribute;
  attribute.set_name(formal.name);
  attribute.set_type(formal.type);
  switch (formal.type) {
    case onnx::AttributeProto::INT:
      attribute.set_i(draw.Chance(90) ? draw.In(-1, 4) : draw.In(INT64_MIN, INT64_MAX));
      break;
    case onnx::AttributeProto::FLOAT:
      attribute.set_f(static_cast<float>(draw.In(-2, 4)) / 2);
      break;
    case onnx::AttributeProto::INTS:
      for (int64_t n = draw.In(0, 4); n > 0; --n) attribute.add_ints(draw.In(-1, 4));
      break;
    case onnx::AttributeProto::STRING: {
      constexpr const char* kWords[] = {"",        "linear", "circular", "LEFT",      "tanh",
                                        "reflect", "add",    "none",     "ij,jk->ik", "...i->...",
                                        "wrap",    "min",    "mul",      "ij->k",     "SAME_UPPER"};
      attribute.set_s(kWords[draw.In(0, std::size(kWords) - 1)]);
      break;
    }
    default:
      return;
  }
  *node->add_attribute() = attribute;
}

const char* const kNames[] = {"a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8"};

struct Model {
  onnx::ModelProto proto;
  Feeds feeds;
};

Model MakeModel(Draw& draw, const OpDef& def, int version) {
  Model model;
  onnx::GraphProto& graph = *model.proto.mutable_graph();
  model.proto.set_ir_version(11);
  graph.set_name("g");
  onnx::OperatorSetIdProto& own = *model.proto.add_opset_import();
  own.set_domain(std::string(def.domain));
  own.set_version(version);
  onnx::NodeProto& node = *graph.add_node();
  node.set_op_type(std::string(def.op_type));
  node.set_domain(std::string(def.domain));
  const onnx::OpSchema* schema =
      onnx::OpSchemaRegistry::Schema(std::string(def.op_type), version, std::string(def.domain));
  int inputs = 6, outputs = 3;
  if (schema != nullptr) {
    for (const auto& [name, formal] : schema->attributes()) {
      if (draw.Chance(50)) AddAttribute(draw, formal, &node);
    }
    inputs = std::min(schema->max_input(), 8);
    outputs = std::min(schema->max_output(), 4);
  }
  const int32_t type = draw.Type();
  Shape first;
  const int64_t count = draw.Chance(80) ? inputs : draw.In(0, inputs);
  for (int64_t i = 0; i < count; ++i) {
    if (draw.Chance(8)) {
      node.add_input("");
      continue;
    }
    const Tensor t = draw.Any(draw.Chance(60) ? type : draw.Type(), first);
    if (i == 0) first = t.shape();
    node.add_input(kNames[i]);
    onnx::ValueInfoProto& info = *graph.add_input();
    info.set_name(kNames[i]);
    info.mutable_type()->mutable_tensor_type()->set_elem_type(t.type());
    model.feeds[kNames[i]] = t;
  }
  const int64_t results = draw.Chance(50) ? outputs : draw.In(0, 4);
  for (int64_t i = 0; i < results; ++i) {
    node.add_output(draw.Chance(90) ? fmt::format("y{}", i) : "");
    if (!node.output(static_cast<int>(i)).empty() && draw.Chance(90)) {
      graph.add_output()->set_name(node.output(static_cast<int>(i)));
    }
  }
  return model;
}

TEST(ExecRobust, KernelsAnswerOrRefuse) {
  Draw draw(1);
  int answered = 0, refused = 0;
  for (const OpDef& def : AllOps()) {
    if (def.shape == nullptr) continue;
    for (int round = 0; round < 150; ++round) {
      const int version = def.domain.empty() ? std::max(def.since_version, 25) : 1;
      const Model model = MakeModel(draw, def, draw.Chance(50) ? version : def.since_version);
      SCOPED_TRACE(model.proto.ShortDebugString());
      auto graph = Graph::Build(std::make_shared<onnx::ModelProto>(model.proto));
      if (!graph.ok()) continue;
      CompileOptions options;
      options.order = draw.Chance(50) ? Order::kFast : Order::kCanonical;
      const auto program = Program::Compile(std::make_shared<Graph>(*std::move(graph)), options);
      if (!program.ok()) {
        ++refused;
        continue;
      }
      Session session(*program);
      Fetches fetches;
      session.Step(model.feeds, &fetches).ok() ? ++answered : ++refused;
    }
  }
  EXPECT_GT(answered, 1000);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace kvlift::exec
