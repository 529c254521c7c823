// LIBS: sym onnxio
// Constants of expressions as tensors: exact, or said not to be there.
#include "sym/emit/emit.h"

#include <cstdint>
#include <limits>
#include <memory>

#include "gtest/gtest.h"
#include "ir/node_builder.h"
#include "ir/tensor_data.h"
#include "onnxio/model/model.h"

namespace kvlift::sym {
namespace {

using onnx::TensorProto;

class EmitConstant : public testing::Test {
 protected:
  EmitConstant()
      : graph_(*Graph::Build(std::make_shared<const onnx::ModelProto>(*ParseModelText(
            "<ir_version: 10, opset_import: [\"\" : 24]> g (float[1] x) => (float[1] y) "
            "{ y = Identity(x) }")))),
        forms_(graph_),
        nodes_(graph_),
        emitter_(forms_, nodes_) {}

  absl::Status Emit(Expr e, int32_t type) {
    return emitter_.Tensor({e, {}, type, -1, "constant"}).status();
  }

  Graph graph_;
  Forms forms_;
  NodeBuilder nodes_;
  Emitter emitter_;
};

TEST_F(EmitConstant, LargeIntegersAreExact) {
  for (int64_t value : {std::numeric_limits<int64_t>::max(), (int64_t{1} << 53) + 1, int64_t{7},
                        std::numeric_limits<int64_t>::min()}) {
    ASSERT_TRUE(Emit(forms_.pool().Integer(value), TensorProto::INT64).ok());
    const auto constants = nodes_.TakeInitializers();
    ASSERT_FALSE(constants.empty());
    EXPECT_EQ((*ReadInts(constants[0]))[0], value);
  }
}

TEST_F(EmitConstant, NumbersThatATypeDoesNotHoldAreRefused) {
  const Expr infinite = forms_.pool().Float(-std::numeric_limits<double>::infinity());
  EXPECT_FALSE(Emit(infinite, TensorProto::INT64).ok());
  EXPECT_FALSE(Emit(infinite, TensorProto::INT32).ok());
  EXPECT_TRUE(Emit(infinite, TensorProto::FLOAT).ok());
  EXPECT_FALSE(Emit(forms_.pool().Float(0.5), TensorProto::INT64).ok());
  EXPECT_FALSE(Emit(forms_.pool().Integer(int64_t{1} << 40), TensorProto::INT32).ok());
}

}  // namespace
}  // namespace kvlift::sym
