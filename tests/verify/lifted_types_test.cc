// LIBS: verify
// Half-precision models lifted to float32.
#include "verify/variants/lifted_types.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "onnx/onnx_pb.h"
#include "onnxio/model/model.h"

namespace kvlift {
namespace {

constexpr int kConstants = 64;

// The bits of 1.0, 1.0 + 1/1024 and so on in float16.
uint16_t Bits(int number) { return static_cast<uint16_t>(0x3c00 + number); }

// A model of Constant nodes, each with another number in float16, counted from `first`.
Model ModelOfConstants(int first) {
  auto proto = std::make_shared<onnx::ModelProto>();
  proto->add_opset_import()->set_version(24);
  for (int k = 0; k < kConstants; ++k) {
    onnx::NodeProto& node = *proto->mutable_graph()->add_node();
    node.set_op_type("Constant");
    node.add_output(fmt::format("c{}", k));
    onnx::AttributeProto& value = *node.add_attribute();
    value.set_name("value");
    value.set_type(onnx::AttributeProto::TENSOR);
    value.mutable_t()->set_data_type(onnx::TensorProto::FLOAT16);
    const uint16_t bits = Bits(first + k);
    value.mutable_t()->set_raw_data(std::string(std::bit_cast<const char*>(&bits), 2));
  }
  Model model;
  model.proto = proto;
  return model;
}

TEST(LiftedTypes, ConstantsInReusedMemoryAreReadAnew) {
  const LiftedWeights weights;
  for (int round = 0; round < 8; ++round) {
    const Model model = ModelOfConstants(round * kConstants);
    const auto lifted = weights.WithFloat32(model);
    ASSERT_TRUE(lifted.ok()) << lifted.status();
    for (int k = 0; k < kConstants; ++k) {
      const onnx::TensorProto& tensor = lifted->proto->graph().node(k).attribute(0).t();
      ASSERT_EQ(tensor.data_type(), onnx::TensorProto::FLOAT);
      ASSERT_EQ(tensor.raw_data().size(), sizeof(float));
      float number = 0;
      std::memcpy(&number, tensor.raw_data().data(), sizeof(float));
      EXPECT_EQ(number, 1 + static_cast<float>(round * kConstants + k) / 1024);
    }
  }
}

}  // namespace
}  // namespace kvlift
