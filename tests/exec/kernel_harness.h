// Runs one operator through its OpDef, without a Program.
#pragma once

#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "exec/kernels/common/kernel.h"
#include "exec/memory/tensor.h"

namespace kvlift::exec {

class OpRun {
 public:
  explicit OpRun(std::string op, int64_t opset = 24, std::string domain = "")
      : opset_(opset), domain_(std::move(domain)) {
    node_.set_op_type(std::move(op));
    node_.set_domain(domain_);
    node_.set_name("node");
    node_.add_output("y0");
  }
  explicit OpRun(const onnx::NodeProto& node, int64_t opset)
      : node_(node), opset_(opset), domain_(node.domain()) {}

  OpRun& Int(const std::string& name, int64_t value) {
    onnx::AttributeProto* a = Add(name, onnx::AttributeProto::INT);
    a->set_i(value);
    return *this;
  }
  OpRun& Ints(const std::string& name, std::initializer_list<int64_t> values) {
    onnx::AttributeProto* a = Add(name, onnx::AttributeProto::INTS);
    for (int64_t v : values) a->add_ints(v);
    return *this;
  }
  OpRun& Float(const std::string& name, float value) {
    onnx::AttributeProto* a = Add(name, onnx::AttributeProto::FLOAT);
    a->set_f(value);
    return *this;
  }
  OpRun& String(const std::string& name, const std::string& value) {
    onnx::AttributeProto* a = Add(name, onnx::AttributeProto::STRING);
    a->set_s(value);
    return *this;
  }
  OpRun& Outputs(int count) {
    node_.clear_output();
    for (int i = 0; i < count; ++i) node_.add_output("y" + std::to_string(i));
    return *this;
  }
  // Output 0 shares the memory of input 0.
  OpRun& InPlace() {
    in_place_ = true;
    return *this;
  }
  OpRun& Threads(int threads) {
    threads_ = threads;
    return *this;
  }
  OpRun& Fast(bool fast = true) {
    canonical_ = !fast;
    return *this;
  }

  // Empty tensors are omitted inputs.
  absl::StatusOr<std::vector<Tensor>> Run(std::vector<Tensor> inputs) const {
    const OpDef* op = FindOp(domain_, node_.op_type(), opset_);
    if (op == nullptr) return absl::UnimplementedError(node_.op_type());
    while (!inputs.empty() && inputs.back().empty()) inputs.pop_back();
    std::vector<View> views;
    for (const Tensor& t : inputs) views.push_back(t.view());
    std::vector<OutputSpec> specs(static_cast<size_t>(node_.output_size()));
    KernelContext context{node_, opset_, views, {}, &specs};
    context.threads = threads_;
    context.canonical = canonical_;
    if (absl::Status s = op->shape(context); !s.ok()) return s;
    std::vector<Tensor> outputs;
    std::vector<View> out_views;
    for (size_t i = 0; i < specs.size(); ++i) {
      if (node_.output(static_cast<int>(i)).empty()) {
        outputs.emplace_back();
      } else if (i == 0 && in_place_) {
        outputs.push_back(inputs[0]);
      } else {
        outputs.emplace_back(specs[i].type, specs[i].shape);
      }
      out_views.push_back(outputs.back().view());
    }
    context.outputs = absl::MakeSpan(out_views);
    context.specs = nullptr;
    if (op->view == ViewKind::kWhole) {
      std::memcpy(out_views[0].data, views[0].data, static_cast<size_t>(views[0].bytes()));
      return outputs;
    }
    if (absl::Status s = op->compute(context); !s.ok()) return s;
    return outputs;
  }

 private:
  onnx::AttributeProto* Add(const std::string& name, onnx::AttributeProto::AttributeType type) {
    onnx::AttributeProto* a = node_.add_attribute();
    a->set_name(name);
    a->set_type(type);
    return a;
  }

  onnx::NodeProto node_;
  int64_t opset_;
  std::string domain_;
  bool in_place_ = false;
  bool canonical_ = true;
  int threads_ = 2;
};

}  // namespace kvlift::exec
