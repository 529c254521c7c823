#include "verify/inputs/adapted_layouts.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "contract/layout.h"
#include "fmt/format.h"
#include "ir/subgraphs.h"
#include "ir/types.h"

namespace kvlift {
namespace {

using onnx::ModelProto;
using onnx::NodeProto;
using onnx::TensorProto;

std::string LettersOf(const std::vector<std::string>& axes) {
  std::string letters;
  for (const std::string& axis : axes) letters += axis;
  return letters;
}

bool IsGrouped(const std::string& layout) { return layout.find('(') != std::string::npos; }
bool IsGrouped(const ManifestCache& cache) {
  return IsGrouped(cache.layout) || IsGrouped(cache.source.layout);
}

std::vector<Dim> DimsOf(const onnx::ValueInfoProto& value) {
  return TensorType::From(value.type()).shape.value_or(std::vector<Dim>());
}

template <typename Values>
auto* Find(Values* values, const std::string& name) {
  for (auto& v : *values) {
    if (v.name() == name) return &v;
  }
  return static_cast<decltype(&*values->begin())>(nullptr);
}

// The two layouts of one cache.
struct View {
  std::vector<std::string> theirs, mine;  // letters of each axis in the source, in the conversion
  std::map<char, Dim> dims;               // the size of each letter, as far as it is declared
};

class Adapter {
 public:
  Adapter(const Model& before, const Model& after, const Manifest& relation)
      : before_(before), after_(*after.proto), relation_(relation) {}

  absl::StatusOr<Adapted> Run() {
    Adapted out{before_, relation_};
    auto proto = std::shared_ptr<ModelProto>(new ModelProto(*before_.proto),
                                             // The copy refers to weights of the original.
                                             [keep = before_.proto](ModelProto* p) { delete p; });
    for (ManifestCache& cache : out.relation.caches) {
      if (!IsGrouped(cache)) continue;
      KV_ASSIGN_OR_RETURN(const View view, Read(cache));
      KV_RETURN_IF_ERROR(Adapt(view, cache, proto->mutable_graph()));
      cache.layout = PlainLayout(cache.layout);
      cache.axis = static_cast<int64_t>(cache.layout.find('S'));
      cache.source.layout = cache.layout;
      cache.source.axis = cache.axis;
    }
    // Nodes behind inputs stand first, nodes in front of outputs last: topological order.
    google::protobuf::RepeatedPtrField<NodeProto> nodes;
    for (NodeProto& node : first_) *nodes.Add() = std::move(node);
    for (NodeProto& node : *proto->mutable_graph()->mutable_node()) *nodes.Add() = std::move(node);
    for (NodeProto& node : last_) *nodes.Add() = std::move(node);
    proto->mutable_graph()->mutable_node()->Swap(&nodes);
    out.before.proto = std::move(proto);
    return out;
  }

  absl::StatusOr<View> Read(const ManifestCache& cache) const {
    View view{AxesOfLayout(cache.source.layout), AxesOfLayout(cache.layout), {}};
    const auto no = [&](std::string_view why) {
      return absl::FailedPreconditionError(fmt::format("the layouts {} and {} of cache {} {}",
                                                       cache.source.layout, cache.layout, cache.id,
                                                       why));
    };
    std::string a = LettersOf(view.theirs), b = LettersOf(view.mine);
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    if (a.empty() || a != b || std::adjacent_find(a.begin(), a.end()) != a.end()) {
      return no("do not have the same letters");
    }
    for (const auto* axes : {&view.theirs, &view.mine}) {
      for (const std::string& axis : *axes) {
        if (axis.size() > 1 && axis.find('S') != std::string::npos) {
          return no("fold the sequence");
        }
      }
    }
    if (!cache.source.select.empty()) return no("fold what is selected from a larger tensor");
    const auto* theirs = Find(&before_.proto->graph().input(), cache.source.input);
    const auto* mine = Find(&after_.graph().input(), cache.input);
    if (theirs == nullptr || mine == nullptr) return no("belong to no inputs");
    const std::vector<Dim> dims = DimsOf(*theirs), others = DimsOf(*mine);
    if (dims.size() != view.theirs.size() || others.size() != view.mine.size()) {
      return no("have other ranks than the tensors");
    }
    for (size_t k = 0; k < others.size(); ++k) {
      if (view.mine[k].size() == 1 && view.mine[k] != "S" && others[k].value) {
        view.dims[view.mine[k][0]] = others[k];
      }
    }
    for (size_t k = 0; k < dims.size(); ++k) {
      if (view.theirs[k].size() == 1) view.dims[view.theirs[k][0]] = dims[k];
    }
    if (!Completes(view.theirs, dims, &view) || !Completes(view.mine, others, &view)) {
      return no("leave more than one size open");
    }
    return view;
  }

