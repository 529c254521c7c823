#include "support/random_graph.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace kvlift::testing {
namespace {

constexpr int32_t kFloat = onnx::TensorProto::FLOAT;
constexpr int32_t kInt = onnx::TensorProto::INT64;
constexpr int32_t kBool = onnx::TensorProto::BOOL;

int64_t Product(const std::vector<int64_t>& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

std::vector<int64_t> Broadcast(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  std::vector<int64_t> out(std::max(a.size(), b.size()), 1);
  for (const auto* shape : {&a, &b}) {
    const size_t offset = out.size() - shape->size();
    for (size_t k = 0; k < shape->size(); ++k) {
      if ((*shape)[k] != 1) out[offset + k] = (*shape)[k];
    }
  }
  return out;
}

bool Broadcastable(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  const size_t n = std::min(a.size(), b.size());
  for (size_t k = 1; k <= n; ++k) {
    const int64_t x = a[a.size() - k], y = b[b.size() - k];
    if (x != y && x != 1 && y != 1) return false;
  }
  return true;
}

}  // namespace

const std::vector<std::string>& RandomGraph::Families() {
  static const std::vector<std::string>* const families =
      new std::vector<std::string>{"shapes",   "movement", "slices", "gathers", "scatters",
                                   "integers", "masks",    "writes", "counts"};
  return *families;
}

RandomGraph::RandomGraph(uint32_t seed, const std::string& family) : rng_(seed) {
  model_.set_ir_version(10);
  auto* opset = model_.add_opset_import();
  opset->set_domain("");
  opset->set_version(20);
  model_.mutable_graph()->set_name("random");
  dims_ = {{"A", Pick(1, 3)}, {"B", Pick(2, 4)}, {"C", Pick(2, 4)}};
  AddInput("x", kFloat, {"A", "B", "C"}, -9, 9);
  AddInput("y", kFloat, {"A", "2", "C"}, -9, 9);
  AddInput("m", kInt, {"A", "C"}, 0, 1);
  AddInput("n", kInt, {"B", "3"}, -4, 4);
  AddInput("k", kBool, {"B", "C"}, 0, 1);
  const int steps = static_cast<int>(Pick(1, 3));
  for (int step = 0; step < steps; ++step) Run(Families()[Pick(0, 2)]);
  Run(family);
  if (Coin()) Run(Families()[Pick(0, 2)]);
  Finish();
}

void RandomGraph::Run(const std::string& family) {
  if (family == "shapes") Shapes();
  if (family == "movement") Movement();
  if (family == "slices") Slices();
  if (family == "gathers") Gathers();
  if (family == "scatters") Scatters();
  if (family == "integers") Integers();
  if (family == "masks") Masks();
  if (family == "writes") Writes();
  if (family == "counts") Counts();
}

int64_t RandomGraph::Pick(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(rng_() % static_cast<uint64_t>(high - low + 1));
}

void RandomGraph::AddInput(const std::string& name, int32_t type,
                           const std::vector<std::string>& dims, int64_t low, int64_t high) {
  auto* input = model_.mutable_graph()->add_input();
  input->set_name(name);
  auto* tensor = input->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(type);
  tensor->mutable_shape();
  Ints shape;
  for (const std::string& dim : dims) {
    auto* d = tensor->mutable_shape()->add_dim();
    if (dims_.count(dim) != 0) {
      d->set_dim_param(dim);
      shape.push_back(dims_[dim]);
    } else {
      d->set_dim_value(std::stoll(dim));
      shape.push_back(std::stoll(dim));
    }
  }
  Feed feed{name, type, shape, {}};
  for (int64_t i = 0; i < Product(shape); ++i) {
    const double fraction = type == kFloat ? 0.25 * static_cast<double>(Pick(0, 3)) : 0;
    feed.values.push_back(static_cast<double>(Pick(low, high)) + fraction);
  }
  feeds_.push_back(std::move(feed));
  tensors_.push_back({name, type, shape});
}

std::string RandomGraph::Constant(int32_t type, const Ints& dims,
                                  const std::vector<double>& values) {
  auto* tensor = model_.mutable_graph()->add_initializer();
  tensor->set_name("c" + std::to_string(next_++));
  tensor->set_data_type(type);
  for (int64_t d : dims) tensor->add_dims(d);
  for (double x : values) {
    if (type == kFloat) tensor->add_float_data(static_cast<float>(x));
    if (type == kInt) tensor->add_int64_data(static_cast<int64_t>(x));
    if (type == kBool) tensor->add_int32_data(x != 0);
  }
  return tensor->name();
}

std::string RandomGraph::Indices(const Ints& dims, const Ints& values) {
  const std::string name = Constant(kInt, dims, {});
  auto* graph = model_.mutable_graph();
  auto* tensor = graph->mutable_initializer(graph->initializer_size() - 1);
  for (int64_t x : values) tensor->add_int64_data(x);
  return name;
}

onnx::NodeProto* RandomGraph::Node(const std::string& op, const std::vector<std::string>& inputs,
                                   int32_t type, const Ints& dims) {
  auto* node = model_.mutable_graph()->add_node();
  node->set_op_type(op);
  for (const std::string& input : inputs) node->add_input(input);
  node->add_output(Fresh());
  tensors_.push_back({node->output(0), type, dims});
  return node;
}

void RandomGraph::SetInt(onnx::NodeProto* node, const std::string& name, int64_t value) {
  auto* attribute = node->add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::INT);
  attribute->set_i(value);
}

