// Reads what an attention computes, for read_attention.h. Internal to lib/proof/reading.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proof/graphs/attention_reading.h"
#include "proof/graphs/matrix_products.h"
#include "proof/lemmas/exact_cast.h"
#include "proof/lemmas/short_mask.h"
#include "sym/forms/forms.h"

namespace kvlift::internal {

// The most steps that are followed back from an operand to the values that it is made of.
inline constexpr int kMostSteps = 64;

class AttentionReader {
 public:
  AttentionReader(sym::Forms& forms, int64_t heads)
      : forms_(forms), graph_(forms.graph()), pool_(forms.pool()), heads_(heads) {}

  AttentionReading Run(ValueId result);

 private:
  bool Fail(std::string why);

  std::optional<MatrixProduct> ProductOf(NodeId n) const { return ReadMatrixProduct(graph_, n); }
  bool IsRank(const sym::Form& form) const;

  // The indices of the batch and head axes in a value of this rank, for sequence i0 and head i1.
  std::vector<sym::Expr> Front(size_t rank);

  // The indices of element i0, i1, i2, `last` in a value of this rank.
  std::vector<sym::Expr> Here(size_t rank, sym::Expr last);

  // The element in row r and column c of a matrix operand of this rank; `turned`: the operand is
  // transposed.
  sym::Expr Cell(ValueId v, size_t rank, sym::Expr r, sym::Expr c, bool turned);

  // The element of an operand that is broadcast to `args`.
  sym::Expr At(ValueId v, absl::Span<const sym::Expr> args);

  struct Factored {
    sym::Expr element = nullptr;
    double factor = 1;
    FactorRange range;
  };

  // The element that e passes on exactly; null if e is anything else.
  sym::Expr Passed(sym::Expr e) { return BeforeExactCast(forms_, e, r_.extents, &r_.grounds); }

  // An expression without its last step.
  struct Peeled {
    sym::Expr element = nullptr;       // null: the step is no multiplication and no exact cast
    std::optional<Multiplication> by;  // absent: the step is a cast
  };

  // Removes the last step of e: a multiplication or division by a number, or an exact cast.
  Peeled WithoutStep(sym::Expr e);
  Factored Peel(sym::Expr e);

  // Hides all keys for which `where` does not hold.
  void See(sym::Expr where, const std::set<double>& hidden_by);

  // Finds the softmax that the element e of the second product's left operand comes from, and
  // returns the operand of that softmax. Sets `where` to the indices of the softmax's element. `to`
  // is the type (TensorProto::DataType) of the second product. Returns kNoValue if e comes from no
  // softmax.
  ValueId FindScores(sym::Expr e, int32_t to, std::vector<sym::Expr>* where);

  // If e is a weight that was masked behind the softmax: hides the keys that the mask hides, and
  // returns the weight in front of the mask.
  std::optional<sym::Expr> WithoutRenormalising(sym::Expr e);

  // Returns x without the maximum of its row that is subtracted from all scores of the row; x
  // itself if none is.
  ValueId WithoutMaximum(ValueId x);

  // Returns true if a softmax of x has one score for each key, of which the one at `where` is that
  // of key i3, and perhaps one of a sink, which is read.
  bool IsOverKeys(ValueId x, absl::Span<const sym::Expr> where);

  // Reads from the softmax's operand back to the first product: masks, selections and factors.
  bool ReadScores(sym::Expr e);

  // Fails, and returns false, if anything but a positive scale follows a mask on the way to the
  // softmax.
  bool MaskFits();
  sym::Expr WithoutSelection(sym::Expr e);
  sym::Expr WithoutMask(NodeId n, sym::Expr e);
  // Removes Max(score, m) with a number m that hides keys: no visible score is as low as m, and a
  // hidden one becomes m at the least. Returns the score; null if n is another maximum.
  sym::Expr WithoutLowest(NodeId n, sym::Expr e);
  bool LeadsToProduct(sym::Expr e, int depth);

  // Reads a summand of the scores: where it hides a key, and its value elsewhere.
  bool AddBias(sym::Expr e);
  bool ReadFirstProduct(NodeId n, sym::Expr e);

  // Compares indices; on an axis of extent 1 the index is 0.
  bool SamePlace(absl::Span<const sym::Expr> args, absl::Span<const sym::Expr> here) const;
  bool ReadProducts(NodeId node);
  ValueId Input(NodeId node, size_t k) const;

  // The shape of an operator's operand as [B, N, S, D]; `joined` if it is given as [B, S, N * D].
  struct OperandShape {
    std::vector<sym::Expr> shape;
    bool joined = false;
  };

  // `heads` is 0 if the operator does not give the number. For operands of rank 4 it has to equal
  // their own.
  std::optional<OperandShape> ByHeads(ValueId v, int64_t heads);
  sym::Expr Element(ValueId v, absl::Span<const sym::Expr> at, const OperandShape& form);

  // Returns true if the node has no attributes but those of Attention-24 that are read, and
  // qk_matmul_output_mode, which only chooses another output.
  bool HasKnownAttributes(NodeId node) const;
  bool ReadOperator(NodeId node);

  // Returns true if the valid lengths of an operator are not given, or are the number of its keys.
  bool CountsAllKeys(ValueId valid);

  // Returns true if the last key of an operator is that of a sink, and sets has_sink_key_.
  bool HasSinkKey(NodeId node, sym::Expr key_head, const OperandShape& k, const OperandShape& v);

  // Reads the score of the sink, if there is one, from the last column of the operator's mask.
  bool ReadSinkColumn(ValueId mask, const MaskShape& shape, sym::Expr last);

  // The length of an operator's own past; null if it is not read.
  sym::Expr PastOf(NodeId node);

  // The element of keys or values with the past in front of the new rows.
  sym::Expr BehindPast(ValueId past, ValueId news, sym::Expr length, std::vector<sym::Expr> at,
                       const OperandShape& form);
  bool ReadVisible(NodeId node, sym::Expr queries, sym::Expr past);

  sym::Forms& forms_;
  const Graph& graph_;
  sym::Pool& pool_;
  int64_t heads_;
  int64_t group_ = 1;          // G of operands of rank 5, [B, N / G, G, S, D]
  bool has_sink_key_ = false;  // the last key of an operator is that of a sink
  AttentionReading r_;
  // The multiplications of the scores, from the softmax back to the product or the tanh.
  std::vector<Multiplication> factors_;
};

}  // namespace kvlift::internal
