// The decisions of Compile about one graph: the order of the nodes, which caches are written in
// place, and where each value lives. Sizes are not known here; they are found in each run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "exec/compile/compile_options.h"
#include "exec/compile/timing.h"
#include "exec/kernels/common/kernel.h"
#include "ir/graph.h"
#include "onnx/onnx_pb.h"

namespace kvlift::exec {

// The kind of memory that holds a value. ValuePlan::index counts within the kind.
enum class Home : uint8_t {
  kNone,      // never produced, and never read
  kConstant,  // a constant of the program
  kInput,     // a graph input: memory of the caller, or a cache of the session
  kArena,     // the frame's arena
  kEarly,     // a buffer of the frame, for values that are computed early (timing.h)
  kSlot,      // a reused buffer of the frame, for values whose shape is known during the step only
  kOutput,    // a buffer that is handed to the caller
  kNext,      // the second buffer of a cache pair
  kCache,     // the buffer of a cache pair, written in place
  kView,      // the memory of `root`
  kCall,      // an output buffer of the body of If, Loop, Scan or a function
};

struct ValuePlan {
  Home home = Home::kNone;
  // Number of the constant, graph input, early buffer, slot, graph output or cache pair; -1: not
  // used.
  int index = -1;
  ValueId root = kNoValue;  // the value whose memory this is; itself unless home is kView
};

// One cache pair, with the decision about it.
struct PairPlan {
  ValueId past = kNoValue;
  ValueId present = kNoValue;
  int input_index = -1;   // position among the graph's inputs
  int output_index = -1;  // position among the graph's outputs
  // The last node that writes the cache in place; kNoNode: the present goes to another buffer.
  NodeId writer = kNoNode;
  // Results of the in-place writers before `writer`, where several nodes write one buffer in turn.
  std::vector<ValueId> written;
  // Guard mode: the node that would be the first writer. `writer` is then kNoNode.
  NodeId guard = kNoNode;
  // A Concat that appends new rows behind the past, in place while there is room; kNoNode: not so.
  NodeId grower = kNoNode;
  // The present may have a pitch (View::pitch), so that new rows fit behind the rows of each head
  // (pitched_caches.h). In a run this holds if all `members` have the same last two dimensions.
  bool apart = false;
  std::vector<ValueId> members;  // if apart: the present and its views
  AliasDecision decision;
};

struct StepPlan {
  NodeId node = kNoNode;
  const OpDef* def = nullptr;  // nullptr for calls (If, Loop, Scan, functions)
  // Version of the node's operator set.
  int64_t opset = 0;
  Attributes attributes;
  Timing timing = Timing::kPlanned;
  bool inplace = false;  // late steps: output 0 may take the slot of input def->inplace_input
  int writes_pair = -1;  // the pair whose cache it writes in place; -1: no pair
  // Guard mode: the pair whose past must not be read afterwards; -1: no pair.
  int retires_pair = -1;
  bool poisons = false;  // poison mode: fill the unused rows of that cache with NaN first
};

struct Plan {
  std::vector<StepPlan> steps;    // in schedule order
  std::vector<ValuePlan> values;  // by ValueId
  std::vector<PairPlan> pairs;
  std::vector<bool> apart;  // by value: it may have a pitch, which is known only when a step runs
  int num_slots = 0;
  int num_early = 0;
};

// Returns the imported version of an operator set; 0 if the model does not import it. "ai.onnx" is
// the same domain as "".
int64_t OpsetOf(const onnx::ModelProto& model, std::string_view domain);

// Returns the definition of a node's operator. Null if the executor has no kernel for it, or if a
// model-local function defines the operator.
const OpDef* DefOf(const Graph& graph, NodeId n);

// Finds the values of each pair. InvalidArgument if a name is not a graph input or output, or if
// one is used twice.
absl::StatusOr<std::vector<PairPlan>> ResolvePairs(const Graph& graph,
                                                   absl::Span<const CachePair> caches);
// Decides for each pair whether it is written in place (`writer`, `written`, `grower`, `decision`),
// and returns a topological order of the nodes in which the other readers of a past run before its
// writer. `defs` has one entry per node, nullptr for calls and constants.
std::vector<NodeId> Schedule(const Graph& graph, absl::Span<const OpDef* const> defs,
                             AliasMode mode, std::vector<PairPlan>& pairs);
// Assigns a home to each value. `constants` has one entry per value, nullptr where it is computed
// or fed. `timing` is by node, `order` as returned by Schedule.
Plan MakePlan(const Graph& graph, absl::Span<const OpDef* const> defs,
              absl::Span<const onnx::TensorProto* const> constants, absl::Span<const Timing> timing,
              const std::vector<NodeId>& order, std::vector<PairPlan> pairs);

}  // namespace kvlift::exec
