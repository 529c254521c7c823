// Reads the arithmetic around an attention's scores, whatever order it was written in.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "ir/graph.h"
#include "rewrite/rule.h"
#include "sym/forms.h"

namespace kvlift {

// The element types (onnx TensorProto::DataType) that casts round a value to on its way; casts that
// keep every number are not among them.
using Roundings = std::vector<int32_t>;
// Every number of `type` survives all of them: they round no more than computing in `type` does.
bool KeepsNumbersOf(int32_t type, absl::Span<const int32_t> roundings);

// The operand of a node that hands it on element by element as floating-point numbers: Identity,
// Dropout outside training, and casts between floating-point types, whose rounding is appended to
// `roundings`. kNoValue for all other nodes.
ValueId HandedOn(sym::Forms& forms, NodeId node, Roundings* roundings);

// factor * element, with multiplications and divisions by scalars peeled off.
struct Scaled {
  // What is left when some of the nodes are peeled off.
  struct Stage {
    sym::Expr element = nullptr;
    double factor = 1.0;   // of the nodes that were peeled off
    size_t roundings = 0;  // as many of Scaled::roundings were peeled off
  };
  double factor = 1.0;
  sym::Expr element = nullptr;
  Roundings roundings;
  std::vector<NodeId> nodes;  // that were peeled off
  std::vector<Stage> stages;  // one per node, behind the one of the whole
};
Scaled PeelScale(sym::Forms& forms, sym::Expr element, const sym::Facts& facts);

// MatMul, or FusedMatMul of com.microsoft: alpha * a b with the last axes of a or b swapped first.
struct Product {
  bool trans_a = false, trans_b = false;
  double alpha = 1.0;
};
std::optional<Product> ReadProduct(const Graph& graph, NodeId node);

// softcap(factor * product) + biases + mask, read from the element of the softmax's operand. The
// mask may also be added or selected in front of the factor.
struct Score {
  NodeId product = kNoNode;             // see ReadProduct; its alpha is in factor
  std::vector<sym::Expr> product_args;  // the element of it that is meant
  double factor = 1.0;                  // before the softcap
  double softcap = 0.0;                 // 0: none
  sym::Expr keep = nullptr;             // predicate: the score is not masked
  std::vector<Bias> biases;             // anything but masks
  sym::Expr bias_keep = nullptr;        // what is known of them: they do not hide the key
  bool finite_minimum = false;
  Roundings roundings;  // between the product and the softmax
  std::vector<NodeId> nodes;
};

struct ScoreResult {
  std::optional<Score> score;
  std::string why_not;  // what stands where the form needs something else
  NodeId blame = kNoNode;
};
ScoreResult ReadScore(sym::Forms& forms, sym::Expr element, const sym::Facts& facts);

// The predicate under which an additive mask leaves a score alone (0 against -inf or a finite
// minimum). nullopt if the mask is anything else: a bias.
struct KeepPredicate {
  sym::Expr keep = nullptr;
  bool finite_minimum = false;
};
std::optional<KeepPredicate> ReadAdditiveMask(sym::Pool& pool, sym::Expr mask);

// The predicate under which an element is not the minimum that a mask puts there; True if nothing
// is known.
sym::Expr KeptWhere(sym::Pool& pool, sym::Expr element);

// The element of a node's operand that takes part in output element `args`, under ONNX's
// multidirectional broadcasting. Null if a rank is unknown.
sym::Expr BroadcastOperand(sym::Forms& forms, ValueId operand, absl::Span<const sym::Expr> args,
                           const sym::Facts& facts);

}  // namespace kvlift
