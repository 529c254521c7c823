#include "rewrite/emit/emit_attention.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/overloaded.h"
#include "base/status.h"
#include "fmt/format.h"
#include "rewrite/emit/relayout.h"
#include "rewrite/lower/fused/decoded_rows.h"

namespace kvlift::internal {

using sym::Expr;

namespace {

// Returns the axis of rows in keys and values as Attention reads them.
int64_t AxisOfRows(const PlannedAttention& planned) { return planned.heads_in_last_axis ? 1 : 2; }

}  // namespace

absl::Status AttentionEmitter::Emit(int number, const PlannedAttention& planned) {
  const AttentionSite& site = *s_.a.attention[number].site;
  const int layer = LayerOf(s_.a, site.key.cache);
  KV_ASSIGN_OR_RETURN(const Slots slots, control_.SlotsOf(site.key.cache, planned.keys));
  std::string k = ReadCache(layer, "key", site.key, site.head_dim, planned, slots);
  std::string v = ReadCache(layer, "value", site.value, site.v_head_dim, planned, slots);
  if (planned.sink) AddRowsOfSink(site, planned, &k, &v);
  KV_ASSIGN_OR_RETURN(const std::string mask, Mask(site, planned, slots));
  s_.nodes.set_scope(fmt::format("layers.{}", layer));
  s_.patch.remove_nodes.insert(site.node);
  const std::string q = Query(site, planned);
  NodeBuilder::Inputs inputs = {q, k, v};
  if (planned.states_length) {
    const std::string valid = planned.sink ? LengthOfAll(q, k, planned) : slots.valid;
    inputs.insert(inputs.end(), {mask, "", "", valid});
  } else if (!mask.empty()) {
    inputs.push_back(mask);
  }
  EmitResult(site, planned, inputs,
             number == layer ? "Attention" : fmt::format("Attention_{}", number),
             AttributesOf(site, planned));
  return absl::OkStatus();
}

NodeBuilder::Attributes AttentionEmitter::AttributesOf(const AttentionSite& site,
                                                       const PlannedAttention& planned) {
  NodeBuilder::Attributes attributes;
  if (planned.is_causal) attributes.push_back(MakeAttribute("is_causal", int64_t{1}));
  if (planned.scale) attributes.push_back(MakeAttribute("scale", *planned.scale));
  if (planned.softcap != 0) attributes.push_back(MakeAttribute("softcap", planned.softcap));
  if (planned.softmax_precision != 0) {
    attributes.push_back(MakeAttribute("softmax_precision", int64_t{planned.softmax_precision}));
  }
  if (planned.heads_in_last_axis) {
    attributes.push_back(MakeAttribute("q_num_heads", site.q_heads));
    attributes.push_back(MakeAttribute("kv_num_heads", site.key.view.heads));
  }
  return attributes;
}

std::string AttentionEmitter::Query(const AttentionSite& site, const PlannedAttention& planned) {
  std::string query = s_.graph.name(site.query);
  if (const std::vector<Expr>& shape = s_.forms.Of(site.query).shape; shape.size() != 4) {
    if (shape.size() > 4) {
      const std::string by_head = s_.nodes.Int64s({0, site.q_heads, -1, site.head_dim});
      query = s_.nodes.Add("Reshape", {query, by_head}, "query");
    } else if (shape[0]->is_integer(site.q_heads)) {
      query = s_.nodes.Add("Unsqueeze", {query, s_.nodes.Int64s({0})}, "sequence");
    } else {
      const std::string heads = s_.nodes.Int64s({-1, site.q_heads}),
                        size = s_.nodes.Int64s({site.head_dim});
      const std::string by_head = s_.nodes.Add("Concat", {heads, QueryExtent(site), size}, "shape",
                                               {MakeAttribute("axis", int64_t{0})});
      query = s_.nodes.Add("Reshape", {query, by_head}, "query");
    }
  }
  if (planned.groups_as_tokens) {
    // [B, Nk, N/Nk*S, D] from [B, N, S, D]
    const std::string shape = s_.nodes.Int64s({0, site.key.view.heads, -1, site.head_dim});
    query = s_.nodes.Add("Reshape", {query, shape}, "query_groups");
  }
  return planned.heads_in_last_axis ? JoinHeads(s_, query, site.q_heads, site.head_dim) : query;
}

// Returns S, int64 [1].
std::string AttentionEmitter::QueryExtent(const AttentionSite& site) {
  const auto rank = static_cast<int64_t>(s_.forms.Of(site.query).shape.size());
  return s_.nodes.Extent(s_.graph.name(site.query), rank - 2, "queries");
}

void AttentionEmitter::EmitResult(const AttentionSite& site, const PlannedAttention& planned,
                                  const NodeBuilder::Inputs& inputs, const std::string& role,
                                  NodeBuilder::Attributes attributes) {
  NodeBuilder& nodes = s_.nodes;
  const std::string& output = s_.graph.name(s_.graph.outputs(site.node)[0]);
  const HeadAxes axes = HeadAxesOf(site);
  const bool on_an_axis = std::holds_alternative<HeadsOnAnAxis>(axes);
  if (on_an_axis && !planned.groups_as_tokens && !planned.heads_in_last_axis) {
    nodes.AddNamed("Attention", inputs, role, output, std::move(attributes));
    return;
  }
  const std::string result = nodes.Add("Attention", inputs, role, std::move(attributes));
  if (planned.heads_in_last_axis) {
    const std::string split = nodes.Add(
        "Reshape", {result, nodes.Int64s({0, 0, site.q_heads, site.v_head_dim})}, "heads");
    nodes.AddNamed("Transpose", {split}, "heads_first", output,
                   {MakeAttribute("perm", std::vector<int64_t>{0, 2, 1, 3})});
    return;
  }
  std::string shape = nodes.Int64s({0, site.q_heads, -1, site.v_head_dim});
  if (const auto* by_group = std::get_if<HeadsByGroup>(&axes)) {
    const int64_t groups = by_group->groups;
    shape = nodes.Int64s({0, site.q_heads / groups, groups, -1, site.v_head_dim});
  } else if (!on_an_axis) {
    const std::string rows = QueryExtent(site);
    shape = nodes.Add("Concat", {nodes.Int64s({-1}), rows, nodes.Int64s({site.v_head_dim})},
                      "shape", {MakeAttribute("axis", int64_t{0})});
  }
  nodes.AddNamed("Reshape", {result, shape}, "heads", output);
}

std::string AttentionEmitter::ReadCache(int layer, std::string_view role,
                                        const CacheOperand& operand, int64_t head_dim,
                                        const PlannedAttention& planned, const Slots& slots) {
  const PlannedCache& cache = s_.plan.caches[operand.cache];
  const CacheView& view = operand.view;
  s_.nodes.set_scope(fmt::format("layers.{}/{}", layer, role));
  const std::string& buffer = s_.graph.name(cache.pair.present);
  std::string value =
      std::visit(Overloaded{[&](const SourceRows&) { return control_.ViewForAttention(cache); },
                            [&](const ValidRows&) {
                              return control_.Rows(cache, cache.pair.present, s_.nodes.Int64s({0}),
                                                   slots.keys, slots.counted);
                            },
                            [&](const AllSlots&) { return buffer; },
                            [&](const AllSlotsValid&) { return buffer; }},
                 planned.keys);
  std::string layout = cache.placement.layout;
  const bool rowwise = !IsElementwise(s_.graph, view.decode());
  if (rowwise) {
    value = ToSourceLayout(s_, cache, value);
    layout = cache.layout;
  }
  value = RowsAsRead(value, view);
  // If heads and their elements are on one axis, the attention reads all of it.
  const bool joined = layout == kHeadsInLastAxis;
  if (joined) layout = "BSD";
  for (auto fixed = view.fixed_axes.rbegin(); fixed != view.fixed_axes.rend(); ++fixed) {
    value = s_.nodes.Add("Gather", {value, s_.nodes.Int64(fixed->index)}, std::string(role),
                         {MakeAttribute("axis", int64_t{fixed->axis})});
    layout.erase(fixed->axis, 1);
  }
  const bool headless = layout.find('N') == std::string::npos;
  const int64_t size = headless && !view.batch_times_heads ? view.heads * head_dim : head_dim;
  const ValueId rows = rowwise ? s_.graph.outputs(view.decode().back())[0] : cache.pair.past;
  // Takes the attention's part of an axis, if it is not the whole axis.
  const auto take = [&](char letter, int64_t first, int64_t count) {
    const Expr extent = s_.forms.Of(rows).shape[cache.layout.find(letter)];
    if (extent->is_integer(count)) return;
    const auto axis = static_cast<int64_t>(layout.find(letter));
    value = s_.nodes.Add("Slice",
                         {value, s_.nodes.Int64s({first}), s_.nodes.Int64s({first + count}),
                          s_.nodes.Int64s({axis})},
                         "part");
  };
  const bool whole = joined || (cache.placement.split_heads > 0 && !rowwise);
  if (!headless && !whole) take('N', view.first_head, view.heads);
  if (!whole) take('D', view.first_element, size);
  const std::string_view wanted = headless ? "BSD" : "BNSD";
  if (layout != wanted) {
    std::vector<int64_t> perm;
    for (char letter : wanted) perm.push_back(static_cast<int64_t>(layout.find(letter)));
    value = s_.nodes.Add("Transpose", {value}, "heads_first", {MakeAttribute("perm", perm)});
  }
  if (!headless || planned.heads_in_last_axis) return value;
  return SplitHeads(value, view, head_dim, slots);
}

void AttentionEmitter::AddRowsOfSink(const AttentionSite& site, const PlannedAttention& planned,
                                     std::string* keys, std::string* values) {
  NodeBuilder& nodes = s_.nodes;
  nodes.set_scope(fmt::format("layers.{}/sink", LayerOf(s_.a, site.key.cache)));
  const int64_t axis = AxisOfRows(planned);
  const int64_t heads = planned.heads_in_last_axis ? site.key.view.heads : 1;
  const std::string zero = nodes.Scalar(0, planned.sink->elem_type);
  const std::string front = nodes.Add(
      "Shape", {*keys}, "front", {MakeAttribute("start", int64_t{0}), MakeAttribute("end", axis)});
  for (const auto& [rows, size] : {std::pair(keys, site.head_dim), {values, site.v_head_dim}}) {
    const std::string shape = nodes.Add("Concat", {front, nodes.Int64s({1, heads * size})}, "shape",
                                        {MakeAttribute("axis", int64_t{0})});
    const std::string zeros = nodes.Add("Expand", {zero, shape}, "zeros");
    *rows = nodes.Add("Concat", {*rows, zeros}, rows == keys ? "key" : "value",
                      {MakeAttribute("axis", axis)});
  }
}

std::string AttentionEmitter::LengthOfAll(const std::string& queries, const std::string& keys,
                                          const PlannedAttention& planned) {
  const std::string count = s_.nodes.Extent(keys, AxisOfRows(planned), "sink/keys");
  return s_.nodes.Add("Expand", {count, s_.nodes.Extent(queries, 0, "sink/sequences")},
                      "sink/nonpad_kv_seqlen");
}

std::string AttentionEmitter::RowsAsRead(const std::string& rows, const CacheView& view) {
  return std::visit(
      Overloaded{[&](const RowsAsStored&) { return rows; },
                 [&](const CastRows& cast) {
                   return s_.nodes.Add("Cast", {rows}, "rows",
                                       {MakeAttribute("to", int64_t{cast.elem_type})});
                 },
                 [&](const ComputedRows& computed) { return Decoded(rows, computed); }},
      view.rows);
}

// Adds the nodes that decode the rows as those of the source do.
std::string AttentionEmitter::Decoded(const std::string& rows, const ComputedRows& computed) {
  absl::flat_hash_map<ValueId, std::string> made;
  for (ValueId cache : computed.roots) made[cache] = rows;
  std::string value = rows;
  for (NodeId n : computed.nodes) {
    const onnx::NodeProto& node = s_.graph.node(n);
    NodeBuilder::Inputs inputs;
    for (ValueId v : s_.graph.inputs(n)) {
      const auto it = made.find(v);
      const ValueId spread = it != made.end() ? kNoValue : SpreadConstant(s_.graph, v);
      inputs.push_back(it != made.end()     ? it->second
                       : spread != kNoValue ? Spread(spread, v, inputs[0])
                       : v == kNoValue      ? ""
                                            : s_.graph.name(v));
    }
    value = s_.nodes.Add(node.op_type(), inputs,
                         node.op_type() == "DequantizeLinear" ? "dequantized" : "decoded",
                         {node.attribute().begin(), node.attribute().end()});
    made[s_.graph.outputs(n)[0]] = value;
  }
  return value;
}

// Repeats a constant for each of these rows, as the source does for its own.
std::string AttentionEmitter::Spread(ValueId constant, ValueId spread, const std::string& rows) {
  const std::string lead =
      s_.nodes.Add("Shape", {rows}, "row_places",
                   {MakeAttribute("start", int64_t{0}), MakeAttribute("end", int64_t{-1})});
  const std::string last = s_.nodes.Int64s({s_.forms.Of(spread).shape.back()->value()});
  const std::string shape =
      s_.nodes.Add("Concat", {lead, last}, "scale_shape", {MakeAttribute("axis", int64_t{0})});
  return s_.nodes.Add("Expand", {s_.graph.name(constant), shape}, "scales");
}

std::string AttentionEmitter::SplitHeads(const std::string& value, const CacheView& view,
                                         int64_t head_dim, const Slots& slots) {
  NodeBuilder& nodes = s_.nodes;
  if (view.heads == 1) return nodes.Add("Unsqueeze", {value, nodes.Int64s({1})}, "one_head");
  if (view.batch_times_heads) {
    const std::string shape =
        nodes.Add("Concat", {nodes.Int64s({-1, view.heads}), slots.keys, nodes.Int64s({head_dim})},
                  "shape", {MakeAttribute("axis", int64_t{0})});
    return nodes.Add("Reshape", {value, shape}, "heads");
  }
  const std::string split =
      nodes.Add("Reshape", {value, nodes.Int64s({0, 0, view.heads, head_dim})}, "heads");
  return nodes.Add("Transpose", {split}, "heads_first",
                   {MakeAttribute("perm", std::vector<int64_t>{0, 2, 1, 3})});
}

}  // namespace kvlift::internal
