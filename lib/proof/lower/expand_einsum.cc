// The part of Expander that writes an Einsum of two operands as a product of matrices with
// Transposes around it, so that attention is read whatever the order of its axes. Source: the text
// of ONNX's Einsum.
#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "proof/lower/contrib_expander.h"

namespace kvlift::plain {
namespace {

// The label that stands for all axes of an ellipsis, whose number is not known here.
constexpr char kEllipsis = '.';

// The labels of the operands and of the result, without blanks.
struct Equation {
  std::string left, right, result;

  bool HasEllipsis() const { return left.find(kEllipsis) != std::string::npos; }
};

bool IsOfLabels(const std::string& term) {
  std::string sorted = term;
  std::sort(sorted.begin(), sorted.end());
  return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end() &&
         std::all_of(term.begin(), term.end(),
                     [](char label) { return label == kEllipsis || absl::ascii_isalpha(label); });
}

// Reads an explicit equation whose terms have each label once, and an ellipsis in all terms or in
// none; false for others.
bool Read(const std::string& equation_text, Equation* equation) {
  const std::string text =
      absl::StrReplaceAll(equation_text, {{" ", ""}, {"...", std::string(1, kEllipsis)}});
  const std::vector<std::string> sides = absl::StrSplit(text, "->");
  if (sides.size() != 2) return false;
  const std::vector<std::string> operands = absl::StrSplit(sides[0], ',');
  if (operands.size() != 2) return false;
  *equation = {operands[0], operands[1], sides[1]};
  for (const std::string* term : {&equation->right, &equation->result}) {
    if ((term->find(kEllipsis) != std::string::npos) != equation->HasEllipsis()) return false;
  }
  return IsOfLabels(equation->left) && IsOfLabels(equation->right) && IsOfLabels(equation->result);
}

// Returns the labels of `term` that are, or are not, in `other`, in their order.
std::string LabelsOf(const std::string& term, const std::string& other, bool in_other) {
  std::string part;
  for (char label : term) {
    if ((other.find(label) != std::string::npos) == in_other) part += label;
  }
  return part;
}

std::string Turned(const std::string& value, const std::string& from, const std::string& to,
                   const std::string& output, Writer& w) {
  if (from == to && output.empty()) return value;
  if (from.find(kEllipsis) != std::string::npos) {
    onnx::AttributeProto& equation = *w.Node("Einsum", {value}, output).add_attribute();
    equation.set_name("equation");
    equation.set_type(onnx::AttributeProto::STRING);
    equation.set_s(absl::StrReplaceAll(from + "->" + to, {{std::string(1, kEllipsis), "..."}}));
    return w.Name();
  }
  std::vector<int64_t> perm;
  for (char label : to) perm.push_back(static_cast<int64_t>(from.find(label)));
  SetInts(&w.Node("Transpose", {value}, output), "perm", perm);
  return w.Name();
}

}  // namespace

// Where the left operand alone has several labels, such as queries in groups, the last of them is
// that of the matrices' rows; the right operand gets an axis of 1 for each of the others.
bool Expander::Einsum(const onnx::NodeProto& node, Writer& w) {
  Equation e;
  if (!node.domain().empty() || node.input_size() != 2 || node.attribute_size() != 1 ||
      !Read(node.attribute(0).s(), &e)) {
    return false;
  }
  // Several labels of one operand are rows of the left matrix, whichever operand it is.
  const bool swapped =
      LabelsOf(e.right, e.left, false).size() > LabelsOf(e.left, e.right, false).size();
  if (swapped) std::swap(e.left, e.right);
  const std::string shared = LabelsOf(e.left, e.right, true);
  const std::string batch = LabelsOf(shared, e.result, true),
                    summed = LabelsOf(shared, e.result, false);
  // Scores and weights have the batch in front, with the rows of matrices behind all others.
  const bool by_result = e.result.starts_with(batch);
  const std::string rows = by_result ? LabelsOf(LabelsOf(e.result, e.right, false), e.left, true)
                                     : LabelsOf(LabelsOf(e.left, e.right, false), e.result, true);
  const std::string column = LabelsOf(e.right, e.left, false);
  const std::string made = batch + rows + column;
  const bool product = summed.size() == 1 && !rows.empty() && column.size() == 1 &&
                       !batch.empty() && made.size() == e.result.size() &&
                       LabelsOf(made, e.result, true) == made &&
                       e.left.size() == batch.size() + rows.size() + 1;
  if (!product) return false;
  const std::string left =
      Turned(node.input(swapped ? 1 : 0), e.left, batch + rows + summed, "", w);
  std::string right = Turned(node.input(swapped ? 0 : 1), e.right, batch + summed + column, "", w);
  if (rows.size() > 1) {
    // The axes lie between those of the batch and the two of the matrices.
    std::vector<int64_t> axes(rows.size() - 1);
    std::iota(axes.begin(), axes.end(), -2 - static_cast<int64_t>(axes.size()));
    right = w.Node("Unsqueeze", {right, w.Ints(axes)}).output(0);
  }
  if (made == e.result) {
    w.Node("MatMul", {left, right}, node.output(0));
    return true;
  }
  w.Node("MatMul", {left, right});
  Turned(w.Name(), made, e.result, node.output(0), w);
  return true;
}

}  // namespace kvlift::plain
