#include "proof/graphs/plain_products.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "ir/node_builder.h"
#include "ir/patch.h"
#include "proof/graphs/matrix_products.h"
#include "sym/forms/forms.h"

namespace kvlift {
namespace {

using onnx::NodeProto;

bool IsFused(const NodeProto& node) {
  return node.op_type() == "FusedMatMul" && node.domain() == "com.microsoft";
}

// Adds a Transpose of the last two of `rank` axes and returns the name of its result.
std::string AddTranspose(const std::string& x, int rank, const NodeProto& reader, int operand,
                         Patch* patch) {
  NodeProto& node = patch->new_nodes.emplace_back();
  node.set_op_type("Transpose");
  node.add_input(x);
  node.add_output(reader.output(0) + "/transposed/" + std::to_string(operand));
  std::vector<int64_t> perm(static_cast<size_t>(rank));
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  *node.add_attribute() = MakeAttribute("perm", perm);
  return node.output(0);
}

// Returns the rank of an operand with at least two axes; 0 if it is not known.
int RankOf(sym::Forms& forms, ValueId v) {
  const sym::Form& form = forms.Of(v);
  return form.known_rank && form.shape.size() >= 2 ? static_cast<int>(form.shape.size()) : 0;
}

void SpellOut(const Graph& graph, NodeId n, sym::Forms& forms, Patch* patch) {
  const auto product = ReadMatrixProduct(graph, n);
  const auto inputs = graph.inputs(n);
  if (!product || inputs.size() != 2) return;
  const bool transposed[] = {product->left_transposed, product->right_transposed};
  const int ranks[] = {RankOf(forms, inputs[0]), RankOf(forms, inputs[1])};
  if (ranks[0] == 0 || ranks[1] == 0) return;
  NodeProto plain = graph.node(n);
  for (int k = 0; k < 2; ++k) {
    if (transposed[k]) {
      plain.set_input(k, AddTranspose(plain.input(k), ranks[k], plain, k, patch));
    }
  }
  plain.clear_attribute();
  if (product->factor == 1) {
    plain.set_op_type("MatMul");
    plain.clear_domain();
  } else {
    *plain.add_attribute() = *FindAttribute(graph.node(n), "alpha");
  }
  patch->remove_nodes.insert(n);
  patch->new_nodes.push_back(std::move(plain));
}

}  // namespace

onnx::ModelProto WithPlainProducts(onnx::ModelProto model) {
  const auto& nodes = model.graph().node();
  if (std::none_of(nodes.begin(), nodes.end(), IsFused)) return model;
  const auto graph =
      Graph::Build(std::shared_ptr<const onnx::ModelProto>(&model, [](const auto*) {}));
  if (!graph.ok()) return model;
  sym::Forms forms(*graph);
  Patch patch;
  patch.remove_dead = false;
  patch.drop_value_info = false;
  for (NodeId n = 0; n < graph->num_nodes(); ++n) {
    if (IsFused(graph->node(n))) SpellOut(*graph, n, forms, &patch);
  }
  auto plain = Apply(*graph, patch);
  return plain.ok() ? *std::move(plain) : model;
}

}  // namespace kvlift
