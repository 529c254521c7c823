// The part of Expander that expands KeyValueCache: new rows are written into a layer's part of a
// packed tensor, and all rows of that part are read.
#include <limits>
#include <utility>

#include "ir/graph.h"
#include "onnxio/model/functional_form.h"
#include "proof/lower/contrib_expander.h"

namespace kvlift::plain {

using onnx::NodeProto;
using onnx::TensorProto;

std::string Expander::Cut(const std::string& x, int64_t axis, const std::string& begin,
                          const std::string& end, Writer& w) {
  w.Node("Slice", {x, begin, end, w.Ints({axis})});
  return w.Name();
}

// Writes new key and value rows, [B, S, Nk, .] or [B, Nk, S, .], into the packed tensor, which
// becomes `present`. Returns all rows of keys and of values up to the new ones, in the same
// layout.
std::array<std::string, 2> Expander::Splice(const std::string& packed, const Part& p,
                                            const std::array<std::string, 2>& rows,
                                            const std::string& present, Writer& w) {
  const std::string fixed = w.Ints({p.layers(), p.roles()}), zero = w.Ints({0});
  const std::string open = w.Ints({std::numeric_limits<int64_t>::max()});
  const std::string own = Cut(packed, p.layers(), w.Ints({p.layer}), w.Ints({p.layer + 1}), w);
  std::array<std::string, 2> written, all;
  for (int role = 0; role < 2; ++role) {
    const std::string part = Cut(own, p.roles(), w.Ints({role}), w.Ints({role + 1}), w);
    w.Node("Unsqueeze", {rows[role], fixed});
    const std::string added = w.Name(), before = Cut(part, p.slots(), zero, p.start, w);
    const std::string behind = Cut(part, p.slots(), p.end, open, w);
    SetInt(&w.Node("Concat", {before, added, behind}), "axis", p.slots());
    written[role] = w.Name();
    w.Node("Squeeze", {Cut(written[role], p.slots(), p.first, p.end, w), fixed});
    all[role] = w.Name();
  }
  SetInt(&w.Node("Concat", {written[0], written[1]}), "axis", p.roles());
  const std::string both = w.Name(), front = Cut(packed, p.layers(), zero, w.Ints({p.layer}), w);
  const std::string rest = Cut(packed, p.layers(), w.Ints({p.layer + 1}), open, w);
  SetInt(&w.Node("Concat", {front, both, rest}, present), "axis", p.layers());
  return all;
}

// Quantises rows of `size` elements to int8 in groups; returns the scales and the rows.
std::pair<std::string, std::string> Expander::Quantized(const std::string& rows, int64_t size,
                                                        int64_t group, Writer& w) {
  w.Node("Reshape", {rows, w.Ints({0, 0, 0, size / group, group})});
  w.Node("Abs", {w.Name()});
  const std::string sizes = w.Name();
  SetInt(&w.Node("ReduceMax", {sizes, w.Ints({-1})}), "keepdims", 0);
  const std::string largest = w.Name();
  w.Node("Div", {largest, w.Float(127)});
  const std::string least = w.Name();
  const std::string scale = w.Node("Max", {least, w.Float(1e-5F)}).output(0);
  NodeProto& values = w.Node("QuantizeLinear", {rows, scale});
  SetInt(&values, "axis", 3);
  SetInt(&values, "block_size", group);
  SetInt(&values, "output_dtype", TensorProto::INT8);
  return {scale, w.Name()};
}

std::string Expander::Dequantized(const std::string& values, const std::string& scales,
                                  int64_t group, Writer& w) {
  NodeProto& rows = w.Node("DequantizeLinear", {values, scales});
  SetInt(&rows, "axis", 3);
  SetInt(&rows, "block_size", group);
  return w.Name();
}

// Adds a batch axis of 1 in front if sequences are joined, and removes it.
std::string Expander::Apart(const std::string& joined, const Part& part, Writer& w) {
  return part.joins ? w.Node("Unsqueeze", {joined, w.Ints({0})}).output(0) : joined;
}

void Expander::Join(const std::string& apart, const std::string& output, Writer& w) {
  w.Node("Squeeze", {apart, w.Ints({0})}, output);
}

// Finds the slots of new rows. With one sequence, seqstarts and kvstarts repeat what the number
// of rows and start_pos say.
bool Expander::FindSlots(const NodeProto& node, Part& part, Writer& w) {
  const KeyValueCacheSlots slots = KeyValueCacheSlots::Of(node);
  const std::string length = w.Extent(node.input(0), part.joins ? 0 : 1);
  part.first = w.Ints({0});
  w.Node("Reshape", {node.input(slots.start), w.Ints({1})});
  part.start = w.Name();
  if (part.joins) {
    const auto sequences = dims_.find(node.input(slots.start));
    const bool one = sequences != dims_.end() && sequences->second == std::vector<int64_t>{1};
    if (!one || IntAttribute(node, "cache_mode", 0) != 0) return false;
    w.Node("Reshape", {node.input(slots.cachestarts), w.Ints({1})});
    part.first = w.Name();
    w.Node("Add", {part.start, part.first});
    part.start = w.Name();
  }
  w.Node("Add", {part.start, length});
  part.end = w.Name();
  return true;
}

// Expands KeyValueCache: writes new rows into a layer's part of a packed tensor and reads all
// rows of that part up to them.
bool Expander::Packed(const NodeProto& node, Writer& w) {
  using Slots = KeyValueCacheSlots;
  const Slots slots = Slots::Of(node);
  const int64_t repeat = IntAttribute(node, "num_repeat", 1);
  const bool quantised = IntAttribute(node, "quant_bit", 0) == 8;
  const int64_t group = quantised ? IntAttribute(node, "quant_group", 8) : 0;
  const int results = quantised ? Slots::kPresentScale : Slots::kPresentCache;
  if (node.output_size() != results + 1 || Has(node, slots.scale) != quantised) return false;
  if (!quantised && IntAttribute(node, "quant_bit", 0) != 0) return false;
  std::vector<int64_t> dims = dims_[node.input(slots.cache)];
  dims_[node.output(Slots::kPresentCache)] = dims;
  Part part{IntAttribute(node, "layer_idx", 0),
            IntAttribute(node, "cache_layout", 0),
            slots.joins_sequences(),
            {},
            {},
            {}};
  if (part.joins) dims.insert(dims.begin(), 1);
  if (dims.size() != 6 || part.layer < 0 || repeat < 1 || part.layout < 0 ||
      part.layout >= part.layouts()) {
    return false;
  }
  const int64_t heads = dims[static_cast<size_t>(part.heads())], size = dims.back();
  if (heads < 1 || size < 1 || (quantised && (group < 1 || size % group != 0))) return false;
  if (!FindSlots(node, part, w)) return false;
  std::array<std::string, 2> rows, scales;
  for (int role = 0; role < 2; ++role) {
    rows[role] = HeadsFirst(Apart(node.input(role), part, w), part.heads_first(), w);
    if (quantised) std::tie(scales[role], rows[role]) = Quantized(rows[role], size, group, w);
  }
  const auto splice = [&](int output, const std::array<std::string, 2>& added) {
    const std::string packed = Apart(node.input(slots.Written(output)), part, w);
    if (!part.joins) return Splice(packed, part, added, node.output(output), w);
    auto all = Splice(packed, part, added, "", w);
    Join(w.Name(), node.output(output), w);
    return all;
  };
  rows = splice(Slots::kPresentCache, rows);
  if (quantised) scales = splice(Slots::kPresentScale, scales);
  for (int role = 0; role < 2; ++role) {
    if (quantised) rows[role] = Dequantized(rows[role], scales[role], group, w);
    const std::string all = HeadsFirst(rows[role], part.heads_first(), w);
    Repeated(all, {heads, size}, repeat, part.joins ? "" : node.output(role), w);
    if (part.joins) Join(w.Name(), node.output(role), w);
  }
  return true;
}

}  // namespace kvlift::plain
