#include "proof/prove/unrestricted_source.h"

#include <utility>

#include "base/status.h"
#include "proof/graphs/frozen_sizes.h"

namespace kvlift {

absl::StatusOr<std::unique_ptr<UnrestrictedSource>> UnrestrictedSource::Create(
    ExpandedModel source, const onnx::ModelProto& after, const Manifest& relation,
    const SourceCase& steps) {
  auto open = std::unique_ptr<UnrestrictedSource>(new UnrestrictedSource);
  open->source_ = std::move(source);
  open->result_ = WithOpenSizes(after, relation);
  KV_ASSIGN_OR_RETURN(GraphPair pair,
                      GraphPair::Create(open->source_.model, open->result_, relation));
  open->pair_.emplace(std::move(pair));
  open->twins_.emplace(*open->pair_, relation, open->source_.claims, steps);
  open->equality_.emplace(open->pair_->forms());
  return open;
}

}  // namespace kvlift
