// LIBS: exec onnxio
// Products with packed constants: the same bits as without packing, for any rows, type and threads.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "exec/kernels/products/panel.h"
#include "exec/memory/memory.h"
#include "exec/session/session.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx/onnx_pb.h"

namespace kvlift::exec {
namespace {

using onnx::TensorProto;

Tensor RandomFloats(Shape shape, uint32_t seed) {
  Tensor t(TensorProto::FLOAT, std::move(shape));
  uint32_t state = seed * 2654435761u + 1;
  for (float& x : t.span<float>()) {
    state = state * 1664525u + 1013904223u;
    x = (static_cast<float>(state >> 8) / 16777216.0f - 0.5f) * 2;
  }
  return t;
}

Tensor As(const Tensor& t, int32_t type) {
  if (type == TensorProto::FLOAT) return t;
  Tensor y(type, t.shape());
  for (int64_t i = 0; i < t.size(); ++i) {
    const float x = t.span<float>()[i];
    if (type == TensorProto::DOUBLE) {
      y.span<double>()[i] = x;
    } else {
      y.span<uint16_t>()[i] = type == TensorProto::FLOAT16 ? FloatToHalf(x) : FloatToBfloat(x);
    }
  }
  return y;
}

// A model of input "a" [M, K], constants, and nodes that make "y".
class ModelMaker {
 public:
  explicit ModelMaker(int32_t type) : type_(type) {
    model_.set_ir_version(10);
    Import("", 24);
    Import("com.microsoft", 1);
    model_.mutable_graph()->set_name("g");
    Declare(model_.mutable_graph()->add_input(), "a");
    Declare(model_.mutable_graph()->add_output(), "y");
  }
  ModelMaker& Constant(const std::string& name, const Tensor& value) {
    *model_.mutable_graph()->add_initializer() = value.ToProto(name);
    return *this;
  }
  onnx::NodeProto* Node(const std::string& op, const std::vector<std::string>& inputs,
                        const std::string& output, const std::string& domain = "") {
    onnx::NodeProto* node = model_.mutable_graph()->add_node();
    node->set_op_type(op);
    node->set_domain(domain);
    for (const std::string& in : inputs) node->add_input(in);
    node->add_output(output);
    return node;
  }
  const onnx::ModelProto& model() const { return model_; }
  std::shared_ptr<const Program> Compile(const CompileOptions& options,
                                         std::shared_ptr<onnx::ModelProto> given = nullptr) const {
    if (given == nullptr) given = std::make_shared<onnx::ModelProto>(model_);
    auto graph = Graph::Build(given);
    EXPECT_TRUE(graph.ok()) << graph.status();
    auto program = Program::Compile(std::make_shared<Graph>(*std::move(graph)), options);
    EXPECT_TRUE(program.ok()) << program.status();
    return program.ok() ? *program : nullptr;
  }

 private:
  void Import(const std::string& domain, int64_t version) {
    auto* set = model_.add_opset_import();
    set->set_domain(domain);
    set->set_version(version);
  }
  void Declare(onnx::ValueInfoProto* value, const std::string& name) const {
    value->set_name(name);
    value->mutable_type()->mutable_tensor_type()->set_elem_type(type_);
  }

