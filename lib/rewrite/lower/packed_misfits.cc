// The part of Unpacker that collects packed tensors and says why one stays as it is.
#include <algorithm>

#include "fmt/format.h"
#include "rewrite/lower/cache_unpacker.h"

namespace kvlift::internal {

using onnx::TensorProto;
using CacheSlots = KeyValueCacheSlots;

// Adds the node to its packed tensor. Returns false if the node has no presents, or scales that
// do not belong to one packed tensor; nothing is lowered then.
bool Unpacker::Collect(NodeId n) {
  const auto outputs = graph_.outputs(n);
  if (outputs.size() <= CacheSlots::kPresentCache ||
      outputs[CacheSlots::kPresentCache] == kNoValue) {
    return false;
  }
  const ValueId past = PackedPast(graph_, outputs[CacheSlots::kPresentCache]);
  if (past == kNoValue) return false;
  auto at = std::find_if(packed_.begin(), packed_.end(),
                         [&](const Packed& packed) { return packed.past == past; });
  if (at == packed_.end()) at = packed_.insert(at, Packed{past, kNoValue, kNoValue, kNoValue, {}});
  at->nodes.push_back(n);
  at->present = outputs[CacheSlots::kPresentCache];
  if (outputs.size() <= CacheSlots::kPresentScale ||
      outputs[CacheSlots::kPresentScale] == kNoValue) {
    return true;
  }
  const ValueId scales = PackedPast(graph_, outputs[CacheSlots::kPresentScale]);
  for (const Packed& packed : packed_) {
    const bool own = &packed == &*at;
    if (own ? at->nodes.size() > 1 && packed.scales_past != scales : packed.scales_past == scales) {
      return false;  // scales that do not go with one tensor
    }
  }
  at->scales_past = scales;
  at->scales_present = outputs[CacheSlots::kPresentScale];
  return scales != kNoValue;
}

std::optional<Unpacker::Reason> Unpacker::WhyNot(const Packed& packed) {
  const Settings all(graph_.node(packed.nodes.front()));
  const Settings first(graph_.node(packed_.front().nodes.front()));
  std::map<int64_t, NodeId> layers;
  for (const NodeId n : packed.nodes) {
    const Settings s(graph_.node(n));
    const auto no = [&](const char* code, std::string text) { return Reason{n, code, text}; };
    if (s.layers != all.layers || s.joins != first.joins || s.layout != all.layout ||
        s.bits != all.bits || s.group != first.group) {
      return no("KV237",
                "needs the same num_layer, cache_layout, quant_bit and quant_group in "
                "all layers");
    }
    if (s.layer < 0 || s.layer >= s.layers) {
      return no("KV237", fmt::format("needs a layer_idx below num_layer, found {} of {}", s.layer,
                                     s.layers));
    }
    if (!layers.emplace(s.layer, n).second) {
      return no("KV237",
                fmt::format("needs each layer written once, found layer {} twice", s.layer));
    }
    if (!ReadOnce(n)) return no("KV237", "needs tensors that the next layer alone reads");
    if (!SameStart(n, packed_.front().nodes.front())) {
      return no("KV237", "needs one start_pos for all layers");
    }
    if (s.layout < 0 || s.layout >= s.layouts()) {
      return no("KV237", fmt::format("needs a cache_layout from 0 to {}, found {}", s.layouts() - 1,
                                     s.layout));
    }
    if (s.joins) {
      if (auto text = one_.Misfit(n); !text.empty()) return no("KV249", text);
    }
    if (auto text = ShapeMisfit(packed, n, s); !text.empty()) return no("KV237", text);
    if (auto text = TypeMisfit(packed, n, s); !text.empty()) return no("KV239", text);
  }
  if (static_cast<int64_t>(layers.size()) != all.layers) {
    return Reason{packed.nodes.back(), "KV237",
                  fmt::format("needs all {} layers of {} written, found {}", all.layers,
                              graph_.name(packed.past), layers.size())};
  }
  return std::nullopt;
}

bool Unpacker::SameStart(NodeId a, NodeId b) {
  const ValueId x = graph_.inputs(a)[SlotsOf(a).start], y = graph_.inputs(b)[SlotsOf(b).start];
  if (x == y) return true;
  const auto one = forms_.Elements(x), other = forms_.Elements(y);
  return one && other && *one == *other;
}

// Returns true if the chain of layers is the only reader of the node's tensors and presents.
bool Unpacker::ReadOnce(NodeId n) const {
  for (const int output : {CacheSlots::kPresentCache, CacheSlots::kPresentScale}) {
    const auto outputs = graph_.outputs(n);
    if (static_cast<int>(outputs.size()) <= output || outputs[output] == kNoValue) continue;
    if (graph_.uses(outputs[output]).size() != 1) return false;
  }
  for (const int input : {SlotsOf(n).cache, SlotsOf(n).scale}) {
    const auto inputs = graph_.inputs(n);
    if (static_cast<int>(inputs.size()) <= input || inputs[input] == kNoValue) continue;
    if (graph_.uses(inputs[input]).size() != 1) return false;
  }
  return true;
}

// Returns the shape of the new rows, [B, S, Nk, D]; B is 1 where sequences are joined on one
// axis.
std::vector<sym::Expr> Unpacker::RowsShape(NodeId n) {
  std::vector<sym::Expr> shape = forms_.Of(graph_.inputs(n)[CacheSlots::kKey]).shape;
  if (SlotsOf(n).joins_sequences()) shape.insert(shape.begin(), forms_.pool().Integer(1));
  return shape;
}

// Returns why the tensors do not fit the rows; empty if they do.
std::string Unpacker::ShapeMisfit(const Packed& packed, NodeId n, const Settings& s) {
  for (const int rows : {CacheSlots::kKey, CacheSlots::kValue}) {
    const sym::Form& form = forms_.Of(graph_.inputs(n)[rows]);
    const size_t rank = s.joins ? 3 : 4;
    const bool known = form.known_rank && form.shape.size() == rank &&
                       form.shape[rank - 2]->kind() == sym::Kind::kInteger &&
                       form.shape[rank - 1]->kind() == sym::Kind::kInteger;
    if (!known || form.shape != forms_.Of(graph_.inputs(n)[CacheSlots::kKey]).shape) {
      return fmt::format("needs rows [{}, Nk, D] with constant Nk and D, keys and values alike",
                         s.joins ? "S" : "B, S");
    }
  }
  const sym::Expr batch = RowsShape(n)[0];
  const bool plain = batch->kind() == sym::Kind::kInteger || batch->kind() == sym::Kind::kDim;
  if (!plain || batch != RowsShape(packed_.front().nodes.front())[0]) {
    return "needs as many sequences in all layers";
  }
  const int64_t heads = RowsShape(n)[2]->value(), size = RowsShape(n)[3]->value();
  if (s.repeat < 1 || s.repeat > std::numeric_limits<int32_t>::max()) return "needs a num_repeat";
  if (s.group < 0 || (s.group > 0 && size % s.group != 0)) {
    return fmt::format("needs groups that divide a head, found {} elements and groups of {}", size,
                       s.group);
  }
  std::string text = PackedMisfit(packed.past, n, s, size, heads);
  if (text.empty() && s.group > 0 && packed.scales_past != kNoValue) {
    text = PackedMisfit(packed.scales_past, n, s, size / s.group, heads);
    if (text.empty() && CapacityOf(packed.scales_past, s) != CapacityOf(packed.past, s)) {
      text = "needs as many slots of scales as of rows";
    }
  }
  return text;
}

Dim Unpacker::CapacityOf(ValueId packed, const Settings& s) const {
  return (*graph_.type(packed).shape)[PackedLayout::Of(s).slots];
}

std::string Unpacker::PackedMisfit(ValueId packed, NodeId n, const Settings& s, int64_t width,
                                   int64_t heads) {
  const auto& shape = graph_.type(packed).shape;
  const PackedLayout layout = PackedLayout::Of(s);
  std::vector<std::string> sizes(layout.rank(), "B");
  sizes[layout.layers] = fmt::format("{}", s.layers);
  sizes[layout.roles] = "2";
  sizes[layout.slots] = "M";
  sizes[layout.heads] = fmt::format("{}", heads);
  sizes.back() = fmt::format("{}", width);
  const std::string needs =
      fmt::format("needs {} declared as [{}]", graph_.name(packed), fmt::join(sizes, ", "));
  if (!shape || shape->size() != layout.rank()) return needs;
  const auto is = [&](int axis, int64_t size) { return (*shape)[axis].value == size; };
  if (!is(layout.layers, s.layers) || !is(layout.roles, 2) || !is(layout.heads, heads) ||
      shape->back().value != width || !(*shape)[layout.slots].known()) {
    return needs;
  }
  if (layout.sequences < 0) return {};
  // There must be as many sequences as in a step. If the extent is a symbol, the host ensures
  // that.
  const sym::Expr batch = RowsShape(n)[0];
  const Dim& sequences = (*shape)[layout.sequences];
  const bool fits = !sequences.value ||
                    (batch->kind() == sym::Kind::kInteger && batch->value() == *sequences.value);
  return fits ? std::string() : fmt::format("{}, with the sequences of a step", needs);
}

std::string Unpacker::TypeMisfit(const Packed& packed, NodeId n, const Settings& s) {
  const int32_t rows = forms_.ElementType(graph_.inputs(n)[CacheSlots::kKey]);
  const int32_t values = forms_.ElementType(graph_.inputs(n)[CacheSlots::kValue]);
  const int32_t kept = graph_.type(packed.past).elem_type;
  if (s.bits == 0) {
    if (packed.scales_past != kNoValue) return "needs no scales where quant_bit is 0";
    return rows == kept && rows == values ? "" : "needs a cache of the type of its rows";
  }
  if (s.bits != 8) return fmt::format("needs quant_bit 0 or 8, found {}", s.bits);
  const bool all = packed.scales_past != kNoValue && kept == TensorProto::INT8 &&
                   (rows == TensorProto::FLOAT || rows == TensorProto::FLOAT16) && values == rows &&
                   graph_.type(packed.scales_past).elem_type == rows;
  return all ? ""
             : "needs rows and scales of float32, or of float16, and a cache of int8 where it is "
               "quantised";
}

// Adds the refusal at the node that gives a present, where caches are searched, for every tensor.
void Unpacker::Refuse(const Packed& packed, const Reason& reason) {
  for (const Packed& each : packed_) {
    Finding finding = {reason.code,
                       fmt::format("KeyValueCache: {}", reason.text),
                       {graph_.NodeName(each.nodes.back())},
                       {graph_.name(packed.past)}};
    if (reason.node != each.nodes.back()) {
      finding.nodes.push_back(graph_.NodeName(reason.node));
    }
    result_.refusals.push_back(std::move(finding));
  }
}

}  // namespace kvlift::internal