RandomGraph::Tensor RandomGraph::Some(int32_t type, int min_rank) {
  std::vector<Tensor> fitting;
  for (const Tensor& t : tensors_) {
    const bool fits = (type == 0 || t.type == type) && std::ssize(t.dims) >= min_rank;
    const bool small = Product(t.dims) <= 400 && t.dims.size() <= 5 && Product(t.dims) > 0;
    if (fits && small) fitting.push_back(t);
  }
  // Later values are more likely, so that chains grow.
  const int64_t n = std::ssize(fitting);
  return fitting[std::max(Pick(0, n - 1), Pick(0, n - 1))];
}

void RandomGraph::Shapes() {
  const Tensor t = Some(0, 1);
  const int64_t rank = std::ssize(t.dims);
  switch (Pick(0, 6)) {
    case 0: {
      Ints dims = t.dims, spec = t.dims;
      const int64_t at = Pick(0, rank - 1);
      if (rank > 1 && Coin()) {  // merge two axes
        const int64_t first = std::min(at, rank - 2);
        dims[first] *= dims[first + 1];
        dims.erase(dims.begin() + first + 1);
        spec.assign(dims.size(), 0);
        for (size_t k = 0; k < dims.size(); ++k) spec[k] = dims[k];
        if (Coin()) spec[first] = -1;
        if (first > 0 && Coin()) spec[0] = 0;
      } else {
        dims = {Product(t.dims)};
        spec = {-1};
      }
      Node("Reshape", {t.name, Indices(spec)}, t.type, dims);
      return;
    }
    case 1: {
      const int64_t axis = Pick(0, rank);
      const int64_t head = Product(Ints(t.dims.begin(), t.dims.begin() + axis));
      SetInt(Node("Flatten", {t.name}, t.type, {head, Product(t.dims) / head}), "axis", axis);
      return;
    }
    case 2: {
      Ints dims = t.dims;
      const int64_t axis = Pick(0, rank);
      dims.insert(dims.begin() + axis, 1);
      Node("Unsqueeze", {t.name, Indices({Coin() ? axis : axis - rank - 1})}, t.type, dims);
      return;
    }
    case 3: {
      Ints dims = t.dims, spec = t.dims;
      for (int64_t& d : spec) d = Coin() ? 1 : d;
      for (int64_t k = 0; k < rank; ++k) {
        if (t.dims[k] == 1 && Coin()) spec[k] = dims[k] = Pick(1, 3);
      }
      if (Coin()) {
        dims.insert(dims.begin(), 2);
        spec.insert(spec.begin(), 2);
      }
      Node("Expand", {t.name, Indices(spec)}, t.type, dims);
      return;
    }
    case 4: {
      Ints dims = t.dims, repeats(rank, 1);
      const int64_t axis = Pick(0, rank - 1);
      repeats[axis] = Pick(1, 3);
      dims[axis] *= repeats[axis];
      Node("Tile", {t.name, Indices(repeats)}, t.type, dims);
      return;
    }
    case 5: {
      Node("Shape", {t.name}, kInt, {rank});
      const Tensor shape = Last();
      Node("ConstantOfShape", {shape.name}, kFloat, t.dims);
      Node("Gather", {shape.name, Indices({}, {Pick(-rank, rank - 1)})}, kInt, {});
      return;
    }
    default: {
      const Tensor s = Some(0, 1);
      Node("Shape", {s.name}, kInt, {std::ssize(s.dims)});
      const int64_t axis = Pick(0, std::ssize(s.dims) - 1);
      Node("Gather", {Last().name, Indices({}, {axis})}, kInt, {});
      const std::string limit = Last().name;
      Node("Range", {Indices({}, {0}), limit, Indices({}, {1})}, kInt, {s.dims[axis]});
    }
  }
}