 private:
  // Computes the size of a letter from an axis of known size that joins it with letters of known
  // sizes. False if an axis has several letters of unknown size.
  static bool Completes(const std::vector<std::string>& axes, const std::vector<Dim>& dims,
                        View* view) {
    for (size_t k = 0; k < axes.size(); ++k) {
      if (axes[k].size() < 2) continue;
      int64_t known = 1;
      std::string open;
      for (char letter : axes[k]) {
        const auto it = view->dims.find(letter);
        if (it != view->dims.end() && it->second.value) {
          known *= *it->second.value;
        } else {
          open += letter;
        }
      }
      if (open.size() > 1) return false;
      if (open.size() == 1 && dims[k].value && known > 0 && *dims[k].value % known == 0) {
        view->dims[open[0]].value = *dims[k].value / known;
      }
    }
    return true;
  }

  std::string Constant(const std::vector<int64_t>& values) {
    NodeProto node;
    node.set_op_type("Constant");
    node.add_output(Fresh("constant"));
    auto* attribute = node.add_attribute();
    attribute->set_name("value");
    attribute->set_type(onnx::AttributeProto::TENSOR);
    attribute->mutable_t()->set_data_type(TensorProto::INT64);
    attribute->mutable_t()->add_dims(static_cast<int64_t>(values.size()));
    for (int64_t v : values) attribute->mutable_t()->add_int64_data(v);
    to_->push_back(node);
    return node.output(0);
  }

  std::string Node(const std::string& op, const std::vector<std::string>& inputs,
                   const std::vector<int64_t>& perm = {}, std::optional<int64_t> axis = {}) {
    NodeProto node;
    node.set_op_type(op);
    node.set_name(Fresh(op));
    for (const std::string& input : inputs) node.add_input(input);
    node.add_output(Fresh("value"));
    if (!perm.empty()) {
      auto* attribute = node.add_attribute();
      attribute->set_name("perm");
      attribute->set_type(onnx::AttributeProto::INTS);
      for (int64_t p : perm) attribute->add_ints(p);
    }
    if (axis) {
      auto* attribute = node.add_attribute();
      attribute->set_name("axis");
      attribute->set_type(onnx::AttributeProto::INT);
      attribute->set_i(*axis);
    }
    to_->push_back(node);
    return node.output(0);
  }

  std::string Fresh(const std::string& what) {
    return fmt::format("kvlift adapted {} {}", what, ++count_);
  }

