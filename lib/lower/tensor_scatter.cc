// Lowers TensorScatter-24 to older operators. Row s of the update of sequence b goes to slot w[b] +
// s, or to (w[b] + s) mod M in mode circular, with M the capacity.
//
//   ScatterND      the indices of all rows are computed: [d0, .., S, axis + 1];
//   Where          slot j reads row r = j - w[b] (modulo M) of the update where 0 <= r < S, and the
//                  past elsewhere. Nothing is scattered.
//
// As TensorScatter does, both refuse a step of mode linear whose rows do not fit into the buffer.
#include <numeric>
#include <vector>

#include "fmt/format.h"
#include "lower/lowering.h"

namespace kvlift::lower {
namespace {

enum Input { kPast, kUpdate, kWrite };

struct Site {
  int rank = 0, axis = 0;
  bool circular = false;
};

// Returns why the node cannot be lowered; empty if it was.
std::string ReadSite(Lowering& l, NodeId n, Site* site) {
  const auto& node = l.graph().node(n);
  if (const std::string name = UnknownAttribute(node, {"axis", "mode"}); !name.empty()) {
    return fmt::format("its attribute {} is not known", name);
  }
  const std::string mode = StringAttribute(node, "mode", "linear");
  if (mode != "linear" && mode != "circular") return fmt::format("its mode {} is not known", mode);
  site->circular = mode == "circular";
  site->rank = l.Rank(n, kPast);
  if (site->rank < 0 || l.Rank(n, kUpdate) != site->rank) {
    return "the ranks of its operands are not known, or differ";
  }
  if (l.has(n, kWrite) && l.Rank(n, kWrite) != 1) return "write_indices is not of rank 1";
  const int64_t axis = IntAttribute(node, "axis", -2);
  site->axis = static_cast<int>(axis < 0 ? axis + site->rank : axis);
  if (site->axis <= 0 || site->axis >= site->rank) return "its axis is out of range";
  return {};
}

// Returns the numbers first..end-1.
std::vector<int64_t> Axes(int64_t first, int64_t end) {
  std::vector<int64_t> axes(std::max<int64_t>(0, end - first));
  std::iota(axes.begin(), axes.end(), first);
  return axes;
}

std::string Wrapped(Lowering& l, NodeId n, const Site& site, const std::string& slots) {
  if (!site.circular) return slots;
  return l.nodes().Add("Mod", {slots, l.Extent(n, kPast, site.axis)}, "wrapped");
}

// Returns write_indices. In mode linear a step whose rows do not fit into the buffer is refused, as
// TensorScatter does: a vector of zeros has one element if they fit, and none otherwise, and its
// first element is added.
std::string CheckedIndices(Lowering& l, NodeId n, const Site& site) {
  const std::string write = l.in(n, kWrite);
  if (site.circular) return write;
  NodeBuilder& nodes = l.nodes();
  const std::string axes = nodes.Int64s({0});
  const std::string lowest = nodes.Add("ReduceMin", {write}, "first_write");
  const std::string most = nodes.Add("ReduceMax", {write}, "last_write");
  const std::string end = nodes.Add("Add", {most, l.Extent(n, kUpdate, site.axis)}, "last_end");
  const std::string begins = nodes.Add("GreaterOrEqual", {lowest, axes}, "begins_inside");
  const std::string ends =
      nodes.Add("LessOrEqual", {end, l.Extent(n, kPast, site.axis)}, "ends_inside");
  const std::string fits = nodes.Add("Cast", {nodes.Add("And", {begins, ends}, "inside")}, "zeros",
                                     {MakeAttribute("to", int64_t{onnx::TensorProto::INT64})});
  const std::string zeros = nodes.Add("Expand", {nodes.Int64(0), fits}, "zeros_if_inside");
  const std::string zero = nodes.Add("Gather", {zeros, nodes.Int64(0)}, "refuses_outside");
  return nodes.Add("Add", {write, zero}, "checked_indices");
}

// Returns the coordinates of the update's rows, int64 [d0, .., S, axis + 1].
std::string Coordinates(Lowering& l, NodeId n, const Site& site) {
  NodeBuilder& nodes = l.nodes();
  // Past and update have the same extents in front of the row axis; nodes for known extents are
  // shared by all layers.
  const size_t like = l.HasForm(n, kUpdate) ? kUpdate : kPast;
  std::vector<std::string> extents;
  extents.reserve(static_cast<size_t>(site.axis) + 2);
  for (int k = 0; k < site.axis; ++k) extents.push_back(l.Extent(n, like, k));
  extents.push_back(l.Extent(n, kUpdate, site.axis));
  extents.push_back(l.Literal(1));
  const std::string shape = l.Join(extents, "coordinate_shape");
  std::vector<std::string> coordinates;
  for (int k = 0; k < site.axis; ++k) {
    // [dk] -> [1, .., dk, .., 1], of rank axis + 2.
    std::vector<int64_t> axes = Axes(0, k);
    const std::vector<int64_t> behind = Axes(k + 1, site.axis + 2);
    axes.insert(axes.end(), behind.begin(), behind.end());
    const std::string numbers = l.Unsqueeze(l.Count(n, like, k), axes, "numbers");
    coordinates.push_back(nodes.Add("Expand", {numbers, shape}, "coordinate"));
  }
  std::string slots = l.Count(n, kUpdate, site.axis);  // [S]
  if (l.has(n, kWrite)) {
    const std::string first =
        l.Unsqueeze(CheckedIndices(l, n, site), Axes(1, site.axis + 1), "first_slot");
    slots = nodes.Add("Add", {first, slots}, "slots");  // [B, 1, .., S]
  }
  slots = l.Unsqueeze(Wrapped(l, n, site, slots), {-1}, "slot_column");
  coordinates.push_back(nodes.Add("Expand", {slots, shape}, "slot"));
  return nodes.Add("Concat", coordinates, "coordinates", {MakeAttribute("axis", int64_t{-1})});
}

void MakeScatterNd(Lowering& l, NodeId n, const Site& site) {
  l.ScopeShared();
  const std::string coordinates = Coordinates(l, n, site);
  l.ScopeOf(n);
  l.nodes().AddNamed("ScatterND", {l.in(n, kPast), coordinates, l.in(n, kUpdate)}, "ScatterND",
                     l.out(n, 0));
}

void MakeWhere(Lowering& l, NodeId n, const Site& site) {
  NodeBuilder& nodes = l.nodes();
  l.ScopeShared();
  std::string rows = l.Count(n, kPast, site.axis);  // [M]
  std::vector<int64_t> axes = Axes(0, site.axis);   // of [M] in the shape of the past
  if (l.has(n, kWrite)) {
    const std::string first = l.Unsqueeze(CheckedIndices(l, n, site), {1}, "first_slot");
    rows = nodes.Add("Sub", {rows, first}, "rows");  // [B, M]
    axes = Axes(1, site.axis);
  }
  rows = Wrapped(l, n, site, rows);
  const std::string zero = nodes.Int64s({0});
  const std::string begun = nodes.Add("GreaterOrEqual", {rows, zero}, "begun");
  const std::string open = nodes.Add("Less", {rows, l.Extent(n, kUpdate, site.axis)}, "before_end");
  const std::string fresh = nodes.Add("And", {begun, open}, "written");
  const std::vector<int64_t> behind = Axes(site.axis + 1, site.rank);
  axes.insert(axes.end(), behind.begin(), behind.end());
  const std::string written = l.Unsqueeze(fresh, axes, "written_slots");
  const std::string safe = nodes.Add("Where", {fresh, rows, zero}, "row_or_first");
  std::vector<std::string> extents;
  extents.reserve(static_cast<size_t>(site.rank));
  for (int k = 0; k < site.rank; ++k) extents.push_back(l.Extent(n, kPast, k));
  const std::string index =
      nodes.Add("Expand", {l.Unsqueeze(safe, axes, "row_axes"), l.Join(extents, "buffer_shape")},
                "row_of_slot");
  l.ScopeOf(n);
  const std::string brought = nodes.Add("GatherElements", {l.in(n, kUpdate), index}, "brought",
                                        {MakeAttribute("axis", int64_t{site.axis})});
  nodes.AddNamed("Where", {written, brought, l.in(n, kPast)}, "Where", l.out(n, 0));
}

}  // namespace

bool LowerTensorScatter(Lowering& l, NodeId n, ScatterForm form) {
  Site site;
  if (const std::string why = ReadSite(l, n, &site); !why.empty()) {
    l.Refuse(n, why);
    return false;
  }
  if (form == ScatterForm::kWhere) {
    MakeWhere(l, n, site);
  } else {
    MakeScatterNd(l, n, site);
  }
  l.patch().remove_nodes.insert(n);
  return true;
}

}  // namespace kvlift::lower