void RandomGraph::Movement() {
  const Tensor t = Some(0, 1);
  const int64_t rank = std::ssize(t.dims);
  const int64_t axis = Pick(0, rank - 1);
  switch (Pick(0, 3)) {
    case 0: {
      Ints perm(rank);
      std::iota(perm.begin(), perm.end(), 0);
      std::shuffle(perm.begin(), perm.end(), rng_);
      Ints dims;
      for (int64_t p : perm) dims.push_back(t.dims[p]);
      auto* attribute = Node("Transpose", {t.name}, t.type, dims)->add_attribute();
      attribute->set_name("perm");
      attribute->set_type(onnx::AttributeProto::INTS);
      for (int64_t p : perm) attribute->add_ints(p);
      return;
    }
    case 1: {
      std::vector<std::string> inputs{t.name};
      Ints dims = t.dims;
      for (const Tensor& other : tensors_) {
        if (other.type != t.type || std::ssize(other.dims) != rank || inputs.size() == 3) continue;
        Ints same = other.dims;
        same[axis] = t.dims[axis];
        if (same != t.dims) continue;
        inputs.push_back(other.name);
        dims[axis] += other.dims[axis];
      }
      SetInt(Node("Concat", inputs, t.type, dims), "axis", Coin() ? axis : axis - rank);
      return;
    }
    case 2: {
      Ints pads(2 * rank, 0), dims = t.dims;
      pads[axis] = Pick(0, 2);
      pads[rank + axis] = Pick(0, 2);
      dims[axis] += pads[axis] + pads[rank + axis];
      std::vector<std::string> inputs{t.name, Indices(pads)};
      if (t.type == kFloat && Coin()) inputs.push_back(Constant(kFloat, {}, {2.5}));
      if (t.type == kBool) return;
      Node("Pad", inputs, t.type, dims);
      return;
    }
    default: {
      if (rank < 2) return;
      SetInt(Node("Trilu", {t.name, Indices({}, {Pick(-2, 2)})}, t.type, t.dims), "upper",
             Pick(0, 1));
    }
  }
}

void RandomGraph::Slices() {
  const Tensor t = Some(0, 1);
  const int64_t rank = std::ssize(t.dims), axis = Pick(0, rank - 1), n = t.dims[axis];
  Ints dims = t.dims;
  if (n >= 2 && Pick(0, 3) == 0) {
    const int64_t first = Pick(1, n - 1);
    dims[axis] = first;
    auto* node = Node("Split", {t.name, Indices({first, n - first})}, t.type, dims);
    SetInt(node, "axis", axis);
    dims[axis] = n - first;
    node->add_output(Fresh());
    tensors_.push_back({node->output(1), t.type, dims});
    return;
  }
  int64_t start = Pick(-n, n), end = Pick(-n, n), step = Pick(0, 2) == 0 ? 2 : 1;
  if (Coin()) end = Coin() ? std::numeric_limits<int64_t>::max() : (int64_t{1} << 31) - 1;
  if (Pick(0, 3) == 0) {
    start = -1;
    end = std::numeric_limits<int64_t>::min();
    step = -1;
  }
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
  const auto clamp = [&](int64_t x) { return std::clamp(x < 0 && x >= -n ? x + n : x, low, high); };
  const int64_t distance = step > 0 ? clamp(end) - clamp(start) : clamp(start) - clamp(end);
  const int64_t stride = std::abs(step);
  dims[axis] = std::max<int64_t>(0, (distance + stride - 1) / stride);
  if (dims[axis] == 0) return;
  Node("Slice",
       {t.name, Indices({start}), Indices({end}), Indices({Coin() ? axis : axis - rank}),
        Indices({step})},
       t.type, dims);
}

