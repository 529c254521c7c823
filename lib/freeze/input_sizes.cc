#include "freeze/input_sizes.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "contract/padding.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "ir/graph.h"
#include "sym/forms/forms.h"

namespace kvlift {
namespace {

using sym::Expr;

Finding Refusal(std::string text, std::vector<std::string> values = {}) {
  return {"KV260", std::move(text), {}, std::move(values)};
}

std::string AxisName(const std::string& input, int64_t axis) {
  return fmt::format("{}.shape[{}]", input, axis);
}

onnx::TensorShapeProto* MutableShape(onnx::ValueInfoProto& value) {
  auto* type = value.mutable_type();
  if (!type->has_tensor_type() || !type->tensor_type().has_shape()) return nullptr;
  return type->mutable_tensor_type()->mutable_shape();
}

class InputSizes {
 public:
  InputSizes(const Graph& graph, const FreezeSizes& sizes, onnx::ModelProto* model,
             Manifest* manifest)
      : graph_(graph), forms_(graph), sizes_(sizes), model_(model), manifest_(manifest) {}

  std::optional<Finding> Run() {
    const std::pair<const char*, Expr> own[] = {{"batch", Sequences()}, {"tokens", Tokens()}};
    std::optional<int64_t> numbers[] = {sizes_.batch, sizes_.tokens};
    for (size_t k = 0; k < std::size(own); ++k) {
      if (!numbers[k]) numbers[k] = NumberByName(own[k].second);
      if (auto refusal = AssignExtent(own[k].first, own[k].second, &numbers[k])) return refusal;
    }
    for (const auto& [name, size] : sizes_.others) {
      if (auto refusal = AssignName(name, size)) return refusal;
    }
    AssignSequences(*numbers[0]);
    for (onnx::ValueInfoProto& input : *model_->mutable_graph()->mutable_input()) {
      if (auto refusal = SetSizes(input)) return refusal;
    }
    manifest_->frozen.emplace();
    manifest_->frozen->batch = *numbers[0];
    manifest_->frozen->tokens = *numbers[1];
    for (const auto& [name, size] : named_) {
      if (used_.contains(name)) manifest_->frozen->dims.push_back({name, size});
    }
    for (const auto& [name, size] : axes_) manifest_->frozen->dims.push_back({name, size});
    return CheckTokens(*numbers[1]);
  }

 private:
  // B: the extent of a control input, or else of the indices that TensorScatter is given. Null if
  // the model has neither.
  Expr Sequences() {
    for (const ManifestInput& input : manifest_->inputs) {
      const ControlInput* control = AsControl(input);
      if (control == nullptr) continue;
      const sym::Form& form = forms_.Of(graph_.Find(input.name));
      for (size_t k = 0; form.known_rank && k < form.shape.size(); ++k) {
        if (k < control->shape.size() && control->shape[k] == "B") return form.shape[k];
      }
    }
    const NodeId scatter = Scatter();
    if (scatter == kNoNode) return nullptr;
    const auto inputs = graph_.inputs(scatter);
    const bool indexed = inputs.size() > 2 && inputs[2] != kNoValue;
    const sym::Form& form = forms_.Of(inputs[indexed ? 2 : 0]);
    return form.known_rank && !form.shape.empty() ? form.shape[0] : nullptr;
  }

  // S: the number of rows that TensorScatter writes.
  Expr Tokens() {
    const NodeId scatter = Scatter();
    if (scatter == kNoNode) return nullptr;
    const sym::Form& rows = forms_.Of(graph_.inputs(scatter)[1]);
    if (!rows.known_rank) return nullptr;
    const auto rank = static_cast<int64_t>(rows.shape.size());
    int64_t axis = IntAttribute(graph_.node(scatter), "axis", -2);
    if (axis < 0) axis += rank;
    return axis >= 0 && axis < rank ? rows.shape[static_cast<size_t>(axis)] : nullptr;
  }

  NodeId Scatter() const {
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (graph_.Is(n, "TensorScatter")) return n;
    }
    return kNoNode;
  }

