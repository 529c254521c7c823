#include "proof/graphs/pair.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "ir/declared_sizes.h"
#include "ir/live_nodes.h"
#include "ir/operators/operator_changes.h"
#include "ir/operators/operator_traits.h"
#include "ir/spans.h"
#include "ir/subgraphs.h"
#include "ir/tensor_data.h"
#include "ir/types.h"
#include "sym/forms/keeps_value.h"

namespace kvlift {
namespace {

using onnx::ModelProto;
using onnx::NodeProto;
using onnx::TensorProto;

constexpr int64_t kMostNumbers = 4096;  // the largest weight whose elements are read

bool IsFloatTensor(const TensorProto& tensor) {
  return tensor.data_type() == TensorProto::FLOAT || tensor.data_type() == TensorProto::FLOAT16 ||
         tensor.data_type() == TensorProto::BFLOAT16 || tensor.data_type() == TensorProto::DOUBLE;
}

bool SameAttribute(const onnx::AttributeProto& a, const onnx::AttributeProto& b) {
  if (a.has_t() || b.has_t()) return a.has_t() && b.has_t() && SameData(a.t(), b.t());
  onnx::AttributeProto x = a, y = b;
  x.clear_doc_string();
  y.clear_doc_string();
  return x.SerializeAsString() == y.SerializeAsString();
}

// Returns "after:" with further colons until no name of either model begins with it.
std::string UnusedPrefix(const ModelProto& before, const ModelProto& after) {
  std::string prefix = "after:";
  const auto begins = [&](const std::string& name) { return name.rfind(prefix, 0) == 0; };
  const auto in_value = [&](const onnx::ValueInfoProto& value) {
    const auto& dims = value.type().tensor_type().shape().dim();
    return begins(value.name()) || std::any_of(dims.begin(), dims.end(), [&](const auto& dim) {
             return begins(dim.dim_param());
           });
  };
  const auto used = [&](const onnx::GraphProto& graph) {
    return std::any_of(graph.input().begin(), graph.input().end(), in_value) ||
           std::any_of(graph.output().begin(), graph.output().end(), in_value) ||
           std::any_of(graph.initializer().begin(), graph.initializer().end(),
                       [&](const TensorProto& tensor) { return begins(tensor.name()); }) ||
           std::any_of(graph.node().begin(), graph.node().end(), [&](const NodeProto& node) {
             return std::any_of(node.output().begin(), node.output().end(), begins);
           });
  };
  while (used(before.graph()) || used(after.graph())) prefix += ':';
  return prefix;
}

class Joiner {
 public:
  Joiner(const ModelProto& before, const ModelProto& after, const Manifest& relation)
      : before_(before),
        after_(after),
        relation_(relation),
        prefix_(UnusedPrefix(before, after)),
        sizes_(NamesOfSizesIn(after.graph())) {}

  void Run() {
    joint_.set_ir_version(std::max(before_.ir_version(), after_.ir_version()));
    joint_.mutable_graph()->set_name("pair");
    AddImports();
    for (const auto& input : before_.graph().input()) {
      *joint_.mutable_graph()->add_input() = input;
      if (const auto all = RequiredOf(input.name())) {
        required_.push_back({kNoValue, input.name(), *all});
        AddSame(*all, &*joint_.mutable_graph()->mutable_input()->rbegin());
      }
    }
    for (const auto& tensor : before_.graph().initializer()) {
      AddConstant(tensor, tensor.name());
    }
    for (const NodeProto& node : before_.graph().node()) {
      *joint_.mutable_graph()->add_node() = node;
      if (node.output_size() > 0) nodes_[node.output(0)] = &node;
    }
    AddInputsOfAfter();
    for (const auto& tensor : after_.graph().initializer()) AddConstantOfAfter(tensor);
    for (const NodeProto& node : after_.graph().node()) AddNodeOfAfter(node);
    for (const auto& output : before_.graph().output()) {
      *joint_.mutable_graph()->add_output() = output;
    }
  }

  ModelProto TakeModel() { return std::move(joint_); }
  absl::flat_hash_map<std::string, std::string> TakeNames() { return std::move(names_); }
  const std::string& prefix() const { return prefix_; }
  std::vector<GraphPair::Required> TakeRequired() { return std::move(required_); }
  absl::flat_hash_map<std::string, const TensorProto*> TakeConstants() {
    return std::move(constants_);
  }

