// LIBS: verify
// SRCS: support/recorded_case.cc
// Mixtures of experts as operators of ONNX: against what ONNX Runtime computes
// (testdata/exec/ort/experts), and within a decoder.
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "onnxio/model/model.h"
#include "support/recorded_case.h"
#include "verify/variants/plain_experts.h"

namespace kvlift {
namespace {

namespace fs = std::filesystem;

bool HasExperts(const onnx::ModelProto& model) {
  for (const onnx::NodeProto& node : model.graph().node()) {
    if (absl::EndsWith(node.op_type(), "MoE")) return true;
  }
  return false;
}

TEST(PlainExperts, GiveWhatOnnxRuntimeGives) {
  int count = 0;
  const fs::path folder = fs::path(KVLIFT_TESTDATA_DIR) / "exec/ort/experts";
  for (const auto& entry : fs::directory_iterator(folder)) {
    const auto model = LoadModel(entry.path().string());
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_TRUE(HasExperts(*model->proto)) << entry.path();
    const auto plain = WithPlainExperts(*model);
    ASSERT_TRUE(plain.ok()) << plain.status();
    EXPECT_FALSE(HasExperts(*plain->proto)) << entry.path();
    EXPECT_EQ(exec::RunRecorded(*plain->proto, exec::Order::kCanonical), "") << entry.path();
    ++count;
  }
  EXPECT_GT(count, 10);
}

// Returns the operator with other attributes, in a model.
Model Mixture(const std::string& inputs, const std::string& attributes) {
  const std::string text = fmt::format(R"(
<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
g (float[T,8] x, float[T,4] router, float[T,4] other, float[4,16,8] w1, float[4,16] b1,
   float[4,8,16] w2, float[4,8] b2) => (float[T,8] y)
{{ y = com.microsoft.MoE <k = 2 {}> ({}) }})",
                                       attributes, inputs);
  auto proto = ParseModelText(text);
  EXPECT_TRUE(proto.ok()) << proto.status() << text;
  Model model;
  model.proto = std::make_shared<onnx::ModelProto>(*std::move(proto));
  return model;
}

TEST(PlainExperts, WhatNoTextSaysStaysAsItIs) {
  const auto stays = [](const std::string& inputs, const std::string& attributes) {
    const auto plain = WithPlainExperts(Mixture(inputs, attributes));
    return plain.ok() && HasExperts(*plain->proto);
  };
  const std::string usual = "x, router, w1, b1, w2, b2";
  EXPECT_FALSE(stays(usual, ""));
  EXPECT_FALSE(stays("x, router, w1, , w2, ", ", activation_type = \"silu\""));
  EXPECT_TRUE(stays(usual, ", use_sparse_mixer = 1"));
  EXPECT_TRUE(stays(usual, ", activation_type = \"tanh\""));
  EXPECT_TRUE(stays(usual, ", activation_type = \"swiglu\""));
  EXPECT_TRUE(stays(usual + ", w1", ""));
}

}  // namespace
}  // namespace kvlift
