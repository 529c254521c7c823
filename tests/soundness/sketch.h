// Builds small ONNX graphs node by node.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "onnx/onnx_pb.h"

namespace kvlift::soundness {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  // Returns a number in [low, high].
  int64_t Pick(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }
  bool OneIn(int64_t n) { return Pick(1, n) == 1; }
  template <typename T>
  const T& Of(const std::vector<T>& all) {
    return all[static_cast<size_t>(Pick(0, std::ssize(all) - 1))];
  }

 private:
  std::mt19937_64 engine_;
};

using Ints = std::vector<int64_t>;

// An attribute of a node: an integer, a list of integers, or a float.
struct Setting {
  std::string name;
  Ints integers;
  bool is_list = false;
  float number = 0;
  bool is_number = false;

  static Setting Int(std::string name, int64_t value) { return {std::move(name), {value}}; }
  static Setting List(std::string name, Ints values) {
    return {std::move(name), std::move(values), true};
  }
};

class Sketch {
 public:
  // Nodes are inserted in front of node `at`, or appended if it is -1. Names of values and
  // constants begin with `prefix`.
  Sketch(onnx::ModelProto* model, std::string prefix, int at = -1);

  void Input(const std::string& name, int32_t type, const std::vector<std::string>& dims);
  void Output(const std::string& name, int32_t type, const std::vector<std::string>& dims);
  // Adds a node and returns the name of its result.
  std::string Op(const std::string& op, const std::vector<std::string>& inputs,
                 const std::vector<Setting>& settings = {}, const std::string& output = "");
  std::string Cast(const std::string& x, int32_t to);
  std::string Int(int64_t value, int32_t type = onnx::TensorProto::INT64);
  std::string List(const Ints& values);
  std::string Number(double value, int32_t type = onnx::TensorProto::FLOAT);
  std::string Numbers(const Ints& dims, const std::vector<double>& values);
  // Returns a scalar of the type: float, double, half or integer.
  std::string Like(int32_t type, double value);
  // Unsqueeze and reductions have `axes` as an attribute in old opsets, as an input in later ones.
  std::string Unsqueeze(const std::string& x, const Ints& axes);
  std::string Reduce(const std::string& op, const std::string& x, const Ints& axes);
  std::string Slice(const std::string& x, int64_t begin, int64_t end, int64_t axis);
  // Returns the extent of an axis, as a scalar.
  std::string Extent(const std::string& x, int64_t axis);
  int64_t opset() const { return opset_; }
  // Returns where the next node is inserted.
  int at() const { return at_; }

 private:
  std::string Fresh();
  onnx::TensorProto* Constant(int32_t type, const Ints& dims);

  onnx::ModelProto* model_;
  std::string prefix_;
  int at_;
  int64_t opset_ = 0;
  int next_ = 0;
};

}  // namespace kvlift::soundness