void RandomGraph::Gathers() {
  const Tensor t = Some(0, 2);
  const int64_t rank = std::ssize(t.dims), axis = Pick(0, rank - 1), n = t.dims[axis];
  const auto place = [&](int64_t extent) { return Pick(-extent, extent - 1); };
  switch (Pick(0, 3)) {
    case 0: {
      Ints shape(Pick(0, 2), 2), values, dims(t.dims.begin(), t.dims.begin() + axis);
      for (int64_t i = 0; i < Product(shape); ++i) values.push_back(place(n));
      dims.insert(dims.end(), shape.begin(), shape.end());
      dims.insert(dims.end(), t.dims.begin() + axis + 1, t.dims.end());
      SetInt(Node("Gather", {t.name, Indices(shape, values)}, t.type, dims), "axis", axis);
      return;
    }
    case 1: {
      Ints dims = t.dims, values;
      dims[axis] = Pick(1, 3);
      for (int64_t i = 0; i < Product(dims); ++i) values.push_back(place(n));
      SetInt(Node("GatherElements", {t.name, Indices(dims, values)}, t.type, dims), "axis", axis);
      return;
    }
    case 2: {
      const int64_t width = Pick(1, 2), count = Pick(1, 3);
      Ints values, dims{count};
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t k = 0; k < width; ++k) values.push_back(place(t.dims[k]));
      }
      dims.insert(dims.end(), t.dims.begin() + width, t.dims.end());
      Node("GatherND", {t.name, Indices({count, width}, values)}, t.type, dims);
      return;
    }
    default: {
      // Positions are computed from the mask's zeros and ones.
      if (n < 2) return;
      const Ints mask{dims_["A"], dims_["C"]};
      Ints dims(t.dims.begin(), t.dims.begin() + axis);
      dims.insert(dims.end(), mask.begin(), mask.end());
      dims.insert(dims.end(), t.dims.begin() + axis + 1, t.dims.end());
      SetInt(Node("Gather", {t.name, "m"}, t.type, dims), "axis", axis);
    }
  }
}

void RandomGraph::Scatters() {
  const Tensor t = Some(kFloat, 2);
  const int64_t axis = Pick(0, std::ssize(t.dims) - 1), n = t.dims[axis];
  const int64_t count = Pick(1, n), start = Pick(0, n - count);
  Ints dims = t.dims;
  dims[axis] = count;
  Ints places(count);
  std::iota(places.begin(), places.end(), start);
  if (count == 1 && Coin()) places[0] -= n;
  std::vector<double> values;
  if (Coin()) {
    for (int64_t i = 0; i < Product(dims); ++i) values.push_back(0.5 * static_cast<double>(i));
    const std::string update = Constant(kFloat, dims, values);
    const Ints ones(t.dims.size(), 1);
    Ints shape = ones;
    shape[axis] = count;
    Node("Expand", {Indices(shape, places), Indices(dims)}, kInt, dims);
    const std::string index = Last().name;
    SetInt(Node("ScatterElements", {t.name, index, update}, kFloat, t.dims), "axis", axis);
    return;
  }
  // ScatterND over the leading axes up to `axis`; all but the last have their full range.
  dims.resize(axis + 1);
  Ints index;
  for (int64_t i = 0; i < Product(dims); ++i) {
    int64_t rest = i;
    Ints at(axis + 1);
    for (int64_t k = axis; k >= 0; --k) {
      at[k] = rest % dims[k];
      rest /= dims[k];
    }
    at[axis] = places[at[axis]];
    index.insert(index.end(), at.begin(), at.end());
  }
  Ints index_dims = dims, update_dims = t.dims;
  index_dims.push_back(axis + 1);
  update_dims[axis] = count;
  for (int64_t i = 0; i < Product(update_dims); ++i) values.push_back(-static_cast<double>(i));
  Node("ScatterND", {t.name, Indices(index_dims, index), Constant(kFloat, update_dims, values)},
       kFloat, t.dims);
}

void RandomGraph::Elementary(const std::string& op) {
  const Tensor a = Some(kInt, 0);
  std::vector<Tensor> fitting;
  for (const Tensor& t : tensors_) {
    if (t.type == kInt && Broadcastable(a.dims, t.dims) && Product(t.dims) > 0) {
      fitting.push_back(t);
    }
  }
  const bool divides = op == "Div" || op == "Mod";
  Tensor b = fitting[Pick(0, std::ssize(fitting) - 1)];
  if (divides || Coin()) {
    int64_t x = Pick(-3, 3);
    if (divides && x == 0) x = 2;
    b = {Indices({}, {x}), kInt, {}};
  }
  const bool predicate = op == "Equal" || op == "Less" || op == "LessOrEqual" || op == "Greater" ||
                         op == "GreaterOrEqual";
  Node(op, {a.name, b.name}, predicate ? kBool : kInt, Broadcast(a.dims, b.dims));
}

