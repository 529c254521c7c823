#include "rewrite/recognise/past_lengths.h"

#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "base/status.h"
#include "fmt/format.h"
#include "sym/sizes/equal_names.h"

namespace kvlift {
namespace {

// The rows of a past that keeps a window.
struct Rows {
  int axis = 0;
  int64_t window = 0;
};

// Returns the graph with other names of sizes, and with what `edit` changes, which returns true if
// it changes anything; null if nothing changes. Copies the model.
absl::StatusOr<std::shared_ptr<const Graph>> Renamed(
    const Graph& graph, const sym::SizeNames& names,
    absl::FunctionRef<bool(onnx::GraphProto*)> edit) {
  auto renamed = std::make_shared<onnx::ModelProto>(graph.model());
  sym::RenameSizes(names, renamed->mutable_graph());
  if (!edit(renamed->mutable_graph()) && names.empty()) return nullptr;
  KV_ASSIGN_OR_RETURN(Graph result, Graph::Build(std::move(renamed)));
  return std::make_shared<const Graph>(std::move(result));
}

// Returns the graph with other names of sizes; null if there are none.
absl::StatusOr<std::shared_ptr<const Graph>> WithNames(const Graph& graph,
                                                       const sym::SizeNames& names) {
  if (names.empty()) return nullptr;
  return Renamed(graph, names, [](onnx::GraphProto*) { return false; });
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Graph>> WithWindowLengths(
    const Graph& graph, absl::Span<const CacheUpdate> updates) {
  absl::flat_hash_map<std::string, Rows> windows;  // by input
  for (const CacheUpdate& update : updates) {
    if (const auto window = update.window()) {
      windows[graph.name(update.pair.past)] = {update.axis, *window};
    }
  }
  if (windows.empty()) return nullptr;
  // The window whose rows a name counts, by name; 0 for names of other sizes.
  absl::flat_hash_map<std::string, int64_t> counted;
  absl::flat_hash_set<std::string> shared;
  for (const onnx::ValueInfoProto& input : graph.proto().input()) {
    const auto found = windows.find(input.name());
    const auto& dims = input.type().tensor_type().shape().dim();
    for (int k = 0; k < dims.size(); ++k) {
      if (dims[k].dim_param().empty()) continue;
      const bool rows = found != windows.end() && found->second.axis == k;
      const int64_t window = rows ? found->second.window : 0;
      const auto [it, fresh] = counted.try_emplace(dims[k].dim_param(), window);
      if (!fresh && it->second != window) shared.insert(dims[k].dim_param());
    }
  }
  if (shared.empty()) return nullptr;
  return Renamed(graph, {}, [&](onnx::GraphProto* renamed) {
    bool any = false;
    for (onnx::ValueInfoProto& input : *renamed->mutable_input()) {
      const auto found = windows.find(input.name());
      if (found == windows.end() || !input.type().tensor_type().has_shape()) continue;
      auto* shape = input.mutable_type()->mutable_tensor_type()->mutable_shape();
      if (found->second.axis >= shape->dim_size()) continue;
      auto* dim = shape->mutable_dim(found->second.axis);
      if (!shared.contains(dim->dim_param())) continue;
      dim->set_dim_param(fmt::format("{} within {}", dim->dim_param(), found->second.window));
      any = true;
    }
    return any;
  });
}

absl::StatusOr<std::shared_ptr<const Graph>> WithOneLength(const Graph& graph,
                                                           absl::Span<const CacheUpdate> updates) {
  struct First {
    const CacheUpdate* update = nullptr;
    std::string name;
  };
  absl::flat_hash_map<int64_t, First> groups;  // by window; 0: all rows are kept
  sym::SizeNames names;
  struct Unnamed {
    int axis = 0;
    std::string name;
  };
  absl::flat_hash_map<std::string, Unnamed> unnamed;  // by input
  for (const CacheUpdate& update : updates) {
    const auto& shape = graph.type(update.pair.past).shape;
    if (!update.grows() || !shape) continue;
    const Dim& rows = (*shape)[update.axis];
    if (rows.value) continue;
    First& first = groups[update.window().value_or(0)];
    if (first.update == nullptr) {
      if (rows.param.empty()) return nullptr;
      first = {&update, rows.param};
    } else if (update.new_length == first.update->new_length && rows.param != first.name) {
      if (rows.param.empty()) {
        unnamed[graph.name(update.pair.past)] = {update.axis, first.name};
      } else {
        names[rows.param] = first.name;
      }
    }
  }
  if (names.empty() && unnamed.empty()) return nullptr;
  return Renamed(graph, names, [&](onnx::GraphProto* renamed) {
    for (onnx::ValueInfoProto& input : *renamed->mutable_input()) {
      const auto found = unnamed.find(input.name());
      if (found == unnamed.end()) continue;
      auto* shape = input.mutable_type()->mutable_tensor_type()->mutable_shape();
      shape->mutable_dim(found->second.axis)->set_dim_param(found->second.name);
    }
    return !unnamed.empty();
  });
}

absl::StatusOr<std::shared_ptr<const Graph>> WithEqualNames(const Graph& graph,
                                                            const sym::Forms& forms) {
  return WithNames(graph, sym::EqualNamesOf(forms));
}

absl::StatusOr<std::shared_ptr<const Graph>> WithRowNames(const Graph& graph, sym::Forms& forms) {
  return WithNames(graph, sym::RowNamesOf(forms));
}

}  // namespace kvlift
