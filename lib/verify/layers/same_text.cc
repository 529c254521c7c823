#include "verify/layers/same_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "ir/operators/operator_changes.h"
#include "ir/spans.h"
#include "ir/tensor_data.h"
#include "onnxio/model/model.h"
#include "proof/graphs/pair.h"

namespace kvlift {
namespace {

// Constants of more bytes appear in the text by their digest.
constexpr size_t kMostBytes = 512;

// Whether an initialiser that is applied to hidden states counts as a weight. Single numbers, such
// as scales and softcaps, do not, as they belong to the structure.
bool IsWeight(const onnx::TensorProto& tensor) {
  if (IsElsewhere(tensor)) return true;
  const auto size = NumElements(tensor);
  const bool numbers = IsFloatType(tensor.data_type()) || ElementBits(tensor.data_type()) <= 8;
  return numbers && tensor.data_type() != onnx::TensorProto::BOOL && (!size.ok() || *size > 1);
}

std::string Bytes(const onnx::TensorProto& tensor) {
  const RawData raw = RawDataOf(tensor);
  if (!raw.bytes.empty()) {
    return raw.bytes.size() > kMostBytes ? Sha256Hex(raw.bytes) : std::string(raw.bytes);
  }
  const auto bytes = InlineBytes(tensor);
  return bytes.ok() ? *bytes : tensor.SerializeAsString();
}

std::string TextOf(const TensorType& type) {
  std::string text = fmt::format("{}[", type.elem_type);
  if (!type.shape) return text + "?]";
  for (const Dim& dim : *type.shape) {
    text += dim.value ? fmt::format("{},", *dim.value) : fmt::format("'{}',", dim.param);
  }
  return text + "]";
}

// The text of one model of a piece, in which values have numbers in place of names.
class Numbered {
 public:
  // entering: the names of the hidden states and caches that enter the piece.
  Numbered(const onnx::ModelProto& model, const absl::flat_hash_set<std::string>& entering)
      : hidden_(entering) {
    for (const auto& opset : model.opset_import()) {
      text_ += fmt::format("import {} {}\n", opset.domain(), opset.version());
    }
    for (const auto& input : model.graph().input()) {
      inputs_[input.name()] = TextOf(TensorType::From(input.type()));
    }
    for (const auto& tensor : model.graph().initializer()) constants_[tensor.name()] = &tensor;
    for (const onnx::NodeProto* node : InOrderOfNeed(model.graph())) AddNode(*node);
    for (const auto& output : model.graph().output()) {
      text_ += fmt::format("gives {} {}\n", Number(output.name()),
                           TextOf(TensorType::From(output.type())));
    }
  }

  const std::string& text() const { return text_; }
  int NumberOf(const std::string& name) const {
    const auto it = numbers_.find(name);
    return it == numbers_.end() ? -1 : it->second;
  }
  // Returns the weights in the order in which the text mentions them.
  const std::vector<const onnx::TensorProto*>& weights() const { return weights_; }

 private:
  // Returns the nodes in a topological order that does not depend on the order in the file.
  static std::vector<const onnx::NodeProto*> InOrderOfNeed(const onnx::GraphProto& graph) {
    absl::flat_hash_map<std::string, int> makers;
    for (int n = 0; n < graph.node_size(); ++n) {
      for (const std::string& output : graph.node(n).output()) makers[output] = n;
    }
    std::vector<const onnx::NodeProto*> order;
    std::vector<bool> seen(static_cast<size_t>(graph.node_size()), false);
    std::vector<std::pair<int, int>> open;  // a node, and the index of its next operand to visit
    const auto visit = [&](const std::string& value) {
      const auto maker = value.empty() ? makers.end() : makers.find(value);
      if (maker == makers.end() || seen[static_cast<size_t>(maker->second)]) return;
      seen[static_cast<size_t>(maker->second)] = true;
      open.emplace_back(maker->second, 0);
    };
    for (const auto& output : graph.output()) {
      visit(output.name());
      while (!open.empty()) {
        const onnx::NodeProto& node = graph.node(open.back().first);
        if (open.back().second < node.input_size()) {
          visit(node.input(open.back().second++));
          continue;
        }
        order.push_back(&node);
        open.pop_back();
      }
    }
    return order;
  }

