// Fills a Graph from a ModelProto; used by Graph::Build only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ir/graph.h"

namespace kvlift {

class GraphBuilder {
 public:
  explicit GraphBuilder(std::shared_ptr<const onnx::ModelProto> model);
  absl::StatusOr<Graph> Build();

 private:
  struct Pending {  // a node before sorting, in file order
    Graph::NodeEntry entry;
    std::vector<int> readers;  // nodes that wait for this one, once per operand or capture
    int waits_for = 0;
  };

  absl::Status FindOpset();
  absl::Status AddInputsAndInitializers();
  absl::Status AddNodeOutputs();
  absl::Status AddGraphOutputs();
  absl::Status ResolveOperands();
  absl::Status ResolveConstant(ValueId value, const onnx::NodeProto& node);
  void AddDeclaredTypes();
  absl::Status SortNodes();
  absl::Status CycleError(const std::vector<bool>& done) const;
  void AddUses();

  // Returns kNoValue if the name is taken.
  ValueId NewValue(const std::string& name);
  // Returns InvalidArgument (KV024) if nothing defines the name.
  absl::StatusOr<ValueId> Resolve(std::string_view name, const onnx::NodeProto& reader) const;

  Graph graph_;
  std::vector<Pending> pending_;
};

}  // namespace kvlift