  // Returns the number that was asked for under another name of an extent: that of a dimension, or
  // INPUT.shape[AXIS].
  std::optional<int64_t> NumberByName(Expr extent) {
    if (extent == nullptr) return std::nullopt;
    for (const ValueId input : graph_.graph_inputs()) {
      const auto& declared = graph_.type(input).shape;
      const sym::Form& form = forms_.Of(input);
      for (size_t k = 0; declared && form.known_rank && k < form.shape.size(); ++k) {
        if (k >= declared->size() || form.shape[k] != extent) continue;
        for (const auto& [name, size] : sizes_.others) {
          if (name == (*declared)[k].param ||
              name == AxisName(graph_.name(input), static_cast<int64_t>(k))) {
            return size;
          }
        }
      }
    }
    return std::nullopt;
  }

  // Gives an extent of the model its number. `number` is the one that was asked for, and then the
  // one that the model has.
  std::optional<Finding> AssignExtent(const std::string& word, Expr extent,
                                      std::optional<int64_t>* number) {
    if (extent != nullptr && extent->kind() == sym::Kind::kInteger) {
      const int64_t own = extent->value();
      if (number->value_or(own) == own) {
        *number = own;
        return std::nullopt;
      }
      return Refusal(
          fmt::format("{}={} is asked for, and the model is made for {}", word, **number, own));
    }
    if (!*number) return Refusal(fmt::format("{0} is not a number yet: assign {0}=N", word));
    const auto origin = extent != nullptr && extent->kind() == sym::Kind::kDim
                            ? forms_.OriginOf(extent->dim())
                            : std::nullopt;
    if (!origin) {
      return Refusal(fmt::format("no input declares the extent that {} is to fix: {}", word,
                                 extent == nullptr ? "it is not seen" : sym::ToString(extent)));
    }
    const std::string& input = graph_.name(origin->input);
    return extent->dim().is_internal() ? Assign(AxisName(input, origin->axis), **number, &axes_)
                                       : Assign(extent->dim().name(), **number, &named_);
  }

  // Caches and masks of the host have B rows, whatever the model calls them: a cache on the axis of
  // its layout, a mask of two axes on the first one.
  void AssignSequences(int64_t batch) {
    for (const ManifestCache& cache : manifest_->caches) {
      AssignRows(cache.input, cache.layout.find('B'), cache.layout.size(), batch);
    }
    for (const ManifestInput& input : manifest_->inputs) {
      const PaddedInput* padded = AsPadded(input);
      if (padded != nullptr && padded->axis == 1) AssignRows(input.name, 0, 2, batch);
    }
  }

  // Gives an axis its number unless it has one, or its name was assigned. Does nothing for an input
  // of another rank, such as a cache whose layout joins axes.
  void AssignRows(const std::string& input, size_t axis, size_t rank, int64_t batch) {
    const auto& shape = graph_.type(graph_.Find(input)).shape;
    if (!shape || shape->size() != rank || axis >= rank || (*shape)[axis].value) return;
    const std::string& name = (*shape)[axis].param;
    if (name.empty()) {
      axes_.try_emplace(AxisName(input, static_cast<int64_t>(axis)), batch);
    } else {
      named_.try_emplace(name, batch);
    }
  }

  static std::optional<Finding> Assign(const std::string& name, int64_t size,
                                       std::map<std::string, int64_t>* known) {
    const auto [it, added] = known->try_emplace(name, size);
    if (added || it->second == size) return std::nullopt;
    return Refusal(fmt::format("{} cannot be both {} and {}", name, it->second, size));
  }

  std::optional<Finding> AssignName(const std::string& name, int64_t size) {
    std::set<std::string> names;
    for (const ValueId input : graph_.graph_inputs()) {
      const auto& shape = graph_.type(input).shape;
      for (size_t k = 0; shape && k < shape->size(); ++k) {
        if (name == AxisName(graph_.name(input), static_cast<int64_t>(k))) {
          return Assign(name, size, &axes_);
        }
        if (!(*shape)[k].param.empty()) names.insert((*shape)[k].param);
      }
    }
    if (names.contains(name)) return Assign(name, size, &named_);
    return Refusal(
        fmt::format("no input of the result declares a dimension {}; its inputs declare {}", name,
                    names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
  }

  // Returns the number of a declared dimension: that of its name, or the sum of those of "a + b".
  std::optional<int64_t> NumberOf(std::string_view text) {
    int64_t sum = 0;
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find('+', begin), text.size());
      std::string_view part = text.substr(begin, end - begin);
      begin = end + 1;
      while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
      while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
      const auto it = named_.find(std::string(part));
      if (it == named_.end()) return std::nullopt;
      used_.insert(it->first);
      sum += it->second;
    }
    return sum;
  }

