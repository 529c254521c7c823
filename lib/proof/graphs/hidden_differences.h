// Tells whether a number in which two models differ must show in an output. It need not: operators
// may pass on none of an operand's numbers (a bound that is never reached), give one result for
// several numbers (Floor), or read some rows of a table only.
#pragma once

#include "absl/container/flat_hash_set.h"
#include "ir/graph.h"
#include "proof/graphs/pair.h"

namespace kvlift {

// Returns true if results of the node may be the same for other numbers in an operand, whatever is
// fed.
bool MayHideNumbers(const onnx::NodeProto& node);

// Returns true if the node reads a part of its first operand, and no input of the model chooses
// which part: rows may then stay unread, whatever is fed.
bool MayLeaveRowsUnread(const GraphPair& pair, NodeId node);

// Returns the nodes of the converted model from which a path leads to `output`, on which all values
// are floating-point numbers and no operator hides numbers. Differences in what these nodes compute
// show in the output unless they cancel each other.
absl::flat_hash_set<NodeId> NodesThatShowIn(const GraphPair& pair, ValueId output);

}  // namespace kvlift