  int32_t type_;
  onnx::ModelProto model_;
};

void SetInt(onnx::NodeProto* node, const std::string& name, int64_t value) {
  auto* a = node->add_attribute();
  a->set_name(name);
  a->set_type(onnx::AttributeProto::INT);
  a->set_i(value);
}
void SetFloat(onnx::NodeProto* node, const std::string& name, float value) {
  auto* a = node->add_attribute();
  a->set_name(name);
  a->set_type(onnx::AttributeProto::FLOAT);
  a->set_f(value);
}

std::string Bytes(const Tensor& t) {
  return std::string(reinterpret_cast<const char*>(t.data()),
                     static_cast<size_t>(t.view().bytes()));
}

// y for `a`, the same with and without packing and for 1 and 3 threads.
std::string RunAllWays(const ModelMaker& model, const Tensor& a) {
  std::string first;
  for (const int pack : {0, 1, 2}) {
    for (const int threads : {1, 3}) {
      CompileOptions options;
      options.pack_weights = pack != 0;
      options.release_packed_weights = pack == 2;
      options.threads = threads;
      const auto program = model.Compile(options);
      if (program == nullptr) return "";
      Session session(program);
      Fetches fetches;
      const absl::Status status = session.Step({{"a", a}}, &fetches);
      EXPECT_TRUE(status.ok()) << status;
      if (!status.ok()) return "";
      const std::string bytes = Bytes(fetches.at("y"));
      if (first.empty()) first = bytes;
      EXPECT_TRUE(bytes == first) << "pack " << pack << ", " << threads << " threads, a "
                                  << ShapeString(a.shape());
    }
  }
  return first;
}

constexpr int32_t kTypes[] = {TensorProto::FLOAT, TensorProto::FLOAT16, TensorProto::BFLOAT16,
                              TensorProto::DOUBLE};
constexpr int64_t kRows[] = {1, 2, 3, 4, 7, 8, 11, 12, 13, 25, 100, 300};

TEST(Packing, MatMul) {
  for (const int32_t type : kTypes) {
    for (const auto& [k, n] :
         {std::pair<int64_t, int64_t>{64, 96}, {300, 70}, {1, 33}, {513, 16}, {20, 5}}) {
      ModelMaker model(type);
      model.Constant("b", As(RandomFloats({k, n}, 1), type)).Node("MatMul", {"a", "b"}, "y");
      for (const int64_t m : kRows) RunAllWays(model, As(RandomFloats({m, k}, 2), type));
      RunAllWays(model, As(RandomFloats({2, 3, k}, 3), type));
      RunAllWays(model, As(RandomFloats({k}, 4), type));
      RunAllWays(model, As(RandomFloats({0, k}, 5), type));
    }
  }
}

TEST(Packing, GemmWithBias) {
  for (const int32_t type : kTypes) {
    for (const bool transposed : {false, true}) {
      for (const Shape& bias : {Shape{70}, Shape{1}, Shape{1, 70}}) {
        ModelMaker model(type);
        const Shape shape = transposed ? Shape{70, 90} : Shape{90, 70};
        model.Constant("b", As(RandomFloats(shape, 1), type));
        model.Constant("c", As(RandomFloats(bias, 6), type));
        onnx::NodeProto* node = model.Node("Gemm", {"a", "b", "c"}, "y");
        SetInt(node, "transB", transposed);
        SetFloat(node, "alpha", 0.75f);
        SetFloat(node, "beta", 1.25f);
        for (const int64_t m : kRows) RunAllWays(model, As(RandomFloats({m, 90}, 2), type));
      }
    }
  }
}

TEST(Packing, TransposedConstantIsReadPacked) {
  for (const int32_t type : kTypes) {
    for (const char* op : {"MatMul", "Gemm"}) {
      ModelMaker model(type);
      model.Constant("w", As(RandomFloats({70, 90}, 1), type));
      model.Node("Transpose", {"w"}, "b");
      model.Node(op, {"a", "b"}, "y");
      for (const int64_t m : kRows) RunAllWays(model, As(RandomFloats({m, 90}, 2), type));
    }
  }
}

TEST(Packing, TiedWeightsAreStillReadAsTheyAre) {
  ModelMaker model(TensorProto::FLOAT);
  Tensor row(TensorProto::INT64, {1});
  row.span<int64_t>()[0] = 3;
  model.Constant("w", RandomFloats({64, 64}, 1)).Constant("row", row);
  model.Node("Transpose", {"w"}, "b");
  model.Node("MatMul", {"a", "b"}, "p");
  model.Node("Gather", {"w", "row"}, "e");
  model.Node("Add", {"p", "e"}, "y");
  RunAllWays(model, RandomFloats({5, 64}, 2));
}

// Only the packed form of inline weights stays, if the caller wants that and no node reads them
// unpacked.
TEST(Packing, PackedWeightsAreGivenUp) {
  ModelMaker model(TensorProto::FLOAT);
  Tensor row(TensorProto::INT64, {1});
  row.span<int64_t>()[0] = 3;
  model.Constant("w", RandomFloats({64, 64}, 1)).Constant("row", row);
  model.Constant("twice", RandomFloats({64, 64}, 2)).Constant("tied", RandomFloats({64, 64}, 3));
  model.Constant("few", RandomFloats({64, 64}, 4)).Constant("turned", RandomFloats({64, 64}, 5));
  model.Node("MatMul", {"a", "w"}, "b");
  model.Node("MatMul", {"b", "twice"}, "c");
  model.Node("MatMul", {"c", "twice"}, "d");
  model.Node("MatMul", {"d", "tied"}, "e");
  model.Node("Gather", {"tied", "row"}, "f");
  model.Node("Add", {"e", "f"}, "g");
  model.Node("Add", {"g", "few"}, "h");
  model.Node("Transpose", {"turned"}, "t");
  model.Node("MatMul", {"h", "t"}, "y");
  RunAllWays(model, RandomFloats({64, 64}, 6));
  CompileOptions options;
  for (const bool give_up : {false, true}) {
    options.release_packed_weights = give_up;
    const auto given = std::make_shared<onnx::ModelProto>(model.model());
    ASSERT_NE(model.Compile(options, given), nullptr);
    for (const TensorProto& tensor : given->graph().initializer()) {
      const bool stays =
          !give_up || tensor.name() == "tied" || tensor.name() == "few" || tensor.name() == "row";
      EXPECT_EQ(!tensor.raw_data().empty(), stays) << tensor.name();
    }
  }
}

TEST(Packing, BlocksBesideEachOtherAreZeroedAndApart) {
  constexpr size_t kBytes = (size_t{5} << 20) + 3;
  std::vector<std::shared_ptr<void>> blocks;
  for (int i = 0; i < 16; ++i) {  // more than one map holds
    auto block = AllocatePackedWeights(kBytes);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.get()) % 64, 0u);
    const auto* bytes = static_cast<const char*>(block.get());
    EXPECT_EQ(std::count(bytes, bytes + kBytes, 0), static_cast<ptrdiff_t>(kBytes));
    std::memset(block.get(), i + 1, kBytes);
    blocks.push_back(std::move(block));
    if (i == 5) blocks.erase(blocks.begin(), blocks.begin() + 3);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto* bytes = static_cast<const char*>(blocks[i].get());
    EXPECT_EQ(std::count(bytes, bytes + kBytes, static_cast<char>(i + 4)),
              static_cast<ptrdiff_t>(kBytes));
  }
  EXPECT_EQ(AllocatePackedWeights(0), nullptr);
  EXPECT_NE(AllocatePackedWeights(size_t{40} << 20), nullptr);
}