void RandomGraph::Integers() {
  static const std::vector<std::string>* const binary = new std::vector<std::string>{
      "Add", "Sub",   "Mul",  "Div",         "Mod",     "Min",
      "Max", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"};
  const int64_t steps = Pick(1, 3);
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t which = Pick(0, std::ssize(*binary) + 3);
    if (which < std::ssize(*binary)) {
      Elementary((*binary)[which]);
      continue;
    }
    const Tensor t = Some(kInt, 0);
    if (which == std::ssize(*binary)) {
      Node(Coin() ? "Neg" : "Abs", {t.name}, kInt, t.dims);
    } else if (which == std::ssize(*binary) + 1) {
      Node("Clip", {t.name, Indices({}, {-1}), Indices({}, {2})}, kInt, t.dims);
    } else if (which == std::ssize(*binary) + 2) {
      SetInt(Node("Cast", {t.name}, kFloat, t.dims), "to", kFloat);
      const std::string real = Last().name;
      SetInt(Node("Cast", {real}, kInt, t.dims), "to", kInt);
    } else {
      Node("Sign", {t.name}, kInt, t.dims);
    }
  }
}

void RandomGraph::Masks() {
  const double lowest = std::numeric_limits<float>::lowest();
  const double infinity = std::numeric_limits<double>::infinity();
  Elementary(Coin() ? "LessOrEqual" : "Equal");
  if (Coin()) {
    const Tensor p = Some(kBool, 0);
    Node("Not", {p.name}, kBool, p.dims);
    const Tensor q = Last();
    Node(Coin() ? "And" : Coin() ? "Or" : "Xor", {p.name, q.name}, kBool, p.dims);
  }
  const Tensor p = Some(kBool, 0);
  switch (Pick(0, 3)) {
    case 0: {
      const std::string zero = Constant(kFloat, {}, {0});
      const std::string low = Constant(kFloat, {}, {Coin() ? lowest : -infinity});
      Node("Where", {p.name, Coin() ? zero : low, low}, kFloat, p.dims);
      const Tensor mask = Last();
      Node("Add", {mask.name, mask.name}, kFloat, mask.dims);
      return;
    }
    case 1: {
      SetInt(Node("Cast", {p.name}, kFloat, p.dims), "to", kFloat);
      const Tensor real = Last();
      Node("Sub", {Constant(kFloat, {}, {1}), real.name}, kFloat, p.dims);
      const Tensor turned = Last();
      Node("Mul", {turned.name, Constant(kFloat, {}, {Coin() ? lowest : -1e4})}, kFloat, p.dims);
      const Tensor mask = Last();
      Node("Add", {mask.name, mask.name}, kFloat, mask.dims);
      SetInt(Node("Cast", {Last().name}, kBool, mask.dims), "to", kBool);
      return;
    }
    case 2: {
      SetInt(Node("Cast", {"m"}, kFloat, tensors_[2].dims), "to", kFloat);
      const Tensor real = Last();
      Node("Sub", {Constant(kFloat, {}, {1}), real.name}, kFloat, real.dims);
      Node("Mul", {Last().name, Constant(kFloat, {}, {lowest})}, kFloat, real.dims);
      return;
    }
    default: {
      const Tensor x = Some(kFloat, 0);
      if (!Broadcastable(x.dims, p.dims)) return;
      const std::string low = Constant(kFloat, {}, {-1.5});
      Node("Where", {p.name, x.name, low}, kFloat, Broadcast(x.dims, p.dims));
    }
  }
}

void RandomGraph::Finish() {
  std::vector<Tensor> made;
  for (const Tensor& t : tensors_) {
    if (t.name[0] == 'v') made.push_back(t);
  }
  if (made.empty()) {
    Node("Identity", {"x"}, kFloat, tensors_[0].dims);
    made.push_back(Last());
  }
  for (const Tensor& t : made) {
    auto* output = model_.mutable_graph()->add_output();
    output->set_name(t.name);
    output->mutable_type()->mutable_tensor_type()->set_elem_type(t.type);
  }
}

}  // namespace kvlift::testing
