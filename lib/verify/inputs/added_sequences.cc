#include "verify/inputs/added_sequences.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "fmt/format.h"
#include "ir/subgraphs.h"
#include "onnxio/model/functional_form.h"
#include "proof/rows/new_rows.h"

namespace kvlift {
namespace {

using onnx::ModelProto;
using onnx::NodeProto;
using onnx::TensorProto;
using onnx::ValueInfoProto;

bool LacksSequences(const ManifestCache& cache) {
  return cache.source.layout.find('B') == std::string::npos &&
         cache.layout.find('B') != std::string::npos;
}

ValueInfoProto* Find(google::protobuf::RepeatedPtrField<ValueInfoProto>* values,
                     const std::string& name) {
  const auto at = std::find_if(values->begin(), values->end(),
                               [&](const ValueInfoProto& v) { return v.name() == name; });
  return at == values->end() ? nullptr : &*at;
}

class SequenceAdder {
 public:
  explicit SequenceAdder(ModelProto* model) : model_(model), graph_(*model->mutable_graph()) {}

  absl::Status Run(Manifest* relation) {
    if (const NodeProto* node = FirstJoined(); node != nullptr) {
      rows_ = FirstExtentOf(node->input(KeyValueCacheSlots::kKey), *model_);
    }
    std::set<std::pair<std::string, std::string>> ends;
    for (ManifestCache& cache : relation->caches) {
      if (!LacksSequences(cache)) continue;
      SourceCache& source = cache.source;
      ends.emplace(source.input, source.output);
      source.layout.insert(0, "B");
      ++source.axis;
      for (Select& select : source.select) ++select.axis;
    }
    for (const auto& [past, present] : ends) {
      KV_RETURN_IF_ERROR(AddAxis(past, true));
      KV_RETURN_IF_ERROR(AddAxis(present, false));
    }
    std::vector<DroppedInput> others;
    for (DroppedInput& dropped : relation->dropped) {
      if (!TellsOfSequences(dropped)) {
        others.push_back(std::move(dropped));
        continue;
      }
      KV_RETURN_IF_ERROR(Compute(dropped));
    }
    relation->dropped = std::move(others);
    google::protobuf::RepeatedPtrField<NodeProto> nodes;
    for (NodeProto& node : made_) *nodes.Add() = std::move(node);
    for (NodeProto& node : *graph_.mutable_node()) *nodes.Add() = std::move(node);
    graph_.mutable_node()->Swap(&nodes);
    return absl::OkStatus();
  }

 private:
  std::string Fresh(std::string_view what) {
    return fmt::format("kvlift one sequence {} {}", what, ++count_);
  }

  std::string Node(std::string_view op, std::vector<std::string> inputs, std::string output = {}) {
    NodeProto& node = made_.emplace_back();
    node.set_op_type(std::string(op));
    node.set_name(Fresh(op));
    for (std::string& input : inputs) node.add_input(std::move(input));
    node.add_output(output.empty() ? Fresh("value") : std::move(output));
    if (op == "Concat") {
      auto* axis = node.add_attribute();
      axis->set_name("axis");
      axis->set_type(onnx::AttributeProto::INT);
      axis->set_i(0);
    }
    return node.output(0);
  }

  std::string Constant(int64_t number, bool scalar) {
    const std::string name = Node("Constant", {});
    auto* value = made_.back().add_attribute();
    value->set_name("value");
    value->set_type(onnx::AttributeProto::TENSOR);
    value->mutable_t()->set_data_type(TensorProto::INT64);
    if (!scalar) value->mutable_t()->add_dims(1);
    value->mutable_t()->add_int64_data(number);
    return name;
  }

  // Declares a leading axis of extent 1 for an input or output of the graph, and adds the node that
  // removes it from the input or adds it to the output.
  absl::Status AddAxis(const std::string& name, bool input) {
    ValueInfoProto* end = Find(input ? graph_.mutable_input() : graph_.mutable_output(), name);
    if (end == nullptr || !end->type().tensor_type().has_shape()) {
      return absl::FailedPreconditionError(
          fmt::format("{} is no {} of the source with a shape", name, input ? "input" : "output"));
    }
    const std::string inside = Fresh("inside");
    for (NodeProto& node : *graph_.mutable_node()) {
      KV_RETURN_IF_ERROR(RenameValues({{name, inside}}, &node));
    }
    if (input) {
      Node("Gather", {name, Constant(0, true)}, inside);
    } else {
      const std::string shape = Node("Concat", {Constant(1, false), Node("Shape", {inside})});
      Node("Reshape", {inside, shape}, name);
    }
    auto* shape = end->mutable_type()->mutable_tensor_type()->mutable_shape();
    onnx::TensorShapeProto longer;
    longer.add_dim()->set_dim_value(1);
    for (const auto& dim : shape->dim()) *longer.add_dim() = dim;
    *shape = std::move(longer);
    return absl::OkStatus();
  }

  const NodeProto* FirstJoined() const {
    const auto at =
        std::find_if(graph_.node().begin(), graph_.node().end(), [](const NodeProto& node) {
          return IsKeyValueCache(node) && JoinsSequences(node.domain()) && node.input_size() > 0;
        });
    return at == graph_.node().end() ? nullptr : &*at;
  }

  // Returns the KeyValueCache that reads a dropped input; null if there is none.
  const NodeProto* ReaderOf(const std::string& name) const {
    for (const NodeProto& node : graph_.node()) {
      if (!IsKeyValueCache(node) || !JoinsSequences(node.domain())) continue;
      const auto& inputs = node.input();
      if (std::find(inputs.begin(), inputs.end(), name) != inputs.end()) return &node;
    }
    return nullptr;
  }

