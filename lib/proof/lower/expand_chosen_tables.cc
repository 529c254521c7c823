// The part of Expander that expands a table of cosines or sines of a GroupQueryAttention that an If
// chooses from two constants. The operator reads the rows at the positions of its tokens: those of
// one constant or of the other, as the If's condition says.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "ir/subgraphs.h"
#include "proof/lower/contrib_expander.h"

namespace kvlift::plain {

using onnx::NodeProto;
using onnx::TensorProto;

// Returns the two constants, [rows, columns] with the same number of columns, that the value is one
// of; nothing if the value is made otherwise.
std::optional<Expander::Choice> Expander::ChoiceOf(std::string value) const {
  auto it = producers_.find(value);
  while (it != producers_.end() && it->second->op_type() == "Identity") {
    value = it->second->input(0);
    it = producers_.find(value);
  }
  if (it == producers_.end() || it->second->op_type() != "If") return std::nullopt;
  const NodeProto& node = *it->second;
  for (int k = 0; k < node.output_size(); ++k) {
    if (node.output(k) != value) continue;
    const Choice choice = {node.input(0), ConstantOfBranch(node, "then_branch", k),
                           ConstantOfBranch(node, "else_branch", k)};
    if (choice.yes == nullptr || choice.no == nullptr || choice.yes->dims_size() != 2 ||
        choice.no->dims_size() != 2 || choice.yes->dims(1) != choice.no->dims(1) ||
        choice.yes->data_type() != choice.no->data_type()) {
      return std::nullopt;
    }
    return choice;
  }
  return std::nullopt;
}

// Removes each If, and each Identity behind one, that nothing reads, as after its constants were
// lifted.
void Expander::DropUnreadChoices() {
  auto& nodes = *graph().mutable_node();
  absl::flat_hash_set<std::string> chosen;
  for (const NodeProto& node : nodes) {
    const bool is_choice =
        node.op_type() == "If" || (node.op_type() == "Identity" && chosen.contains(node.input(0)));
    if (is_choice) chosen.insert(node.output().begin(), node.output().end());
  }
  if (chosen.empty()) return;
  for (int before = nodes.size() + 1; nodes.size() < before;) {
    before = nodes.size();
    absl::flat_hash_set<std::string> read;
    for (const onnx::ValueInfoProto& output : graph().output()) read.insert(output.name());
    for (const NodeProto& node : nodes) read.insert(node.input().begin(), node.input().end());
    const auto is_unread = [&](const NodeProto& node) {
      return std::all_of(node.output().begin(), node.output().end(),
                         [&](const std::string& output) {
                           return chosen.contains(output) && !read.contains(output);
                         });
    };
    nodes.erase(std::remove_if(nodes.begin(), nodes.end(), is_unread), nodes.end());
  }
}

// Writes the rows at `positions`, [B, S], of the constant that is chosen. Each is read within its
// own rows: the source fails where it reads others.
std::string Expander::ChosenRows(const Choice& choice, const std::string& positions, Writer& w) {
  const auto rows = [&](const TensorProto& tensor) {
    auto [name, fresh] = lifted_.try_emplace(&tensor);
    if (fresh) {
      TensorProto* own = graph().add_initializer();
      *own = tensor;
      own->set_name(std::string(kExpandedPrefix) + "table_" + std::to_string(lifted_.size()));
      name->second = own->name();
    }
    w.Node("Min", {positions, w.Ints({tensor.dims(0) - 1}, true)});
    w.Node("Gather", {name->second, w.Name()});
    return w.Name();
  };
  const std::string yes = rows(*choice.yes), no = rows(*choice.no);
  w.Node("Squeeze", {choice.condition});  // one element of any rank
  w.Node("Where", {w.Name(), yes, no});
  return w.Name();
}

}  // namespace kvlift::plain
