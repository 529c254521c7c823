// The reductions of constants and weights.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/status.h"
#include "ir/constant_node.h"
#include "ir/node_builder.h"
#include "ir/spans.h"
#include "ir/tensor_data.h"
#include "reduce/edits.h"
#include "reduce/reductions.h"

namespace kvlift {
namespace {

using Names = absl::flat_hash_set<std::string>;

// Tensors with fewer elements are not worth replacing.
constexpr int64_t kFewElements = 64;

// Returns the elements as bytes; nullopt if they are not at hand.
std::optional<std::string> BytesOf(const onnx::TensorProto& tensor) {
  if (IsElsewhere(tensor)) return std::nullopt;
  if (tensor.data_location() == onnx::TensorProto::EXTERNAL) {
    return std::string(RawDataOf(tensor).bytes);
  }
  auto bytes = InlineBytes(tensor);
  return bytes.ok() ? std::optional<std::string>(*std::move(bytes)) : std::nullopt;
}

bool IsSameTensor(const onnx::TensorProto& a, const onnx::TensorProto& b) {
  if (a.data_type() != b.data_type() ||
      !std::equal(a.dims().begin(), a.dims().end(), b.dims().begin(), b.dims().end())) {
    return false;
  }
  const auto left = BytesOf(a), right = BytesOf(b);
  return left && right && *left == *right;
}

const onnx::TensorProto* Initializer(const Graph& graph, const std::string& name) {
  for (const onnx::TensorProto& tensor : graph.proto().initializer()) {
    if (tensor.name() == name) return &tensor;
  }
  return nullptr;
}

bool IsGraphInput(const Graph& graph, const std::string& name) {
  return graph.is_graph_input(graph.Find(name));
}

// Returns the names of initialisers of real numbers with many elements; of a pair, of those that
// are equal in both models.
std::vector<std::string> LargeWeights(const SubjectGraphs& graphs) {
  std::vector<std::string> names;
  for (const onnx::TensorProto& tensor : graphs.before().proto().initializer()) {
    const auto elements = NumElements(tensor);
    if (!elements.ok() || *elements < kFewElements || !IsFloatType(tensor.data_type())) continue;
    if (IsGraphInput(graphs.before(), tensor.name())) continue;
    if (graphs.subject().is_pair()) {
      const onnx::TensorProto* other = Initializer(graphs.after(), tensor.name());
      if (other == nullptr || IsGraphInput(graphs.after(), tensor.name())) continue;
      if (!IsSameTensor(tensor, *other)) continue;
    }
    names.push_back(tensor.name());
  }
  return names;
}

void RemoveInitializers(const Names& names, onnx::GraphProto* graph) {
  auto& tensors = *graph->mutable_initializer();
  tensors.erase(std::remove_if(tensors.begin(), tensors.end(),
                               [&](const auto& tensor) { return names.contains(tensor.name()); }),
                tensors.end());
}

class Constants : public Reduction {
 public:
  std::string_view name() const override { return "constants"; }

  std::vector<std::string> Elements(const SubjectGraphs& graphs) const override {
    std::vector<std::string> names;
    const auto add = [&](const Graph& graph) {
      for (NodeId n = 0; n < graph.num_nodes(); ++n) {
        if (!graph.Is(n, "Constant")) continue;
        const std::string& name = graph.node(n).output(0);
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      }
    };
    add(graphs.before());
    if (graphs.subject().is_pair()) add(graphs.after());
    return names;
  }

  absl::StatusOr<Subject> Without(const SubjectGraphs& graphs,
                                  absl::Span<const std::string> elements) const override {
    const Names names(elements.begin(), elements.end());
    return EditEach(graphs, [&](const Graph& graph) -> absl::StatusOr<onnx::ModelProto> {
      onnx::ModelProto model = graph.model();
      onnx::GraphProto& result = *model.mutable_graph();
      result.clear_node();
      for (const onnx::NodeProto& node : graph.proto().node()) {
        const bool constant = node.op_type() == "Constant" && node.output_size() == 1 &&
                              names.contains(node.output(0));
        if (!constant) {
          *result.add_node() = node;
          continue;
        }
        KV_ASSIGN_OR_RETURN(const ConstantTensor value, ConstantNodeTensor(node));
        if (value.tensor == nullptr) return absl::FailedPreconditionError("a sparse constant");
        onnx::TensorProto& tensor = *result.add_initializer() = *value.tensor;
        tensor.set_name(node.output(0));
      }
      return model;
    });
  }
};

class Weights : public Reduction {
 public:
  std::string_view name() const override { return "weights"; }