  int Number(const std::string& name) {
    return numbers_.try_emplace(name, static_cast<int>(numbers_.size())).first->second;
  }

  void AddNode(const onnx::NodeProto& node) {
    text_ += fmt::format("{}.{}", node.domain(), node.op_type());
    const bool reads_hidden =
        std::any_of(node.input().begin(), node.input().end(),
                    [&](const std::string& input) { return hidden_.contains(input); });
    for (const std::string& input : node.input()) text_ += " " + Operand(input, reads_hidden);
    text_ += " ->";
    for (const std::string& output : node.output()) {
      text_ += output.empty() ? " -" : fmt::format(" {}", Number(output));
      if (reads_hidden && !output.empty()) hidden_.insert(output);
    }
    std::vector<std::string> attributes;
    for (const auto& attribute : node.attribute()) {
      onnx::AttributeProto plain = attribute;
      plain.clear_doc_string();
      if (plain.has_t()) plain.mutable_t()->clear_name();
      attributes.push_back(plain.SerializeAsString());
    }
    std::sort(attributes.begin(), attributes.end());
    for (const std::string& bytes : attributes) text_ += fmt::format(" {}:{}", bytes.size(), bytes);
    text_ += '\n';
  }

  std::string Operand(const std::string& name, bool beside_hidden) {
    if (name.empty()) return "-";
    const bool is_new = numbers_.find(name) == numbers_.end();
    std::string text = fmt::format("{}", Number(name));
    if (!is_new) return text;
    if (const auto input = inputs_.find(name); input != inputs_.end()) return text + input->second;
    if (const auto constant = constants_.find(name); constant != constants_.end()) {
      text += Constant(*constant->second, beside_hidden);
    }
    return text;
  }

  std::string Constant(const onnx::TensorProto& tensor, bool beside_hidden) {
    std::string text = fmt::format("={}({})", tensor.data_type(), fmt::join(tensor.dims(), ","));
    if (beside_hidden && IsWeight(tensor)) {
      weights_.push_back(&tensor);
      return text + "w";
    }
    const std::string bytes = Bytes(tensor);
    return text + fmt::format("{}:{}", bytes.size(), bytes);
  }

