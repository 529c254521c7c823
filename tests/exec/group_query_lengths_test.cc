// LIBS: exec
// GroupQueryAttention refuses lengths of sequences that its buffers and its tokens do not have.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "exec/kernel_harness.h"
#include "fmt/format.h"

namespace kvlift::exec {
namespace {

constexpr int32_t kInt = onnx::TensorProto::INT32;

// Runs a step of one sequence with S new tokens, a buffer of `capacity` slots and as many tokens in
// all as `total` says. window: that of a sliding buffer; 0 for a buffer that keeps all tokens.
absl::Status Step(int64_t S, int64_t capacity, int64_t window, int32_t total, int32_t seqlens_k) {
  OpRun run("GroupQueryAttention", 1, "com.microsoft");
  run.Int("num_heads", 1).Int("kv_num_heads", 1).Outputs(3);
  if (window > 0) run.Int("sliding_window_cache", 1).Int("local_window_size", window);
  const auto zeros = [](Shape shape) {
    Tensor tensor(onnx::TensorProto::FLOAT, std::move(shape));
    for (float& x : tensor.span<float>()) x = 0;
    return tensor;
  };
  return run
      .Run({zeros({1, S, 8}), zeros({1, S, 8}), zeros({1, S, 8}), zeros({1, 1, capacity, 8}),
            zeros({1, 1, capacity, 8}), Tensor::From<int32_t>(kInt, {1}, std::vector{seqlens_k}),
            Tensor::From<int32_t>(kInt, {1}, std::vector{total})})
      .status();
}

void ExpectRefused(const absl::Status& status) {
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("seqlens_k"), std::string::npos) << status;
}

// A prompt has no other keys than its own tokens: the rows behind them do not exist.
TEST(GroupQueryLengths, APromptOverASlidingBufferHasNoMoreKeysThanTokens) {
  EXPECT_TRUE(Step(3, 9, 4, 3, 2).ok());
  EXPECT_TRUE(Step(3, 9, 4, 3, 1).ok());
  ExpectRefused(Step(3, 9, 4, 3, 3));
  ExpectRefused(Step(3, 9, 4, 3, 8));
}

TEST(GroupQueryLengths, AStepOverASlidingBufferHasAPast) {
  EXPECT_TRUE(Step(1, 9, 4, 6, 5).ok());
  EXPECT_TRUE(Step(1, 9, 4, 30, 29).ok());
  ExpectRefused(Step(2, 9, 4, 6, 0));
  ExpectRefused(Step(1, 9, 4, 6, -2));
}

TEST(GroupQueryLengths, ABufferOfAllTokensHasRoomForThem) {
  EXPECT_TRUE(Step(3, 9, 0, 3, 2).ok());
  EXPECT_TRUE(Step(1, 9, 0, 9, 8).ok());
  ExpectRefused(Step(1, 9, 0, 9, 9));
  ExpectRefused(Step(2, 9, 0, 9, 0));
}

}  // namespace
}  // namespace kvlift::exec
