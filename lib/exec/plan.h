// What Compile decides about one graph: the order of the nodes, which caches are written in place,
// and where each value lives. Sizes are not known here; they are found step by step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "exec/kernel.h"
#include "exec/program.h"
#include "exec/timing.h"
#include "ir/graph.h"
#include "onnx/onnx_pb.h"

namespace kvlift::exec {

// Where a value's memory is. `index` of ValuePlan counts within the kind.
enum class Home : uint8_t {
  kNone,      // never produced (no consumer sees it)
  kConstant,  // a tensor of the program
  kInput,     // a graph input: the caller's, or a cache of the session
  kArena,     // the frame's arena
  kEarly,     // a buffer of the frame: computed before the step proper
  kSlot,      // a reused buffer of the frame: shape known during the step only
  kOutput,    // a buffer that is handed to the caller
  kNext,      // the other buffer of a cache pair
  kCache,     // a cache pair's own buffer, written in place
  kView,      // the memory of `root`
  kCall,      // an output buffer of the body of If, Loop or a function
};

struct ValuePlan {
  Home home = Home::kNone;
  int index = -1;
  ValueId root = kNoValue;  // the value whose memory this is; itself unless home is kView
};

// One cache pair, resolved.
struct PairPlan {
  ValueId past = kNoValue;
  ValueId present = kNoValue;
  int input_index = -1;     // among the graph's inputs
  int output_index = -1;    // among the graph's outputs
  NodeId writer = kNoNode;  // set if aliased by an in-place write: the last one
  // What the writers in front of the last one gave it, where several write into one buffer.
  std::vector<ValueId> written;
  NodeId guard = kNoNode;   // guard mode: who would be the first writer, set instead
  NodeId grower = kNoNode;  // a Concat that appends to the past: in place while there is room
  // The grower's blocks of rows may keep room behind them (View::pitch): all readers accept that,
  // provided that the views among `members` keep the last two dims.
  bool apart = false;
  std::vector<ValueId> members;  // if apart: the present and its views
  AliasDecision decision;
};

struct StepPlan {
  NodeId node = kNoNode;
  const OpDef* def = nullptr;  // nullptr for calls (If, Loop, functions)
  int64_t opset = 0;
  Attributes attributes;
  Timing timing = Timing::kPlanned;
  bool inplace = false;   // late: output 0 may take the slot of input def->inplace_input
  int writes_pair = -1;   // writes this pair's cache in place
  int retires_pair = -1;  // guard mode: nobody reads this pair's past any more
  bool poisons = false;   // poison mode: unused rows of the pair it writes are read by nobody
};

struct Plan {
  std::vector<StepPlan> steps;    // in schedule order
  std::vector<ValuePlan> values;  // by ValueId
  std::vector<PairPlan> pairs;
  std::vector<bool> apart;  // by value: it may have a pitch that is known when a step runs only
  int num_slots = 0;
  int num_early = 0;
};

// Version of a node's operator set; 0 if the model does not import it.
int64_t OpsetOf(const onnx::ModelProto& model, std::string_view domain);

// InvalidArgument if a pair names no graph input or output, or one twice. `defs` has one entry per
// node, nullptr for calls and constants.
absl::StatusOr<std::vector<PairPlan>> ResolvePairs(const Graph& graph,
                                                   absl::Span<const CachePair> caches);
// Fills the decisions of `pairs` and returns the order of the nodes that keeps them safe.
std::vector<NodeId> Schedule(const Graph& graph, absl::Span<const OpDef* const> defs,
                             AliasMode mode, std::vector<PairPlan>& pairs);
// `constants` has one entry per value, nullptr where it is computed or fed. `timing` is by node.
Plan MakePlan(const Graph& graph, absl::Span<const OpDef* const> defs,
              absl::Span<const onnx::TensorProto* const> constants, absl::Span<const Timing> timing,
              const std::vector<NodeId>& order, std::vector<PairPlan> pairs);

}  // namespace kvlift::exec