  std::string text_;
  absl::flat_hash_set<std::string> hidden_;  // hidden states and values computed from them
  absl::flat_hash_map<std::string, int> numbers_;
  absl::flat_hash_map<std::string, std::string> inputs_;  // the type of each input, by name
  absl::flat_hash_map<std::string, const onnx::TensorProto*> constants_;
  std::vector<const onnx::TensorProto*> weights_;
};

// Returns, for each weight of the conversion, the number of the source's weight with the same
// bytes. A weight that only one of the models has appears in the text with its bytes.
std::string TextOfWeights(const Numbered& before, const Numbered& after) {
  absl::flat_hash_map<std::string, size_t> by_name;
  for (size_t k = 0; k < before.weights().size(); ++k) by_name[before.weights()[k]->name()] = k;
  std::vector<bool> is_used(before.weights().size(), false);
  std::string text;
  for (const onnx::TensorProto* mine : after.weights()) {
    const auto named = by_name.find(mine->name());
    if (named != by_name.end() && SameData(*before.weights()[named->second], *mine)) {
      text += fmt::format("same {}\n", named->second);
      is_used[named->second] = true;
      continue;
    }
    const auto found =
        std::find_if(before.weights().begin(), before.weights().end(),
                     [&](const onnx::TensorProto* theirs) { return SameData(*theirs, *mine); });
    if (found == before.weights().end()) {
      text += "own " + Bytes(*mine) + '\n';
      continue;
    }
    const auto k = static_cast<size_t>(found - before.weights().begin());
    text += fmt::format("same {}\n", k);
    is_used[k] = true;
  }
  for (size_t k = 0; k < is_used.size(); ++k) {
    if (!is_used[k]) text += fmt::format("theirs {} ", k) + Bytes(*before.weights()[k]) + '\n';
  }
  return text;
}

}  // namespace

std::string TextOfPair(const ModelPiece& piece) {
  absl::flat_hash_set<std::string> entering;
  for (const ManifestCache& c : piece.relation.caches) {
    entering.insert(c.input);
    entering.insert(c.source.input);
  }
  for (const std::string& name : piece.entering) entering.insert(name);
  const Numbered before(*piece.before.proto, entering), after(*piece.after.proto, entering);
  std::string text = before.text() + after.text() + TextOfWeights(before, after);
  const Manifest& relation = piece.relation;
  for (const ManifestCache& c : relation.caches) {
    text += fmt::format("cache {} {} {} {} ", before.NumberOf(c.source.input),
                        before.NumberOf(c.source.output), after.NumberOf(c.input),
                        after.NumberOf(c.output));
    text += fmt::format("{} {} {} {} {} {} {} ", WordOf(c.role), c.dtype, c.layout, c.axis,
                        WordOf(c.alias), c.grows, c.ring ? c.ring->window : -1);
    text += fmt::format("{} {} {} {}", WordOf(c.source.kind), c.source.layout, c.source.axis,
                        c.source.growing);
    if (const auto& sliding = c.source.sliding) {
      text += fmt::format(" {}/{}", sliding->window, sliding->capacity.value_or(0));
    }
    for (const Select& s : c.source.select) text += fmt::format(" {}:{}", s.axis, s.index);
    if (c.quantization) {
      text += fmt::format(" {} {} {}", c.quantization->dtype, c.quantization->group,
                          c.quantization->rows);
    }
    text += '\n';
  }
  for (const ManifestInput& i : relation.inputs) {
    if (IsCache(i)) continue;
    text += fmt::format("input {} {} {}", before.NumberOf(NameInSource(i)), after.NumberOf(i.name),
                        WordOf(AsOf(i)));
    if (const ControlInput* control = AsControl(i)) {
      text += fmt::format(" {}", WordOf(control->value));
    }
    if (const PaddedInput* padded = AsPadded(i)) {
      text += fmt::format(" {} {}", padded->axis, padded->fill);
    }
    text += i.all ? fmt::format(" {}\n", WordOf(*i.all)) : "\n";
  }
  for (const ManifestOutput& o : relation.outputs) {
    if (IsCache(o)) continue;
    text += fmt::format("output {} {}\n", before.NumberOf(NameInSource(o)), after.NumberOf(o.name));
  }
  for (const DroppedInput& d : relation.dropped) {
    text += fmt::format("dropped {} {}\n", before.NumberOf(d.name), GivenText(d));
  }
  return text;
}

bool HasSameNodes(const ModelPiece& piece) {
  const onnx::ModelProto &a = *piece.before.proto, &b = *piece.after.proto;
  const bool same_nodes =
      std::equal(a.graph().node().begin(), a.graph().node().end(), b.graph().node().begin(),
                 b.graph().node().end(), [&](const onnx::NodeProto& x, const onnx::NodeProto& y) {
                   return SameNode(x, y, DefaultOpset(a), DefaultOpset(b));
                 });
  if (!same_nodes) return false;
  if (!OperatorWithOtherMeaning(a, DefaultOpset(b)).empty()) return false;
  absl::flat_hash_map<std::string, const onnx::TensorProto*> theirs;
  for (const auto& tensor : a.graph().initializer()) theirs[tensor.name()] = &tensor;
  return a.graph().initializer_size() == b.graph().initializer_size() &&
         std::all_of(b.graph().initializer().begin(), b.graph().initializer().end(),
                     [&](const onnx::TensorProto& tensor) {
                       const auto own = theirs.find(tensor.name());
                       return own != theirs.end() && SameData(*own->second, tensor);
                     });
}

}  // namespace kvlift
