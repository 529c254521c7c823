// Small random graphs of operators that move data or compute indices, shapes and masks, with inputs
// of symbolic shape and values for them.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "onnx/onnx_pb.h"

namespace kvlift::testing {

class RandomGraph {
 public:
  // `family` selects the operators that the graph ends in; it is one of Families().
  RandomGraph(uint32_t seed, const std::string& family);

  static const std::vector<std::string>& Families();
  const onnx::ModelProto& model() const { return model_; }
  const std::map<std::string, int64_t>& dims() const { return dims_; }

  struct Feed {
    std::string name;
    int32_t type;
    std::vector<int64_t> shape;
    std::vector<double> values;
  };
  const std::vector<Feed>& feeds() const { return feeds_; }

 private:
  struct Tensor {
    std::string name;
    int32_t type;
    std::vector<int64_t> dims;
  };
  using Ints = std::vector<int64_t>;

  int64_t Pick(int64_t low, int64_t high);
  bool Coin() { return Pick(0, 1) == 1; }
  std::string Fresh() { return "v" + std::to_string(next_++); }
  void AddInput(const std::string& name, int32_t type, const std::vector<std::string>& dims,
                int64_t low, int64_t high);
  std::string Constant(int32_t type, const Ints& dims, const std::vector<double>& values);
  std::string Indices(const Ints& values) { return Indices({std::ssize(values)}, values); }
  std::string Indices(const Ints& dims, const Ints& values);
  onnx::NodeProto* Node(const std::string& op, const std::vector<std::string>& inputs, int32_t type,
                        const Ints& dims);
  void SetInt(onnx::NodeProto* node, const std::string& name, int64_t value);
  // Returns a value of the given type (0: any) and of at least that rank.
  Tensor Some(int32_t type, int min_rank);
  const Tensor& Last() const { return tensors_.back(); }
  void Finish();

  void Shapes();
  void Movement();
  void Slices();
  void Gathers();
  void Scatters();
  void Integers();
  void Masks();
  void Elementary(const std::string& op);
  // These members are in random_writes.cc.
  std::string Scalar(int64_t value);
  std::string Op(const std::string& op, const std::vector<std::string>& inputs, int32_t type,
                 const Ints& dims);
  std::string Extent(const std::string& value, int64_t rank, int64_t axis);
  std::string Count(const std::string& extent, int64_t n);
  std::string Places(bool per_row, int64_t low, int64_t high);
  std::string Rows();
  void ScatterRows(const std::string& places);
  void ScatterFlatRows(const std::string& places);
  void ScatterNumbers(const std::string& places);
  void ScatterWide(const std::string& places);
  void Blend();
  void BlendRows(bool per_row);
  void Splice();
  void Stack();
  void Layers();
  void Writes();
  // These members are in random_counts.cc.
  void Counts();
  void Run(const std::string& family);

  std::mt19937 rng_;
  onnx::ModelProto model_;
  std::map<std::string, int64_t> dims_;
  std::vector<Feed> feeds_;
  std::vector<Tensor> tensors_;
  int next_ = 0;
};

}  // namespace kvlift::testing
