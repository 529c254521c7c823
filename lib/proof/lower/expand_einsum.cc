// The part of Expander that writes an Einsum of two operands as a product of matrices with
// Transposes around it, so that attention is read whatever the order of its axes. Source: the text
// of ONNX's Einsum.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "proof/lower/contrib_expander.h"

namespace kvlift::plain {
namespace {

// The labels of the operands and of the result, without blanks.
struct Equation {
  std::string left, right, result;
};

bool IsOfLabels(const std::string& term) {
  std::string sorted = term;
  std::sort(sorted.begin(), sorted.end());
  return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end() &&
         std::all_of(term.begin(), term.end(), absl::ascii_isalpha);
}

// Reads an explicit equation whose terms have each label once; false for others.
bool Read(std::string text, Equation* equation) {
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  const std::vector<std::string> sides = absl::StrSplit(text, "->");
  if (sides.size() != 2) return false;
  const std::vector<std::string> operands = absl::StrSplit(sides[0], ',');
  if (operands.size() != 2) return false;
  *equation = {operands[0], operands[1], sides[1]};
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
  std::vector<int64_t> perm;
  for (char label : to) perm.push_back(static_cast<int64_t>(from.find(label)));
  SetInts(&w.Node("Transpose", {value}, output), "perm", perm);
  return w.Name();
}

}  // namespace

// Labels in front that all terms share in one order are read as they stand.
bool Expander::Einsum(const onnx::NodeProto& node, Writer& w) {
  Equation e;
  if (!node.domain().empty() || node.input_size() != 2 || node.attribute_size() != 1 ||
      !Read(node.attribute(0).s(), &e)) {
    return false;
  }
  const std::string shared = LabelsOf(e.left, e.right, true);
  const std::string batch = LabelsOf(shared, e.result, true),
                    summed = LabelsOf(shared, e.result, false);
  const std::string row = LabelsOf(e.left, e.right, false),
                    column = LabelsOf(e.right, e.left, false);
  const std::string made = batch + row + column;
  const bool product = summed.size() == 1 && row.size() == 1 && column.size() == 1 &&
                       !batch.empty() && made.size() == e.result.size() &&
                       LabelsOf(made, e.result, true) == made;
  if (!product) return false;
  const auto is_in_front = [&](const std::string& term) {
    return term.compare(0, batch.size(), batch) == 0;
  };
  if (is_in_front(e.left) && is_in_front(e.right) && is_in_front(e.result)) return false;
  const std::string left = Turned(node.input(0), e.left, batch + row + summed, "", w);
  const std::string right = Turned(node.input(1), e.right, batch + summed + column, "", w);
  if (made == e.result) {
    w.Node("MatMul", {left, right}, node.output(0));
    return true;
  }
  w.Node("MatMul", {left, right});
  Turned(w.Name(), made, e.result, node.output(0), w);
  return true;
}

}  // namespace kvlift::plain