TEST(Packing, ATransposeThatIsReadElsewhereStays) {
  ModelMaker model(TensorProto::FLOAT);
  model.Constant("w", RandomFloats({64, 64}, 1));
  model.Node("Transpose", {"w"}, "b");
  model.Node("MatMul", {"a", "b"}, "p");
  model.Node("Add", {"p", "b"}, "y");
  RunAllWays(model, RandomFloats({64, 64}, 2));
}

// Every element is one chain of fused multiply-adds over rising k.
TEST(Packing, CanonicalOrder) {
  const int64_t k = 700, n = 50, m = 30;
  const Tensor a = RandomFloats({m, k}, 1), b = RandomFloats({k, n}, 2);
  ModelMaker model(TensorProto::FLOAT);
  model.Constant("b", b).Node("MatMul", {"a", "b"}, "y");
  const std::string bytes = RunAllWays(model, a);
  if (&Isa() == &GenericIsa()) return;  // without fused operations
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0, found;
      for (int64_t p = 0; p < k; ++p) {
        sum = std::fma(a.span<float>()[i * k + p], b.span<float>()[p * n + j], sum);
      }
      std::memcpy(&found, bytes.data() + (i * n + j) * 4, 4);
      ASSERT_EQ(found, sum) << i << ", " << j;
    }
  }
}

