#include "soundness/sketch.h"

#include "exec/memory/small_types.h"

namespace kvlift::soundness {

using onnx::TensorProto;

Sketch::Sketch(onnx::ModelProto* model, std::string prefix, int at)
    : model_(model), prefix_(std::move(prefix)), at_(at) {
  for (const auto& import : model->opset_import()) {
    if (import.domain().empty() || import.domain() == "ai.onnx") opset_ = import.version();
  }
}

std::string Sketch::Fresh() { return prefix_ + std::to_string(next_++); }

static void Declare(onnx::ValueInfoProto* info, const std::string& name, int32_t type,
                    const std::vector<std::string>& dims) {
  info->set_name(name);
  auto* tensor = info->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(type);
  tensor->mutable_shape();
  for (const std::string& dim : dims) {
    auto* d = tensor->mutable_shape()->add_dim();
    if (dim.find_first_not_of("0123456789") == std::string::npos) {
      d->set_dim_value(std::stoll(dim));
    } else {
      d->set_dim_param(dim);
    }
  }
}

void Sketch::Input(const std::string& name, int32_t type, const std::vector<std::string>& dims) {
  Declare(model_->mutable_graph()->add_input(), name, type, dims);
}

void Sketch::Output(const std::string& name, int32_t type, const std::vector<std::string>& dims) {
  Declare(model_->mutable_graph()->add_output(), name, type, dims);
}

std::string Sketch::Op(const std::string& op, const std::vector<std::string>& inputs,
                       const std::vector<Setting>& settings, const std::string& output) {
  auto* nodes = model_->mutable_graph()->mutable_node();
  onnx::NodeProto* node = nodes->Add();
  node->set_op_type(op);
  for (const std::string& input : inputs) node->add_input(input);
  node->add_output(output.empty() ? Fresh() : output);
  for (const Setting& setting : settings) {
    auto* attribute = node->add_attribute();
    attribute->set_name(setting.name);
    if (setting.is_number) {
      attribute->set_type(onnx::AttributeProto::FLOAT);
      attribute->set_f(setting.number);
    } else if (setting.is_list) {
      attribute->set_type(onnx::AttributeProto::INTS);
      for (int64_t x : setting.integers) attribute->add_ints(x);
    } else {
      attribute->set_type(onnx::AttributeProto::INT);
      attribute->set_i(setting.integers[0]);
    }
  }
  std::string name = node->output(0);
  if (at_ >= 0) {
    for (int k = nodes->size() - 1; k > at_; --k) nodes->SwapElements(k, k - 1);
    ++at_;
  }
  return name;
}

std::string Sketch::Cast(const std::string& x, int32_t to) {
  return Op("Cast", {x}, {Setting::Int("to", to)});
}

TensorProto* Sketch::Constant(int32_t type, const Ints& dims) {
  auto* tensor = model_->mutable_graph()->add_initializer();
  tensor->set_name(Fresh());
  tensor->set_data_type(type);
  for (int64_t d : dims) tensor->add_dims(d);
  return tensor;
}

std::string Sketch::Int(int64_t value, int32_t type) {
  TensorProto* tensor = Constant(type, {});
  if (type == TensorProto::INT64) {
    tensor->add_int64_data(value);
  } else {
    tensor->add_int32_data(static_cast<int32_t>(value));
  }
  return tensor->name();
}

std::string Sketch::List(const Ints& values) {
  TensorProto* tensor = Constant(TensorProto::INT64, {std::ssize(values)});
  for (int64_t x : values) tensor->add_int64_data(x);
  return tensor->name();
}

std::string Sketch::Number(double value, int32_t type) { return Like(type, value); }

std::string Sketch::Numbers(const Ints& dims, const std::vector<double>& values) {
  TensorProto* tensor = Constant(TensorProto::FLOAT, dims);
  for (double x : values) tensor->add_float_data(static_cast<float>(x));
  return tensor->name();
}

std::string Sketch::Like(int32_t type, double value) {
  if (type == TensorProto::FLOAT || type == TensorProto::DOUBLE || type == TensorProto::FLOAT16) {
    TensorProto* tensor = Constant(type, {});
    if (type == TensorProto::FLOAT) tensor->add_float_data(static_cast<float>(value));
    if (type == TensorProto::DOUBLE) tensor->add_double_data(value);
    if (type == TensorProto::FLOAT16) {
      tensor->add_int32_data(exec::FloatToHalf(static_cast<float>(value)));
    }
    return tensor->name();
  }
  return Int(static_cast<int64_t>(value), type);
}

std::string Sketch::Unsqueeze(const std::string& x, const Ints& axes) {
  if (opset_ >= 13) return Op("Unsqueeze", {x, List(axes)});
  return Op("Unsqueeze", {x}, {Setting::List("axes", axes)});
}

std::string Sketch::Reduce(const std::string& op, const std::string& x, const Ints& axes) {
  if (opset_ >= (op == "ReduceSum" ? 13 : 18)) {
    return Op(op, {x, List(axes)}, {Setting::Int("keepdims", 1)});
  }
  return Op(op, {x}, {Setting::List("axes", axes), Setting::Int("keepdims", 1)});
}

std::string Sketch::Slice(const std::string& x, int64_t begin, int64_t end, int64_t axis) {
  return Op("Slice", {x, List({begin}), List({end}), List({axis})});
}

std::string Sketch::Extent(const std::string& x, int64_t axis) {
  return Op("Gather", {Op("Shape", {x}), Int(axis)}, {Setting::Int("axis", 0)});
}

}  // namespace kvlift::soundness
