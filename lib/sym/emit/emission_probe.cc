#include "sym/emit/emission_probe.h"

#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"

namespace kvlift::sym {

EmissionProbe::Trial::Trial(const EmissionProbe& probe) : emitter(probe.forms_, nodes) {
  for (const auto& [dim, per_sequence] : probe.dims_) {
    emitter.BindDim(dim, {fmt::format("/probe/{}", dim.name()), per_sequence});
  }
  for (const auto& [source, wide_axes] : probe.sources_) {
    emitter.BindSource(source, {probe.forms_.graph().name(source), wide_axes});
  }
}

absl::Status EmissionProbe::Dim(Expr e) const { return Trial(*this).emitter.Dim(e).status(); }

absl::Status EmissionProbe::Tensor(const Emitter::Request& request) const {
  return Trial(*this).emitter.Tensor(request).status();
}

bool EmissionProbe::IsPerSequence(Expr e) const { return Trial(*this).emitter.IsPerSequence(e); }

std::vector<ValueId> EmissionProbe::InputsOfDim(Expr e) const {
  Trial trial(*this);
  if (!trial.emitter.Dim(e).ok()) return {};
  return InputsReadBy(&trial.nodes);
}

std::vector<ValueId> EmissionProbe::InputsOf(const Emitter::Request& request) const {
  Trial trial(*this);
  const auto value = trial.emitter.Tensor(request);
  if (!value.ok()) return {};
  std::vector<ValueId> inputs = InputsReadBy(&trial.nodes);
  const ValueId itself = forms_.graph().Find(*value);
  if (itself != kNoValue && forms_.graph().is_graph_input(itself)) inputs.push_back(itself);
  return inputs;
}

std::vector<ValueId> EmissionProbe::InputsReadBy(NodeBuilder* nodes) const {
  std::vector<ValueId> inputs;
  absl::flat_hash_set<std::string> made;
  for (const onnx::NodeProto& node : nodes->TakeNodes()) {
    for (const std::string& name : node.input()) {
      const ValueId v = made.contains(name) ? kNoValue : forms_.graph().Find(name);
      if (v != kNoValue && forms_.graph().is_graph_input(v)) inputs.push_back(v);
    }
    made.insert(node.output().begin(), node.output().end());
  }
  return inputs;
}

}  // namespace kvlift::sym