  std::vector<std::string> Elements(const SubjectGraphs& graphs) const override {
    return LargeWeights(graphs);
  }

  absl::StatusOr<Subject> Without(const SubjectGraphs& graphs,
                                  absl::Span<const std::string> elements) const override {
    const Names names(elements.begin(), elements.end());
    KV_ASSIGN_OR_RETURN(
        Subject result,
        EditEach(graphs, [&](const Graph& graph) -> absl::StatusOr<onnx::ModelProto> {
          onnx::ModelProto model = graph.model();
          RemoveInitializers(names, model.mutable_graph());
          for (const std::string& name : elements) {
            *model.mutable_graph()->add_input() = Declaration(name, graph.type(graph.Find(name)));
          }
          return model;
        }));
    if (!result.is_pair()) return result;
    for (const std::string& name : elements) {
      ManifestInput& input = result.conversion->relation.inputs.emplace_back();
      input.name = name;
      input.as = SameInput{};
    }
    return result;
  }
};

class Rows : public Reduction {
 public:
  std::string_view name() const override { return "rows of weights"; }
  bool adds_nodes() const override { return true; }

  std::vector<std::string> Elements(const SubjectGraphs& graphs) const override {
    std::vector<std::string> names;
    for (std::string& name : LargeWeights(graphs)) {
      const onnx::TensorProto& tensor = *Initializer(graphs.before(), name);
      const int rank = tensor.dims_size();
      const auto elements = NumElements(tensor);
      if (rank < 2 || *elements < kFewElements * tensor.dims(rank - 1) / 8) continue;
      if (ElementBits(tensor.data_type()) % 8 == 0) names.push_back(std::move(name));
    }
    return names;
  }

  absl::StatusOr<Subject> Without(const SubjectGraphs& graphs,
                                  absl::Span<const std::string> elements) const override {
    const Names names(elements.begin(), elements.end());
    return EditEach(graphs, [&](const Graph& graph) -> absl::StatusOr<onnx::ModelProto> {
      onnx::ModelProto model = graph.model();
      onnx::GraphProto& result = *model.mutable_graph();
      RemoveInitializers(names, &result);
      NodeBuilder builder(graph);
      for (const std::string& name : elements) {
        const onnx::TensorProto& tensor = *Initializer(graph, name);
        KV_ASSIGN_OR_RETURN(onnx::TensorProto row, FirstRow(tensor));
        row.set_name(name + "/row");
        if (graph.Find(row.name()) != kNoValue) return absl::FailedPreconditionError("a name");
        *result.add_initializer() = row;
        const std::vector<int64_t> shape(tensor.dims().begin(), tensor.dims().end());
        builder.AddNamed("Expand", {row.name(), builder.Int64s(shape)}, "Expand", name);
      }
      google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
      for (onnx::NodeProto& node : builder.TakeNodes()) *nodes.Add() = std::move(node);
      for (const onnx::NodeProto& node : graph.proto().node()) *nodes.Add() = node;
      *result.mutable_node() = std::move(nodes);
      for (onnx::TensorProto& tensor : builder.TakeInitializers()) {
        *result.add_initializer() = std::move(tensor);
      }
      return model;
    });
  }

 private:
  // Returns the first elements along the last axis, as [1, ..., 1, D].
  static absl::StatusOr<onnx::TensorProto> FirstRow(const onnx::TensorProto& tensor) {
    const auto bytes = BytesOf(tensor);
    if (!bytes) return absl::FailedPreconditionError("its elements are missing");
    const int64_t columns = tensor.dims(tensor.dims_size() - 1);
    KV_ASSIGN_OR_RETURN(const int64_t size, ByteSize(tensor.data_type(), columns));
    onnx::TensorProto row;
    row.set_data_type(tensor.data_type());
    for (int k = 1; k < tensor.dims_size(); ++k) row.add_dims(1);
    row.add_dims(columns);
    row.set_raw_data(bytes->substr(0, static_cast<size_t>(size)));
    return row;
  }
};

}  // namespace

const Reduction& ConstantsReduction() {
  static const Constants kReduction;
  return kReduction;
}

const Reduction& WeightsReduction() {
  static const Weights kReduction;
  return kReduction;
}

const Reduction& RowsReduction() {
  static const Rows kReduction;
  return kReduction;
}

}  // namespace kvlift
