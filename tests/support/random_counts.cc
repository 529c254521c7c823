// Reductions, running sums, paddings and permutations of data, and of numbers along its axes.
#include <algorithm>
#include <numeric>

#include "support/random_graph.h"

namespace kvlift::testing {
namespace {

constexpr int32_t kFloat = onnx::TensorProto::FLOAT;
constexpr int32_t kInt = onnx::TensorProto::INT64;

}  // namespace

void RandomGraph::Counts() {
  const Tensor t = Some(0, 1);
  const int64_t rank = std::ssize(t.dims), axis = Pick(0, rank - 1);
  // Builds first + step * (index along the axis), broadcast to the shape of t.
  const std::string n = Extent(t.name, rank, axis);
  const int64_t step = Pick(-2, 2), first = Pick(-3, 3);
  const std::string count = Count(n, t.dims[axis]);
  const std::string scaled = Op("Mul", {count, Scalar(step)}, kInt, {t.dims[axis]});
  const std::string line = Op("Add", {scaled, Scalar(first)}, kInt, {t.dims[axis]});
  Ints spec(rank, 1);
  spec[axis] = -1;
  Ints column(rank, 1);
  column[axis] = t.dims[axis];
  const std::string shaped = Op("Reshape", {line, Indices(spec)}, kInt, column);
  const std::string wide =
      Op("Expand", {shaped, Op("Shape", {t.name}, kInt, {rank})}, kInt, t.dims);
  switch (Pick(0, 5)) {
    case 0:
    case 1: {
      static const char* const kOps[] = {"ReduceSum", "ReduceMax", "ReduceMin"};
      const int64_t over = Pick(0, rank - 1), keep = Pick(0, 1);
      Ints dims = t.dims;
      dims[over] = 1;
      if (keep == 0) dims.erase(dims.begin() + over);
      SetInt(Node(kOps[Pick(0, 2)], {wide, Indices({over})}, kInt, dims), "keepdims", keep);
      return;
    }
    case 2: {
      auto* node = Node("CumSum", {wide, Scalar(Pick(0, rank - 1))}, kInt, t.dims);
      SetInt(node, "exclusive", Pick(0, 1));
      SetInt(node, "reverse", Pick(0, 1));
      return;
    }
    case 3: {
      if (t.type != kFloat || t.dims[axis] < 2) return;
      Ints pads(2 * rank, 0), dims = t.dims;
      pads[axis] = Pick(0, t.dims[axis] - 1);
      pads[rank + axis] = Pick(0, t.dims[axis] - 1);
      dims[axis] += pads[axis] + pads[rank + axis];
      static const char* const kModes[] = {"edge", "reflect", "wrap"};
      auto* mode = Node("Pad", {t.name, Indices(pads)}, t.type, dims)->add_attribute();
      mode->set_name("mode");
      mode->set_type(onnx::AttributeProto::STRING);
      mode->set_s(kModes[Pick(0, 2)]);
      return;
    }
    case 4: {
      if (t.type != kFloat) return;
      std::vector<int64_t> order(rank);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), rng_);
      std::string from, to;
      Ints dims;
      for (int64_t k = 0; k < rank; ++k) {
        from += static_cast<char>('a' + k);
        to += static_cast<char>('a' + order[k]);
        dims.push_back(t.dims[order[k]]);
      }
      auto* equation = Node("Einsum", {t.name}, t.type, dims)->add_attribute();
      equation->set_name("equation");
      equation->set_type(onnx::AttributeProto::STRING);
      equation->set_s(from + "->" + to);
      return;
    }
    default: {
      const Ints one{1};
      const std::string length = Op("Reshape", {n, Indices({1})}, kInt, one);
      auto* ones = Node("ConstantOfShape", {length}, kInt, {t.dims[axis]});
      auto* value = ones->add_attribute();
      value->set_name("value");
      value->set_type(onnx::AttributeProto::TENSOR);
      value->mutable_t()->set_data_type(kInt);
      value->mutable_t()->add_dims(1);
      value->mutable_t()->add_int64_data(1);
      Node("NonZero", {Last().name}, kInt, {1, t.dims[axis]});
    }
  }
}

}  // namespace kvlift::testing
