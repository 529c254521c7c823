// A graph compiled for execution: the order of its nodes, their kernels, memory, and which caches
// are updated in place. It is compiled once and run by any number of sessions.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "exec/compile/compile_options.h"
#include "exec/memory/tensor.h"
#include "ir/graph.h"

namespace kvlift::exec {

class Program {
 public:
  // Returns Unimplemented for an operator without kernel and function body (naming operator,
  // version and node) or of an unknown newer operator set; FailedPrecondition if alias is kRequired
  // and a pair is not safe; InvalidArgument for wrong numbers of operands, bad tensors or cache
  // pairs; ResourceExhausted without memory.
  static absl::StatusOr<std::shared_ptr<const Program>> Compile(std::shared_ptr<const Graph> graph,
                                                                const CompileOptions& options);
  ~Program();

  // Returns the graph that runs: the compiled one, with sequences lowered (sequences.h) and chains
  // fused (fusing.h).
  const Graph& graph() const;
  absl::Span<const AliasDecision> aliasing() const;
  const CompileOptions& options() const;

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  Program();
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvlift::exec
