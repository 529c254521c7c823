// Decisions that a rounding error may change, such as which experts a router chooses: the indices
// of TopK, ArgMax and ArgMin, and comparisons of real numbers. Behind a decision that changes,
// outputs differ by far more than by rounding.
//
// In half types the converted model therefore follows the source: where both models compute a
// decision, its readers in the converted model read what the source decided. Its own decision
// becomes an output of its own, so that it can be counted how often the two differ:
//
//   source       scores -> TopK -> values, indices (also an output)
//   converted    scores -> TopK -> indices of its own (an output)
//                scores, indices of the source (an input) -> GatherElements -> values
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "exec/session/session.h"
#include "ir/graph.h"
#include "onnxio/model/model.h"
#include "verify/steps/drive.h"

namespace kvlift {

class Decisions {
 public:
  // Finds the values that the same operator computes under the same name in both models, from the
  // results of matrix products or attentions. Decisions in bodies of If, Loop and Scan, and of
  // models before opset 11, are not found.
  Decisions(const Graph& before, const Graph& after);
  bool empty() const { return all_.empty(); }

  // Returns the model with its decisions as further outputs.
  absl::StatusOr<Model> WithDecisionsAsOutputs(const Model& model) const;
  // Returns the model with its decisions as further outputs, in which the readers of each decision
  // read a graph input in its place.
  absl::StatusOr<Model> Following(const Model& model) const;

  // Returns the feeds that make a model of Following() decide as a model of
  // WithDecisionsAsOutputs() did.
  exec::Feeds FeedsOf(const exec::Fetches& shown) const;
  // Returns these feeds for each step of a record, for all sequences together; nullopt if a
  // decision of one sequence cannot be separated from those of others.
  std::optional<std::vector<exec::Feeds>> FeedsOf(const Record& record) const;
  // Counts the decisions in the outputs of a model of Following() that differ from those that were
  // fed. Decisions of TopK also differ if only the order of their indices does. Steps with padding
  // tokens are left out.
  void Count(const Record& record, const std::vector<exec::Feeds>& fed,
             const std::vector<exec::Fetches>& own);
  int64_t made() const { return made_; }
  int64_t unlike() const { return unlike_; }

 private:
  struct Decision {
    std::string value;  // its name in both models
    int32_t type = 0;   // a TensorProto::DataType
    int64_t axis = -1;  // of TopK: the axis of the indices that are one decision
    bool top_k = false;
  };
  std::string FedName(const Decision& decision) const {
    return "/kvlift/decided/" + decision.value;
  }
  std::string OwnName(const Decision& decision) const { return "/kvlift/own/" + decision.value; }

  std::vector<Decision> all_;
  int64_t made_ = 0, unlike_ = 0;
};

}  // namespace kvlift
