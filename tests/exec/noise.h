// Tensors of random numbers, the same for the same seed, and their elements.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "exec/memory/tensor.h"

namespace kvlift::exec {

// FLOAT, normally distributed with a standard deviation of 2.
inline Tensor Noise(const Shape& shape, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> draw(0, 2);
  Tensor t(onnx::TensorProto::FLOAT, shape);
  for (float& x : t.span<float>()) x = draw(rng);
  return t;
}

// INT8, of -127 to 127.
inline Tensor NoiseBytes(const Shape& shape, uint32_t seed) {
  std::mt19937 rng(seed);
  Tensor t(onnx::TensorProto::INT8, shape);
  for (int8_t& x : t.span<int8_t>()) x = static_cast<int8_t>(static_cast<int>(rng() % 255) - 127);
  return t;
}

template <typename T>
std::vector<T> Copy(const Tensor& t) {
  const auto span = t.span<T>();
  return {span.begin(), span.end()};
}

}  // namespace kvlift::exec