Tensor RandomBytes(Shape shape, uint32_t seed) {
  Tensor t(TensorProto::UINT8, std::move(shape));
  uint32_t state = seed * 2654435761u + 1;
  for (uint8_t& x : t.span<uint8_t>()) {
    state = state * 1664525u + 1013904223u;
    x = static_cast<uint8_t>(state >> 16);
  }
  return t;
}

struct BitsCase {
  int64_t bits, block, k, n;
  int zeros;  // 0 none, 1 codes, 2 floats
  bool bias;
  int groups = 0;  // g_idx: 1 says what holds without it, 2 reverses the groups
};

ModelMaker BitsModel(int32_t type, const BitsCase& c, int level) {
  const int64_t blocks = (c.k + c.block - 1) / c.block;
  ModelMaker model(type);
  model.Constant("w", RandomBytes({c.n, blocks, c.block * c.bits / 8}, 1));
  model.Constant("s", As(RandomFloats({c.n * blocks}, 2), type));
  std::string zeros, bias, groups;
  if (c.groups != 0) {
    groups = "g";
    Tensor g(TensorProto::INT32, {c.k});
    for (int64_t i = 0; i < c.k; ++i) {
      const auto group = static_cast<int32_t>(i / c.block);
      g.span<int32_t>()[i] = c.groups == 1 ? group : static_cast<int32_t>(blocks) - 1 - group;
    }
    model.Constant("g", g);
  }
  if (c.zeros != 0) {
    zeros = "z";
    model.Constant("z", c.zeros == 1 ? RandomBytes({c.n * ((blocks * c.bits + 7) / 8)}, 3)
                                     : As(RandomFloats({c.n * blocks}, 3), type));
  }
  if (c.bias) {
    bias = "c";
    model.Constant("c", As(RandomFloats({c.n}, 4), type));
  }
  onnx::NodeProto* node =
      model.Node("MatMulNBits", {"a", "w", "s", zeros, groups, bias}, "y", "com.microsoft");
  SetInt(node, "K", c.k);
  SetInt(node, "N", c.n);
  SetInt(node, "bits", c.bits);
  SetInt(node, "block_size", c.block);
  SetInt(node, "accuracy_level", level);
  return model;
}

constexpr BitsCase kBitsCases[] = {
    {4, 32, 96, 70, 0, false},   {4, 32, 80, 64, 1, true},    {4, 16, 304, 33, 2, false},
    {4, 128, 640, 40, 1, false}, {8, 32, 64, 70, 0, true},    {8, 64, 112, 96, 1, false},
    {8, 16, 48, 5, 2, false},    {2, 32, 64, 70, 0, false},   {2, 64, 144, 66, 1, true},
    {4, 32, 40, 20, 0, false},   {4, 32, 96, 70, 1, true, 1}, {4, 32, 96, 70, 1, true, 2},
};

TEST(Packing, GroupsInOrderChangeNothing) {
  BitsCase c = {4, 32, 96, 70, 1, false, 0};
  const Tensor a = RandomFloats({2, c.k}, 5);
  const std::string expected = RunAllWays(BitsModel(TensorProto::FLOAT, c, 0), a);
  c.groups = 1;
  EXPECT_EQ(RunAllWays(BitsModel(TensorProto::FLOAT, c, 0), a), expected);
  c.groups = 2;
  EXPECT_NE(RunAllWays(BitsModel(TensorProto::FLOAT, c, 0), a), expected);
}

TEST(Packing, WeightsOfFewBits) {
  for (const int32_t type : kTypes) {
    for (const BitsCase& c : kBitsCases) {
      SCOPED_TRACE(fmt::format("type {}, {} bits, block {}, k {}", type, c.bits, c.block, c.k));
      const ModelMaker model = BitsModel(type, c, 4);
      for (const int64_t m : kRows) RunAllWays(model, As(RandomFloats({m, c.k}, 5), type));
    }
  }
}

std::vector<float> RunFast(const ModelMaker& model, const Tensor& a, int threads) {
  CompileOptions options;
  options.order = Order::kFast;
  options.threads = threads;
  Session session(model.Compile(options));
  Fetches fetches;
  const absl::Status status = session.Step({{"a", a}}, &fetches);
  EXPECT_TRUE(status.ok()) << status;
  const auto y = fetches.at("y").span<float>();
  return {y.begin(), y.end()};
}