 private:
  void AddImports() {
    absl::flat_hash_map<std::string, int64_t> versions;
    for (const ModelProto* model : {&before_, &after_}) {
      for (const auto& import : model->opset_import()) {
        const std::string domain = import.domain() == "ai.onnx" ? "" : import.domain();
        versions[domain] = std::max(versions[domain], import.version());
      }
    }
    for (const auto& [domain, version] : versions) {
      auto* import = joint_.add_opset_import();
      import->set_domain(domain);
      import->set_version(version);
    }
  }

  // Returns the number that the manifest requires all elements of an input of the source to be;
  // nullopt if the manifest requires no number.
  std::optional<AllElements> RequiredOf(const std::string& input) const {
    for (const DroppedInput& dropped : relation_.dropped) {
      if (dropped.name == input) return AllOf(dropped);
    }
    for (const ManifestInput& kept : relation_.inputs) {
      if (NameInSource(kept) == input) return kept.all;
    }
    return std::nullopt;
  }

  // Renames an input, and gives its name to a tensor of all ones, or zeros, of the same shape.
  void AddSame(AllElements all, onnx::ValueInfoProto* input) {
    const std::string name = input->name();
    input->set_name(fmt::format("{}:{}", WordOf(all), name));
    NodeProto* shape = joint_.mutable_graph()->add_node();
    shape->set_op_type("Shape");
    shape->add_input(input->name());
    shape->add_output(fmt::format("{}:{}/shape", WordOf(all), name));
    NodeProto* same = joint_.mutable_graph()->add_node();
    same->set_op_type("ConstantOfShape");
    same->add_input(shape->output(0));
    same->add_output(name);
    onnx::AttributeProto* value = same->add_attribute();
    value->set_name("value");
    value->set_type(onnx::AttributeProto::TENSOR);
    TensorProto* element = value->mutable_t();
    element->set_data_type(input->type().tensor_type().elem_type());
    element->add_dims(1);
    SetOne(element);
    if (all == AllElements::kZeros) {
      element->mutable_raw_data()->assign(element->raw_data().size(), '\0');
    }
  }

  // Bytes are little-endian.
  static void SetOne(TensorProto* tensor) {
    switch (tensor->data_type()) {
      case TensorProto::FLOAT:
        return tensor->set_raw_data(std::string("\x00\x00\x80\x3f", 4));
      case TensorProto::DOUBLE:
        return tensor->set_raw_data(std::string("\x00\x00\x00\x00\x00\x00\xf0\x3f", 8));
      case TensorProto::FLOAT16:
        return tensor->set_raw_data(std::string("\x00\x3c", 2));
      case TensorProto::BFLOAT16:
        return tensor->set_raw_data(std::string("\x80\x3f", 2));
      case TensorProto::INT32:
        return tensor->set_raw_data(std::string("\x01\x00\x00\x00", 4));
      case TensorProto::BOOL:
        return tensor->set_raw_data(std::string("\x01", 1));
      default:
        tensor->set_data_type(TensorProto::INT64);
        tensor->set_raw_data(std::string("\x01\x00\x00\x00\x00\x00\x00\x00", 8));
    }
  }

  void AddConstant(const TensorProto& tensor, const std::string& name) {
    constants_[name] = &tensor;
    if (IsRead(tensor)) {
      TensorProto* copy = joint_.mutable_graph()->add_initializer();
      *copy = tensor;
      copy->set_name(name);
      return;
    }
    auto* input = joint_.mutable_graph()->add_input();
    input->set_name(name);
    auto* type = input->mutable_type()->mutable_tensor_type();
    type->set_elem_type(tensor.data_type());
    for (int64_t dim : tensor.dims()) type->mutable_shape()->add_dim()->set_dim_value(dim);
  }

  std::string Fresh(const std::string& name) { return names_[name] = prefix_ + name; }

  void AddInputsOfAfter() {
    absl::flat_hash_map<std::string, std::string> same;
    for (const ManifestInput& input : relation_.inputs) {
      if (IsFedToBoth(input)) same[input.name] = NameInSource(input);
    }
    for (const auto& input : after_.graph().input()) {
      const auto it = same.find(input.name());
      if (it != same.end() && HasType(it->second, input.type().tensor_type().elem_type())) {
        names_[input.name()] = it->second;
        continue;
      }
      auto* copy = joint_.mutable_graph()->add_input();
      *copy = input;
      copy->set_name(Fresh(input.name()));
      NameDims(SharedDims(input), copy);
    }
  }