  std::optional<Finding> SetSizes(onnx::ValueInfoProto& input) {
    onnx::TensorShapeProto* shape = MutableShape(input);
    if (shape == nullptr) {
      return Refusal(fmt::format("the rank of input {} is not declared", input.name()),
                     {input.name()});
    }
    for (int k = 0; k < shape->dim_size(); ++k) {
      auto* dim = shape->mutable_dim(k);
      const auto own = axes_.find(AxisName(input.name(), k));
      if (dim->has_dim_value()) {
        if (own == axes_.end() || own->second == dim->dim_value()) continue;
        return Refusal(fmt::format("{}={} is asked for, and the model is made for {}", own->first,
                                   own->second, dim->dim_value()),
                       {input.name()});
      }
      const auto number = own != axes_.end()         ? std::optional(own->second)
                          : dim->dim_param().empty() ? std::nullopt
                                                     : NumberOf(dim->dim_param());
      if (!number) return Unassigned(input.name(), k, dim->dim_param());
      dim->set_dim_value(*number);
    }
    return std::nullopt;
  }

  Finding Unassigned(const std::string& input, int axis, const std::string& param) const {
    if (!param.empty() && param == manifest_->capacity_dim) {
      return Refusal(
          fmt::format("the capacity of {} is not a number yet: give --max-seq-len N", input),
          {input});
    }
    const bool plain =
        !param.empty() && param.find_first_of("+-*/%() ,=") == std::string_view::npos;
    return Refusal(
        fmt::format("axis {} of input {} is {}: assign {}=N", axis, input,
                    param.empty() ? "not named" : param, plain ? param : AxisName(input, axis)),
        {input});
  }

  // Returns a refusal if the model does not take steps of this many tokens, or if they do not fit
  // into a cache.
  std::optional<Finding> CheckTokens(int64_t tokens) const {
    if (const auto most = manifest_->limits.new_tokens_with_past; most && tokens > *most) {
      return Refusal(
          fmt::format("a step with a past has at most {} new tokens, not {}: a graph for "
                      "{} could never continue a sequence",
                      *most, tokens, tokens));
    }
    for (const ManifestCache& cache : manifest_->caches) {
      for (const onnx::ValueInfoProto& input : model_->graph().input()) {
        const auto& shape = input.type().tensor_type().shape();
        if (input.name() != cache.input || cache.axis >= shape.dim_size()) continue;
        const int64_t slots = shape.dim(static_cast<int>(cache.axis)).dim_value();
        const int64_t room = cache.ring ? slots - cache.ring->window : slots;
        if (tokens <= room) continue;
        return Refusal(
            fmt::format("{} has room for {} new tokens, not for {}", cache.input, room, tokens),
            {cache.input});
      }
    }
    return std::nullopt;
  }

  const Graph& graph_;
  sym::Forms forms_;
  const FreezeSizes& sizes_;
  onnx::ModelProto* model_;
  Manifest* manifest_;
  // Numbers by the name of a dimension, and by "INPUT.shape[AXIS]".
  std::map<std::string, int64_t> named_, axes_;
  std::set<std::string> used_;  // names of dimensions that stand at inputs
};

}  // namespace

absl::StatusOr<std::optional<Finding>> SetInputSizes(const FreezeSizes& sizes,
                                                     onnx::ModelProto* model, Manifest* manifest) {
  KV_ASSIGN_OR_RETURN(const Graph graph,
                      Graph::Build(std::make_shared<const onnx::ModelProto>(*model)));
  return InputSizes(graph, sizes, model, manifest).Run();
}

}  // namespace kvlift