  // Appends nodes that reshape a value with axes `from` to axes `to`, whose letters are in the same
  // order. Returns the result's name; empty if more than one axis has an unknown size.
  std::string Reshape(const std::string& value, const std::vector<std::string>& from,
                      const std::vector<std::string>& to, const View& view) {
    if (from == to) return value;
    std::vector<std::string> parts;
    bool inferred = false;
    for (const std::string& axis : to) {
      int64_t size = 1;
      for (char letter : axis) {
        const auto it = view.dims.find(letter);
        size = it != view.dims.end() && it->second.value && size > 0 ? size * *it->second.value : 0;
      }
      const auto whole = std::find(from.begin(), from.end(), axis);
      if (axis != "S" && size > 0) {
        parts.push_back(Constant({size}));
      } else if (whole != from.end()) {
        parts.push_back(Node("Gather", {Node("Shape", {value}), Constant({whole - from.begin()})}));
      } else if (!inferred) {
        inferred = true;
        parts.push_back(Constant({-1}));
      } else {
        return {};
      }
    }
    return Node("Reshape", {value, Node("Concat", parts, {}, 0)});
  }

  static std::vector<std::string> Singles(const std::vector<std::string>& axes) {
    std::vector<std::string> singles;
    for (char letter : LettersOf(axes)) singles.emplace_back(1, letter);
    return singles;
  }

  // Appends nodes that bring a value with axes `from` to axes `to`. Returns the result's name;
  // empty if the sizes are not known.
  std::string Move(std::string value, const std::vector<std::string>& from,
                   const std::vector<std::string>& to, const View& view) {
    const std::vector<std::string> a = Singles(from), b = Singles(to);
    value = Reshape(value, from, a, view);
    std::vector<int64_t> perm;
    for (const std::string& letter : b) {
      perm.push_back(std::find(a.begin(), a.end(), letter) - a.begin());
    }
    if (value.empty()) return value;
    if (!std::is_sorted(perm.begin(), perm.end())) value = Node("Transpose", {value}, perm);
    return Reshape(value, b, to, view);
  }

  void Declare(const View& view, onnx::ValueInfoProto* value) const {
    const std::vector<Dim> dims = DimsOf(*value);
    auto* shape = value->mutable_type()->mutable_tensor_type()->mutable_shape();
    shape->clear_dim();
    for (const std::string& axis : view.mine) {
      auto* dim = shape->add_dim();
      int64_t size = 1;
      for (char letter : axis) {
        const auto it = view.dims.find(letter);
        const bool known = axis != "S" && it != view.dims.end() && it->second.value;
        size = known ? size * *it->second.value : 0;
      }
      if (size > 0) dim->set_dim_value(size);
      const auto whole = std::find(view.theirs.begin(), view.theirs.end(), axis);
      if (whole == view.theirs.end()) continue;
      const auto k = static_cast<size_t>(whole - view.theirs.begin());
      if (k >= dims.size()) continue;
      if (dims[k].value) dim->set_dim_value(*dims[k].value);
      if (!dims[k].param.empty()) dim->set_dim_param(dims[k].param);
    }
  }

  absl::Status Adapt(const View& view, const ManifestCache& cache, onnx::GraphProto* graph) {
    auto* input = Find(graph->mutable_input(), cache.source.input);
    auto* output = Find(graph->mutable_output(), cache.source.output);
    if (input == nullptr || output == nullptr) {
      return absl::FailedPreconditionError(
          fmt::format("{} is no output of the source", cache.source.output));
    }
    const std::string past = Fresh("past"), present = Fresh("present");
    for (NodeProto& node : *graph->mutable_node()) {
      KV_RETURN_IF_ERROR(
          RenameValues({{cache.source.input, past}, {cache.source.output, present}}, &node));
    }
    for (const bool at_input : {true, false}) {
      std::vector<NodeProto> made;
      to_ = &made;
      const std::string moved = at_input ? Move(cache.source.input, view.mine, view.theirs, view)
                                         : Move(present, view.theirs, view.mine, view);
      if (moved.empty()) {
        return absl::FailedPreconditionError(
            fmt::format("the sizes of cache {} are not known", cache.id));
      }
      made.push_back({});
      made.back().set_op_type("Identity");
      made.back().set_name(Fresh("end"));
      made.back().add_input(moved);
      made.back().add_output(at_input ? past : cache.source.output);
      auto& nodes = at_input ? first_ : last_;
      nodes.insert(nodes.end(), made.begin(), made.end());
    }
    Declare(view, input);
    Declare(view, output);
    return absl::OkStatus();
  }