  absl::Status Compute(const DroppedInput& dropped) {
    const NodeProto* reader = ReaderOf(dropped.name);
    auto& inputs = *graph_.mutable_input();
    const auto at = std::find_if(inputs.begin(), inputs.end(), [&](const ValueInfoProto& input) {
      return input.name() == dropped.name;
    });
    if (reader == nullptr || at == inputs.end()) {
      return absl::FailedPreconditionError(
          fmt::format("{} is no input of the source that tells of sequences", dropped.name));
    }
    const DroppedValue given = std::get<DroppedValue>(dropped.given);
    const KeyValueCacheSlots slots = KeyValueCacheSlots::Of(*reader);
    // Without an input that is as long as the new rows, their number is read from the key operand.
    const InputExtent extent =
        rows_.value_or(InputExtent{reader->input(KeyValueCacheSlots::kKey), 0});
    std::string rows =
        Node("Gather", {Node("Shape", {extent.input}), Constant(extent.axis, false)});
    if (given == DroppedValue::kStartsOfAllRows || given == DroppedValue::kMostRows) {
      rows = Node("Add", {reader->input(slots.start), rows});
    }
    if (given == DroppedValue::kFirstSlot) {
      Node("Identity", {Constant(0, false)}, dropped.name);
    } else if (given == DroppedValue::kMostNewRows || given == DroppedValue::kMostRows) {
      Node("Gather", {rows, Constant(0, at->type().tensor_type().shape().dim_size() == 0)},
           dropped.name);
    } else {
      Node("Concat", {Constant(0, false), rows}, dropped.name);
    }
    inputs.erase(at);
    return absl::OkStatus();
  }

  ModelProto* model_;
  onnx::GraphProto& graph_;
  std::optional<InputExtent> rows_;  // an input's axis that is as long as the new rows
  std::vector<NodeProto> made_;
  int count_ = 0;
};

// Returns what a dropped input holds in a step of `added` new rows behind `past` old ones.
exec::Tensor ValueOf(const DroppedInput& dropped, int64_t past, int64_t added, bool scalar) {
  std::vector<int64_t> numbers = {0};
  if (IsGiven(dropped, DroppedValue::kStartsOfNewRows)) numbers = {0, added};
  if (IsGiven(dropped, DroppedValue::kStartsOfAllRows)) numbers = {0, past + added};
  if (IsGiven(dropped, DroppedValue::kMostNewRows)) numbers = {added};
  if (IsGiven(dropped, DroppedValue::kMostRows)) numbers = {past + added};
  const exec::Shape shape =
      scalar ? exec::Shape{} : exec::Shape{static_cast<int64_t>(numbers.size())};
  return exec::Tensor::From<int64_t>(TensorProto::INT64, shape, numbers);
}

template <typename Values>
void RemoveAxis(const std::string& name, Values* values) {
  const auto at = values->find(name);
  if (at == values->end() || at->second.shape().empty()) return;
  exec::View inside = at->second.view();
  inside.shape.erase(inside.shape.begin());
  at->second = exec::Tensor::Wrap(inside, at->second.storage());
}

}  // namespace

bool LacksSequences(const Manifest& relation) {
  return std::any_of(relation.caches.begin(), relation.caches.end(),
                     [](const ManifestCache& cache) { return LacksSequences(cache); });
}

bool TellsOfSequences(const DroppedInput& dropped) {
  const auto* given = std::get_if<DroppedValue>(&dropped.given);
  if (given == nullptr) return false;
  switch (*given) {
    case DroppedValue::kStartsOfNewRows:
    case DroppedValue::kStartsOfAllRows:
    case DroppedValue::kFirstSlot:
    case DroppedValue::kMostNewRows:
    case DroppedValue::kMostRows:
      return true;
    case DroppedValue::kPositions:
    case DroppedValue::kWithPast:
    case DroppedValue::kWithoutPast:
    case DroppedValue::kNotRead:
      break;
  }
  return false;
}

absl::StatusOr<Adapted> AddSequences(const Model& before, const Manifest& relation) {
  Adapted out{before, relation};
  auto proto = std::shared_ptr<ModelProto>(new ModelProto(*before.proto),
                                           // The copy refers to weights of the original.
                                           [keep = before.proto](ModelProto* p) { delete p; });
  KV_RETURN_IF_ERROR(SequenceAdder(proto.get()).Run(&out.relation));
  out.before.proto = std::move(proto);
  return out;
}

void RemoveSequences(const Model& before, const Manifest& relation, VerifyReport* report) {
  if (!report->counterexample || report->counterexample->past.empty()) return;
  Counterexample& found = *report->counterexample;
  for (ReplayStep& step : found.before_steps) {
    std::set<std::string> inputs, outputs;
    for (const ManifestCache& cache : relation.caches) {
      if (!LacksSequences(cache)) continue;
      inputs.insert(cache.source.input);
      outputs.insert(cache.source.output);
    }
    for (const std::string& name : inputs) RemoveAxis(name, &step.feeds);
    for (const std::string& name : outputs) RemoveAxis(name, &step.fetches);
    for (const DroppedInput& dropped : relation.dropped) {
      if (!TellsOfSequences(dropped)) continue;
      const auto& all = before.proto->graph().input();
      const auto at = std::find_if(all.begin(), all.end(), [&](const ValueInfoProto& input) {
        return input.name() == dropped.name;
      });
      const bool scalar = at != all.end() && at->type().tensor_type().shape().dim_size() == 0;
      step.feeds[dropped.name] = ValueOf(dropped, found.past[0], found.new_tokens, scalar);
    }
  }
}

}  // namespace kvlift