  // Returns the axes of a cache input whose dimension has the same name in both models, and which
  // the manifest says correspond.
  std::vector<int> SharedDims(const onnx::ValueInfoProto& input) const {
    std::vector<int> shared;
    for (const ManifestCache& cache : relation_.caches) {
      if (cache.input != input.name() || !cache.source.select.empty()) continue;
      const auto theirs =
          std::find_if(before_.graph().input().begin(), before_.graph().input().end(),
                       [&](const auto& other) { return other.name() == cache.source.input; });
      if (theirs == before_.graph().input().end()) continue;
      const auto& mine = input.type().tensor_type().shape();
      const auto& other = theirs->type().tensor_type().shape();
      const std::string& layout = cache.source.layout;
      if (other.dim_size() != std::ssize(layout) || mine.dim_size() != std::ssize(cache.layout)) {
        continue;
      }
      for (int k = 0; k < other.dim_size(); ++k) {
        const size_t own = cache.layout.find(layout[static_cast<size_t>(k)]);
        if (own == std::string::npos || (k == cache.source.axis && cache.source.growing)) continue;
        const int axis = static_cast<int>(own);
        if (other.dim(k).has_dim_param() &&
            other.dim(k).dim_param() == mine.dim(axis).dim_param()) {
          shared.push_back(axis);
        }
      }
    }
    return shared;
  }

  // Returns true if the source has an input of this name and element type.
  bool HasType(const std::string& name, int32_t type) const {
    return std::any_of(
        before_.graph().input().begin(), before_.graph().input().end(), [&](const auto& input) {
          return input.name() == name && input.type().tensor_type().elem_type() == type;
        });
  }

  // Renames the input's dimensions to names that the source does not use, apart from the shared
  // axes. A name that is an expression, such as a sum, is dropped.
  void NameDims(const std::vector<int>& shared, onnx::ValueInfoProto* input) const {
    auto* shape = input->mutable_type()->mutable_tensor_type()->mutable_shape();
    for (int k = 0; k < shape->dim_size(); ++k) {
      auto& dim = *shape->mutable_dim(k);
      if (!dim.has_dim_param() || std::count(shared.begin(), shared.end(), k) > 0) continue;
      if (sizes_.contains(dim.dim_param())) {
        dim.set_dim_param(prefix_ + dim.dim_param());
      } else {
        dim.clear_dim_param();
      }
    }
  }

  void AddConstantOfAfter(const TensorProto& tensor) {
    const auto own = constants_.find(tensor.name());
    if (own == constants_.end() || !SameData(*own->second, tensor)) {
      return AddConstant(tensor, Fresh(tensor.name()));
    }
    names_[tensor.name()] = tensor.name();
  }

  void AddNodeOfAfter(const NodeProto& node) {
    NodeProto copy = node;
    for (std::string& input : *copy.mutable_input()) {
      if (input.empty()) continue;
      // A name that is not known yet belongs to the converted model, even if the source has the
      // same name.
      const auto it = names_.find(input);
      if (it != names_.end()) {
        input = it->second;
      } else {
        input.insert(0, prefix_);
      }
    }
    const auto twin = nodes_.find(node.output(0));
    if (twin != nodes_.end() &&
        SameNode(*twin->second, copy, DefaultOpset(before_), DefaultOpset(after_))) {
      for (const std::string& output : node.output()) names_[output] = output;
      return;
    }
    for (std::string& output : *copy.mutable_output()) {
      if (!output.empty()) output = Fresh(output);
    }
    *joint_.mutable_graph()->add_node() = std::move(copy);
  }

