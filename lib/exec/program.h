// A graph compiled for execution: schedule, kernels, buffer slots, and which caches may be updated
// in place. Compiled once, run by any number of sessions.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "exec/tensor.h"
#include "ir/graph.h"

namespace kvlift::exec {

// Auto: in place where that is proved safe. Required: or Compile fails. Guard and poison check the
// proofs as steps run (alias_modes.h): with equal results, but for rows of a cache that hold no
// tokens in poison mode.
enum class AliasMode { kAuto, kOff, kRequired, kGuard, kPoison };
enum class Order { kCanonical, kFast };

// An input and the output that becomes its value in the next step.
struct CachePair {
  std::string input, output;
};

struct CompileOptions {
  std::vector<CachePair> caches;
  AliasMode alias = AliasMode::kAuto;
  Order order = Order::kCanonical;
  int threads = 0;       // 0: as the machine has
  std::string base_dir;  // of external data
  // Rearrange constant weights for faster products, with equal bits. Takes the time of reading all
  // of them; not for programs that run a few small steps only.
  bool pack_weights = true;
  // Nobody reads the weights of the graph's model after Compile: those of which only the packed
  // form is used are taken out of it, one after the other, so that they are not held twice.
  bool give_up_weights = false;
  // Join chains of operators on rows (fusing.h), with equal bits. An observer then sees the joined
  // nodes.
  bool fuse = false;
  // A step's fetches hold the caches too. Without, they are had by Session::Cache only, and a cache
  // that grows by Concat may keep room behind each of its heads, to be appended to in place.
  bool fetch_caches = true;
  // Runs operators by the function body that ONNX defines, where there is one, not by their kernel.
  bool bodies = false;
};

// Whether a pair shares one buffer, and why not. Safe needs: the past is read only by its one
// writer and by nodes that can be scheduled before it, no view of it escapes, it is no graph
// output, and the writer's result is the pair's output.
struct AliasDecision {
  CachePair pair;
  bool aliased = false;
  std::string reason;                // "safe", or what forbids it
  std::vector<std::string> readers;  // nodes that read the past besides the writer
};

class Program {
 public:
  // Unimplemented names operator, version and node for an operator without kernel or function
  // body. FailedPrecondition if alias is kRequired and a pair is not safe (names the reader).
  static absl::StatusOr<std::shared_ptr<const Program>> Compile(std::shared_ptr<const Graph> graph,
                                                                const CompileOptions& options);
  ~Program();

  // The graph that runs: the compiled one, with sequences lowered (sequences.h) and chains fused.
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
