#include "reduce/edits.h"

#include <utility>

#include "base/status.h"

namespace kvlift {

absl::StatusOr<Subject> EditEach(
    const SubjectGraphs& graphs,
    const std::function<absl::StatusOr<onnx::ModelProto>(const Graph& graph)>& edit) {
  Subject result = graphs.subject();
  KV_ASSIGN_OR_RETURN(onnx::ModelProto before, edit(graphs.before()));
  result.model = WithProto(result.model, std::move(before));
  if (!result.is_pair()) return result;
  KV_ASSIGN_OR_RETURN(onnx::ModelProto after, edit(graphs.after()));
  result.conversion->model = WithProto(result.conversion->model, std::move(after));
  return result;
}

}  // namespace kvlift