  const ModelProto& before_;
  const ModelProto& after_;
  const Manifest& relation_;
  ModelProto joint_;
  // Nodes of the source by their first output.
  absl::flat_hash_map<std::string, const NodeProto*> nodes_;
  absl::flat_hash_map<std::string, const TensorProto*> constants_;
  absl::flat_hash_map<std::string, std::string> names_;
  std::string prefix_;
  NamesOfSizes sizes_;                         // that the converted model names
  std::vector<GraphPair::Required> required_;  // without the values
};

}  // namespace

bool HasBodies(const ModelProto& model) {
  return std::any_of(model.graph().node().begin(), model.graph().node().end(), HasBody);
}

bool SameAttributes(const NodeProto& a, const NodeProto& b,
                    std::initializer_list<std::string_view> without, int64_t opset_a,
                    int64_t opset_b) {
  const auto is_left_out = [&](const onnx::AttributeProto& attribute) {
    return std::find(without.begin(), without.end(), attribute.name()) != without.end();
  };
  // Returns true if the other node has this attribute as well, written out or by default.
  const auto has = [&](const onnx::AttributeProto& own, const NodeProto& other, int64_t own_opset,
                       int64_t other_opset) {
    if (const auto* written = FindAttribute(other, own.name()); written != nullptr) {
      return SameAttribute(own, *written);
    }
    if (own_opset == 0 || other_opset == 0) return false;
    DefaultAttribute none = DefaultAttributeOf(other, own.name(), other_opset);
    // If the older opset does not have the attribute, the newer operator has to have its default.
    if (!none.known) none = DefaultAttributeOf(other, own.name(), own_opset);
    return none.value != nullptr && SameAttribute(own, *none.value);
  };
  for (const auto& own : a.attribute()) {
    if (!is_left_out(own) && !has(own, b, opset_a, opset_b)) return false;
  }
  return std::all_of(b.attribute().begin(), b.attribute().end(), [&](const auto& own) {
    return is_left_out(own) || FindAttribute(a, own.name()) != nullptr ||
           has(own, a, opset_b, opset_a);
  });
}

bool SameNode(const NodeProto& a, const NodeProto& b, int64_t opset_a, int64_t opset_b) {
  const auto same = [](const auto& x, const auto& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end());
  };
  return a.op_type() == b.op_type() && a.domain() == b.domain() && same(a.input(), b.input()) &&
         same(a.output(), b.output()) && SameAttributes(a, b, {}, opset_a, opset_b);
}

bool SameData(const TensorProto& a, const TensorProto& b) {
  if (a.data_type() != b.data_type() ||
      !std::equal(a.dims().begin(), a.dims().end(), b.dims().begin(), b.dims().end())) {
    return false;
  }
  const RawData x = RawDataOf(a), y = RawDataOf(b);
  if (!x.bytes.empty() && x.bytes.size() == y.bytes.size()) {
    // Weights that stayed in their file are mapped to the same memory.
    return x.bytes.data() == y.bytes.data() || x.bytes == y.bytes;
  }
  if (IsElsewhere(a) || IsElsewhere(b)) {
    if (a.external_data_size() != b.external_data_size()) return false;
    for (int k = 0; k < a.external_data_size(); ++k) {
      if (a.external_data(k).key() != b.external_data(k).key() ||
          a.external_data(k).value() != b.external_data(k).value()) {
        return false;
      }
    }
    return true;
  }
  const auto all = InlineBytes(a), others = InlineBytes(b);
  return all.ok() && others.ok() && *all == *others;
}

namespace {

// Returns true if the corners of the first matrix hold two numbers, one of them in two corners that
// face each other, as the corners of a triangular mask do. Weights hardly ever do.
bool MayBeTriangle(const TensorProto& tensor) {
  const int rank = tensor.dims_size();
  if (rank < 2) return false;
  const int64_t rows = tensor.dims(rank - 2), columns = tensor.dims(rank - 1);
  const RawData raw = RawDataOf(tensor);
  const auto bytes = static_cast<size_t>(ElementBits(tensor.data_type()) / 8);
  const auto size = NumElements(tensor);
  if (rows < 2 || columns < 2 || bytes == 0 || !size.ok() ||
      raw.bytes.size() != static_cast<size_t>(*size) * bytes) {
    return false;
  }
  const auto at = [&](int64_t row, int64_t column) {
    return raw.bytes.substr(static_cast<size_t>(row * columns + column) * bytes, bytes);
  };
  const auto low = at(rows - 1, 0), high = at(0, columns - 1);
  const auto is_either = [&](std::string_view x) { return x == low || x == high; };
  return low != high && is_either(at(0, 0)) && is_either(at(rows - 1, columns - 1));
}

}  // namespace

bool IsRead(const TensorProto& tensor) {
  if (IsElsewhere(tensor)) return false;
  const auto size = NumElements(tensor);
  return !IsFloatTensor(tensor) || (size.ok() && *size <= kMostNumbers) || MayBeTriangle(tensor);
}

