// Reads the arithmetic between the product q k^T and the softmax of an attention, in whatever order
// it is written.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "ir/graph.h"
#include "rewrite/types/rule.h"
#include "sym/forms/forms.h"

namespace kvlift {

// The element types (onnx TensorProto::DataType) to which casts round a value on its way. Casts
// that keep every number are not listed.
using Roundings = std::vector<int32_t>;
// Returns true if every number of `type` is a number of all these types, so that the casts round no
// more than a computation in `type` does.
bool KeepsNumbersOf(int32_t type, absl::Span<const int32_t> roundings);

// Returns the operand that a node passes on element by element as floating-point numbers: that of
// Identity, of Dropout outside training and of casts between floating-point types, whose rounding
// is appended to `roundings`. Returns kNoValue for all other nodes.
ValueId HandedOn(sym::Forms& forms, NodeId node, Roundings* roundings);

// A value as factor * element, where multiplications and divisions by constant scalars are removed.
struct Scaled {
  // The state after some of the nodes are removed.
  struct Stage {
    sym::Expr element = nullptr;
    double factor = 1.0;   // the product of the removed factors
    size_t roundings = 0;  // how many of Scaled::roundings are removed
  };
  double factor = 1.0;
  sym::Expr element = nullptr;  // null if the given one was null
  Roundings roundings;
  std::vector<NodeId> nodes;  // the removed nodes, the last one of the graph first
  std::vector<Stage> stages;  // before the first node, and after each node
};
Scaled RemoveScale(sym::Forms& forms, sym::Expr element, const sym::Facts& facts);

// softcap(factor * product) + biases + mask, read from the element of the softmax's operand. The
// mask may also be added or selected before the multiplication by a factor.
struct Score {
  NodeId product = kNoNode;             // see ReadProduct; its alpha is in `factor`
  std::vector<sym::Expr> product_args;  // the indices at which the product is read
  double factor = 1.0;                  // before the softcap
  double softcap = 0.0;                 // 0: no softcap
  sym::Expr keep = nullptr;             // predicate: the score is not masked
  std::vector<Bias> biases;             // what is added and is not a mask
  sym::Expr bias_keep = nullptr;        // predicate: where it is false, the biases hide the key
  Roundings roundings;                  // between the product and the softmax
  std::vector<NodeId> nodes;            // between the product and the softmax
};

struct ScoreResult {
  std::optional<Score> score;
  std::string why_not;     // without a score: the operator or value that does not fit
  NodeId blame = kNoNode;  // without a score: the node to name
};
ScoreResult ReadScore(sym::Forms& forms, sym::Expr element, const sym::Facts& facts);

// Reads an additive mask: 0 where a key is visible, -inf or a finite minimum elsewhere. Returns the
// predicate that it is 0. Returns null if the element may be any other number; it is a bias then.
// subtracted: the mask is subtracted from scores, so that it hides keys by numbers of 1e4 or more.
sym::Expr ReadAdditiveMask(sym::Pool& pool, sym::Expr mask, bool subtracted = false);

// Returns a predicate that is false only where the element of a bias is so low that it hides the
// key; True if nothing is known.
sym::Expr BiasKeepsKey(sym::Pool& pool, sym::Expr element);

// Returns the element of a node's operand that takes part in output element `args`, under ONNX's
// multidirectional broadcasting. Null if the operand's rank is unknown or above that of the output.
sym::Expr BroadcastOperand(sym::Forms& forms, ValueId operand, absl::Span<const sym::Expr> args,
                           const sym::Facts& facts);

}  // namespace kvlift
