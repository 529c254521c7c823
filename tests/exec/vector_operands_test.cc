// LIBS: exec
// Operands that the operator texts declare as vectors: ONNX Runtime refuses scalars in their place,
// so that a model which gives one runs nowhere, and the executor refuses it as well.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "exec/kernel_harness.h"

namespace kvlift::exec {
namespace {

constexpr int32_t kFloat = onnx::TensorProto::FLOAT;
constexpr int32_t kInt64 = onnx::TensorProto::INT64;

Tensor Data() { return Tensor::From<float>(kFloat, {1, 2}, {1, 2}); }

// Returns the number 1 as a scalar or as a vector of one element.
Tensor One(bool scalar) { return Tensor::From<int64_t>(kInt64, scalar ? Shape{} : Shape{1}, {1}); }

struct Case {
  std::string op;
  int numbers;  // how many operands of numbers follow the data
};

TEST(VectorOperandsTest, ScalarsAreRefused) {
  const Case cases[] = {{"Slice", 4}, {"ReduceSum", 1}, {"ReduceMax", 1}, {"TopK", 1}, {"Tile", 1}};
  for (const Case& c : cases) {
    for (int scalar = -1; scalar < c.numbers; ++scalar) {
      SCOPED_TRACE(c.op + " with operand " + std::to_string(scalar + 1));
      OpRun run(c.op);
      if (c.op == "TopK") run.Outputs(2);
      std::vector<Tensor> inputs = {Data()};
      for (int k = 0; k < c.numbers; ++k) inputs.push_back(One(k == scalar));
      if (c.op == "Tile") inputs[0] = Tensor::From<float>(kFloat, {2}, {1, 2});
      EXPECT_EQ(run.Run(inputs).ok(), scalar < 0);
    }
  }
}

TEST(VectorOperandsTest, ScalarsThatReshapeOrSqueezeAreRefused) {
  const Tensor one = Tensor::From<float>(kFloat, {1, 1}, {5});
  for (const char* op : {"Reshape", "Squeeze"}) {
    EXPECT_TRUE(OpRun(op).Run({one, One(false)}).ok()) << op;
    EXPECT_FALSE(OpRun(op).Run({one, One(true)}).ok()) << op;
  }
}

TEST(VectorOperandsTest, PositionsOfRotationsHaveTwoAxes) {
  const auto x = Tensor::From<float>(kFloat, {1, 1, 2, 2}, {1, 2, 3, 4});
  const auto table = Tensor::From<float>(kFloat, {3, 1}, {1, 0.5F, 0.25F});
  for (const Shape& shape : {Shape{1, 2}, Shape{2}, Shape{1, 1, 1, 2}}) {
    const auto positions = Tensor::From<int64_t>(kInt64, shape, {0, 2});
    const bool fits = shape.size() == 2;
    EXPECT_EQ(OpRun("RotaryEmbedding").Run({x, table, table, positions}).ok(), fits)
        << ShapeString(shape);
  }
}

TEST(VectorOperandsTest, ExpandAndUnsqueezeTakeScalarsAsOnnxRuntimeDoes) {
  for (const bool scalar : {false, true}) {
    auto wide = OpRun("Expand").Run({Data(), One(scalar)});
    ASSERT_TRUE(wide.ok()) << wide.status();
    EXPECT_EQ((*wide)[0].shape(), (Shape{1, 2}));
    auto deep = OpRun("Unsqueeze").Run({Data(), One(scalar)});
    ASSERT_TRUE(deep.ok()) << deep.status();
    EXPECT_EQ((*deep)[0].shape(), (Shape{1, 1, 2}));
  }
}

}  // namespace
}  // namespace kvlift::exec
