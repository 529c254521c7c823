// The part of a mutant whose values can differ from the model's: the nodes that were changed and
// all that depends on them, in the same step or, through a cache, in later steps. The values that
// this part reads of other nodes are recorded once from the model and fed, so that running a mutant
// of one layer costs that layer and not the whole model.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contract/manifest.h"
#include "ir/graph.h"
#include "onnx/onnx_pb.h"
#include "verify/steps/drive.h"

namespace kvlift {

struct AffectedPart {
  Manifest relation;             // with the inputs, outputs and caches of the part only
  std::vector<NodeId> nodes;     // of the mutant's graph
  std::vector<std::string> fed;  // values that the part reads and other nodes compute
};

// Returns the part of a mutant that differs from the model in nodes and constants only. nullopt if
// it has more than `most` (0 to 1) of the mutant's nodes, or no output. A cache that the part reads
// is also written in it, so that cache contents need not be recorded.
std::optional<AffectedPart> FindAffectedPart(const Graph& model, const Graph& mutant,
                                             const Manifest& relation, double most);

// Records values that a model computes in the steps of records, and keeps them.
class ValueRecorder {
 public:
  // All arguments must outlive the object.
  ValueRecorder(const Driver& driver, Runner& model, const Manifest& relation)
      : driver_(driver), model_(model), relation_(relation) {}

  // Returns the values for each step of the record; nullopt if the model does not compute each of
  // them once in every step.
  std::optional<std::vector<exec::Feeds>> Of(const Record& record,
                                             const std::vector<std::string>& names);

 private:
  // A value in each step of one record, by name.
  using Values = std::map<std::string, std::vector<exec::Tensor>>;
  void Run(const Record& record, const std::vector<std::string>& names, Values* values);

  const Driver& driver_;
  Runner& model_;
  const Manifest& relation_;
  std::map<const Record*, Values> values_;
};

// Returns the part as a model. feeds: the recorded values of one step, whose types the model
// declares. It shares the weights of the mutant's model and keeps that alive.
std::shared_ptr<const onnx::ModelProto> BuildAffectedPart(const Graph& mutant,
                                                          const AffectedPart& part,
                                                          const exec::Feeds& feeds);

}  // namespace kvlift
