// The part of a mutant that can give anything else than the model it was made of: the nodes that
// differ and all that depends on them, in the same step or, through a cache, in later ones. What
// stands in front of it is recorded once and fed, so that a mutant of one layer costs that layer
// and not the model.
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
#include "verify/drive.h"

namespace kvlift {

struct Tail {
  Manifest relation;  // of what is left of the inputs, outputs and caches
  std::vector<NodeId> nodes;
  std::vector<std::string> fed;  // values that the model computes in front
};

// Of a mutant that differs in nodes and constants only. Nothing if it is more than the given share
// of the nodes. A cache that it reads is written in it, too: no step's buffers need recording.
std::optional<Tail> FindTail(const Graph& model, const Graph& mutant, const Manifest& relation,
                             double most);

// What a model computes in the steps of records.
class Prelude {
 public:
  Prelude(const Driver& driver, Runner& model, const Manifest& relation)
      : driver_(driver), model_(model), relation_(relation) {}

  // The values by step; nothing if the model does not give each of them in every step.
  std::optional<std::vector<exec::Feeds>> Of(const Record& record,
                                             const std::vector<std::string>& names);

 private:
  // By record and value: the tensor of each step.
  using Values = std::map<std::string, std::vector<exec::Tensor>>;
  void Run(const Record& record, const std::vector<std::string>& names, Values* values);

  const Driver& driver_;
  Runner& model_;
  const Manifest& relation_;
  std::map<const Record*, Values> values_;
};

// The model of a tail; the types of what it is fed are those of a step's `feeds`.
std::shared_ptr<const onnx::ModelProto> BuildTail(const Graph& mutant, const Tail& tail,
                                                  const exec::Feeds& feeds);

}  // namespace kvlift