// Rows rounded to 8 bits: near the exact product, and each row the same whatever the others.
TEST(Packing, RowsOfEightBits) {
  for (const BitsCase& c : kBitsCases) {
    SCOPED_TRACE(fmt::format("{} bits, block {}, k {}", c.bits, c.block, c.k));
    const Tensor a = RandomFloats({9, c.k}, 5);
    const ModelMaker model = BitsModel(TensorProto::FLOAT, c, 4);
    const std::vector<float> exact = RunFast(BitsModel(TensorProto::FLOAT, c, 0), a, 1);
    const std::vector<float> rounded = RunFast(model, a, 3);
    EXPECT_EQ(rounded, RunFast(model, a, 1));
    // A code is off by at most half a step, 1/254 of the largest in its block.
    const double bound = static_cast<double>(c.k) / 254 * (1 << c.bits);
    for (size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(rounded[i], exact[i], bound) << i;
    for (int64_t i = 0; i < 9; ++i) {
      Tensor row(TensorProto::FLOAT, {1, c.k});
      std::copy_n(a.span<float>().data() + i * c.k, c.k, row.span<float>().data());
      const std::vector<float> alone = RunFast(model, row, 1);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), rounded.begin() + i * c.n)) << i;
    }
  }
}

TEST(Packing, RoundingOfArrays) {
  std::vector<float> x(77);
  uint32_t state = 7;
  for (float& v : x) {
    state = state * 1664525u + 1013904223u;
    std::memcpy(&v, &state, 4);
  }
  x[3] = std::numeric_limits<float>::quiet_NaN();
  x[20] = -std::numeric_limits<float>::infinity();
  x[21] = std::numeric_limits<float>::max();
  x[22] = -0.0f;
  for (const IsaTable* isa : {&GenericIsa(), &Isa()}) {
    std::vector<uint16_t> half(x.size()), bfloat(x.size());
    isa->convert.float_to_half(x.data(), static_cast<int64_t>(x.size()), half.data());
    isa->convert.float_to_bfloat(x.data(), static_cast<int64_t>(x.size()), bfloat.data());
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(bfloat[i], FloatToBfloat(x[i])) << x[i];
      if (x[i] != x[i]) continue;
      EXPECT_EQ(half[i], FloatToHalf(x[i])) << x[i];
    }
  }
}

// The tables that this processor can run agree.
TEST(Packing, InstructionSetsAgree) {
  if (Avx2Isa() == nullptr || Avx512Isa() == nullptr || &Isa() != Avx512Isa()) GTEST_SKIP();
  const PanelOps &x = Avx2Isa()->panel, &y = Avx512Isa()->panel;
  const int64_t k = 37;
  const Tensor wide = RandomFloats({k, 32}, 1), a = RandomFloats({12, k}, 2);
  for (const int32_t type : {TensorProto::FLOAT, TensorProto::FLOAT16, TensorProto::BFLOAT16}) {
    const Tensor panel = As(wide, type);
    for (int m = 1; m <= std::min(x.max_rows, y.max_rows); ++m) {
      std::vector<float> packed_x(m * k + 16), packed_y(m * k + 16);
      x.pack_rows(m, k, a.span<float>().data(), k, packed_x.data());
      y.pack_rows(m, k, a.span<float>().data(), k, packed_y.data());
      packed_x.resize(m * k);
      packed_y.resize(m * k);
      ASSERT_EQ(packed_x, packed_y);
      for (const int n : {32, 31, 17, 16, 5}) {
        for (const bool accumulate : {false, true}) {
          std::vector<float> c_x(m * 40, 0.5f), c_y = c_x;
          const Storage storage = *StorageOfType(type);
          x.tile(storage, m, n, k, packed_x.data(), panel.data(), c_x.data(), 40, accumulate,
                 panel.data(), 64);
          y.tile(storage, m, n, k, packed_x.data(), panel.data(), c_y.data(), 40, accumulate,
                 panel.data(), 64);
          EXPECT_EQ(c_x, c_y) << m << " rows, " << n << " columns";
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvlift::exec