std::vector<std::string> ComparedResults(const Manifest& relation) {
  std::vector<std::string> names;
  for (const ManifestOutput& output : relation.outputs) {
    if (!IsCache(output)) names.push_back(NameInSource(output));
  }
  for (const ManifestCache& cache : relation.caches) names.push_back(cache.source.output);
  return names;
}

absl::StatusOr<GraphPair> GraphPair::Create(const ModelProto& before, const ModelProto& after,
                                            const Manifest& relation) {
  if (HasBodies(before) || HasBodies(after)) {
    return absl::UnimplementedError("a model has branches or loops");
  }
  Joiner joiner(before, after, relation);
  joiner.Run();
  GraphPair pair;
  KV_ASSIGN_OR_RETURN(Graph graph,
                      Graph::Build(std::make_shared<const ModelProto>(joiner.TakeModel())));
  pair.graph_ = std::make_shared<const Graph>(std::move(graph));
  pair.after_names_ = joiner.TakeNames();
  pair.prefix_ = joiner.prefix();
  pair.constants_ = joiner.TakeConstants();
  pair.opset_before_ = DefaultOpset(before);
  pair.opset_after_ = DefaultOpset(after);
  pair.required_ = joiner.TakeRequired();
  for (Required& required : pair.required_) required.value = pair.graph_->Find(required.input);
  for (NodeId n = 0; n < pair.graph_->num_nodes(); ++n) {
    const auto outputs = pair.graph_->outputs(n);
    pair.in_after_.push_back(std::any_of(outputs.begin(), outputs.end(), [&](ValueId output) {
      return output != kNoValue && pair.graph_->name(output).rfind(pair.prefix_, 0) == 0;
    }));
  }
  const auto of_source = pair.graph_->graph_outputs();
  std::vector<ValueId> results(of_source.begin(), of_source.end());
  for (const auto& output : after.graph().output()) results.push_back(pair.After(output.name()));
  pair.needed_ = NodesBehind(*pair.graph_, std::move(results));
  sym::FormsOptions options;
  options.compared = pair.in_after_;  // see proof/facts/unmet_conditions.h
  pair.forms_ = std::make_shared<sym::Forms>(*pair.graph_, options);
  pair.AssumeNumbersOfCaches(relation);
  pair.AssumePastLengths(relation);
  return pair;
}

void GraphPair::AssumePastLengths(const Manifest& relation) {
  for (const ManifestInput& input : relation.inputs) {
    const ValueId v = After(input.name);
    if (v != kNoValue && IsControl(input, ControlValue::kPastLength)) forms_->AssumeCounts(v);
  }
}

void GraphPair::AssumeNumbersOfCaches(const Manifest& relation) {
  std::vector<std::pair<ValueId, ValueId>> pairs;
  for (const ManifestCache& cache : relation.caches) {
    pairs.emplace_back(Before(cache.source.input), Before(cache.source.output));
  }
  const auto narrow = sym::NumbersOfCaches(*graph_, pairs);
  for (const ManifestCache& cache : relation.caches) {
    const auto it = narrow.find(Before(cache.source.input));
    const ValueId after = After(cache.input);
    if (it == narrow.end() || after == kNoValue) continue;
    forms_->AssumeNumbersOf(it->first, it->second);
    forms_->AssumeNumbersOf(after, it->second);
  }
}

ValueId GraphPair::After(const std::string& name) const {
  const auto it = after_names_.find(name);
  return it == after_names_.end() ? kNoValue : graph_->Find(it->second);
}

std::string GraphPair::NameOf(ValueId value) const {
  const std::string& name = graph_->name(value);
  return name.rfind(prefix_, 0) == 0 ? name.substr(prefix_.size()) : name;
}

bool GraphPair::HaveOtherNumbers(ValueId after, ValueId before) const {
  if (after == kNoValue || before == kNoValue || after == before) return false;
  const auto mine = constants_.find(graph_->name(after));
  const auto theirs = constants_.find(graph_->name(before));
  if (mine == constants_.end() || theirs == constants_.end()) return false;
  const TensorProto &a = *mine->second, &b = *theirs->second;
  const bool same_kind =
      a.data_type() == b.data_type() &&
      std::equal(a.dims().begin(), a.dims().end(), b.dims().begin(), b.dims().end());
  return same_kind && !IsElsewhere(a) && !IsElsewhere(b) && !SameData(a, b);
}

}  // namespace kvlift