  const Model& before_;
  const ModelProto& after_;
  const Manifest& relation_;
  std::vector<NodeProto> first_, last_;
  std::vector<NodeProto>* to_ = nullptr;
  int count_ = 0;
};

// Returns a copy, with axes `to`, of a tensor with axes `from`. sizes: of each letter.
exec::Tensor Moved(const exec::View& value, const std::vector<std::string>& from,
                   const std::vector<std::string>& to, const std::map<char, int64_t>& sizes) {
  std::map<char, int64_t> strides;
  int64_t stride = 1;
  const std::string letters = LettersOf(from), order = LettersOf(to);
  for (size_t k = letters.size(); k-- > 0;) {
    strides[letters[k]] = stride;
    stride *= sizes.at(letters[k]);
  }
  exec::Shape shape;
  for (const std::string& axis : to) {
    int64_t size = 1;
    for (char letter : axis) size *= sizes.at(letter);
    shape.push_back(size);
  }
  exec::Tensor out(value.type, shape);
  const int64_t count = out.size();
  const size_t width = count == 0 ? 0 : static_cast<size_t>(value.bytes() / count);
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, at = 0;
    for (size_t k = order.size(); k-- > 0;) {
      const int64_t size = sizes.at(order[k]);
      at += rest % size * strides[order[k]];
      rest /= size;
    }
    std::memcpy(out.data() + static_cast<size_t>(i) * width,
                value.data + static_cast<size_t>(at) * width, width);
  }
  return out;
}

// Returns the sizes of all letters of a tensor with these axes; nullopt if an axis has two letters
// of unknown size.
std::optional<std::map<char, int64_t>> SizesOf(const exec::Shape& shape,
                                               const std::vector<std::string>& axes,
                                               const View& view) {
  std::map<char, int64_t> sizes;
  if (shape.size() != axes.size()) return std::nullopt;
  for (size_t k = 0; k < axes.size(); ++k) {
    int64_t rest = shape[k];
    std::optional<char> open;
    for (char letter : axes[k]) {
      const auto it = view.dims.find(letter);
      if (axes[k].size() > 1 && it != view.dims.end() && it->second.value) {
        sizes[letter] = *it->second.value;
        rest /= std::max<int64_t>(1, *it->second.value);
      } else if (open) {
        return std::nullopt;
      } else {
        open = letter;
      }
    }
    if (open) sizes[*open] = rest;
  }
  return sizes;
}

}  // namespace

bool HasGroups(const Manifest& relation) {
  return std::any_of(relation.caches.begin(), relation.caches.end(),
                     [](const ManifestCache& cache) { return IsGrouped(cache); });
}

absl::StatusOr<Adapted> AdaptSource(const Model& before, const Model& after,
                                    const Manifest& relation) {
  return Adapter(before, after, relation).Run();
}

void RestoreSource(const Model& before, const Model& after, const Manifest& relation,
                   VerifyReport* report) {
  if (!report->counterexample) return;
  const Adapter adapter(before, after, relation);
  for (const ManifestCache& cache : relation.caches) {
    if (!IsGrouped(cache)) continue;
    const auto view = adapter.Read(cache);
    if (!view.ok()) continue;
    const auto restore = [&](auto* values, const std::string& name) {
      const auto it = values->find(name);
      if (it == values->end()) return;
      const auto sizes = SizesOf(it->second.shape(), view->mine, *view);
      if (sizes) it->second = Moved(it->second.view(), view->mine, view->theirs, *sizes);
    };
    for (ReplayStep& step : report->counterexample->before_steps) {
      restore(&step.feeds, cache.source.input);
      restore(&step.fetches, cache.source.output);
    }
  }
}

}  // namespace kvlift
