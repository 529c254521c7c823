#include <algorithm>
#include <memory>

#include "base/escape.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kvlift/commands/commands.h"
#include "kvlift/inputs/model_diff.h"
#include "report/text/collapse.h"
#include "report/text/table.h"

namespace kvlift::cli {
namespace {

using nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

struct Compared {
  Graph before, after;
  ModelDiff diff;
};

ordered_json ValuesJson(const std::vector<ValueChange>& changes) {
  ordered_json list = ordered_json::array();
  for (const ValueChange& c : changes) {
    ordered_json one = {{"name", c.name}, {"before", nullptr}, {"after", nullptr}};
    if (!c.before.empty()) one["before"] = c.before;
    if (!c.after.empty()) one["after"] = c.after;
    list.push_back(std::move(one));
  }
  return list;
}

ordered_json CountsJson(const std::vector<CountChange>& changes, const char* key) {
  ordered_json list = ordered_json::array();
  for (const CountChange& c : changes) {
    list.push_back({{key, c.what}, {"before", c.before}, {"after", c.after}});
  }
  return list;
}

ordered_json RefsJson(const std::vector<NodeRef>& nodes) {
  ordered_json list = ordered_json::array();
  for (const NodeRef& n : nodes) list.push_back({{"name", n.name}, {"operator", n.op}});
  return list;
}

ordered_json Document(const DiffFlags& flags, const Compared& c) {
  const ModelDiff& d = c.diff;
  ordered_json changed = ordered_json::array();
  for (const NodeChange& n : d.changed) {
    changed.push_back({{"name", n.name}, {"operator", n.op}, {"what", n.what}});
  }
  return {{"schema", "kvlift/diff/1"},
          {"same", d.Same()},
          {"before", {{"path", flags.before}, {"nodes", c.before.num_nodes()}}},
          {"after", {{"path", flags.after}, {"nodes", c.after.num_nodes()}}},
          {"versions", CountsJson(d.opsets, "domain")},
          {"inputs", ValuesJson(d.inputs)},
          {"outputs", ValuesJson(d.outputs)},
          {"operators", CountsJson(d.operators, "operator")},
          {"constants",
           {{"kept", d.constants.kept},
            {"changed", d.constants.changed},
            {"removed", d.constants.removed},
            {"added", d.constants.added},
            {"bytes_before", d.constants.bytes_before},
            {"bytes_after", d.constants.bytes_after}}},
          {"nodes",
           {{"kept", d.kept},
            {"changed", std::move(changed)},
            {"removed", RefsJson(d.removed)},
            {"added", RefsJson(d.added)}}}};
}

// Shows the parts of a type that differ, since the full type twice in a row hides the difference.
void AddInterface(const char* side, const std::vector<ValueChange>& changes, Rows* rows) {
  for (const ValueChange& c : changes) {
    const std::string what = c.before.empty()  ? "+ " + c.after
                             : c.after.empty() ? "- " + c.before
                                               : c.before + " -> " + c.after;
    rows->push_back({side, c.name, what});
  }
}

std::string InterfaceText(const ModelDiff& diff, const Style& style) {
  Rows rows;
  AddInterface("input", diff.inputs, &rows);
  AddInterface("output", diff.outputs, &rows);
  if (rows.empty()) return {};
  rows = CollapseRows(std::move(rows), {{1, Numbers::kStar}});
  return FormatTable({"", "name", "type"}, rows, style) + "\n";
}

std::string CountsText(const ModelDiff& diff, const Style& style) {
  Rows rows;
  for (const auto* changes : {&diff.opsets, &diff.operators}) {
    for (const CountChange& c : *changes) {
      const std::string what = changes == &diff.operators ? c.what
                               : c.what == "IR"           ? "IR version"
                                                          : "opset " + c.what;
      rows.push_back({what, fmt::format("{}", c.before), fmt::format("{}", c.after),
                      fmt::format("{:+}", c.after - c.before)});
    }
  }
  if (rows.empty()) return {};
  return FormatTable({"", {"before", Align::kRight}, {"after", Align::kRight}, {"", Align::kRight}},
                     rows, style) +
         "\n";
}

// Lists nodes by name; those of layers that are alike share a line.
std::string NodesText(const Compared& c, bool details, const Style& style) {
  constexpr size_t kMost = 20;
  Rows rows;
  for (const NodeChange& n : c.diff.changed) {
    rows.push_back({"changed", n.op, n.name, fmt::format("{}", fmt::join(n.what, "; "))});
  }
  if (details) {
    for (const NodeRef& n : c.diff.removed) rows.push_back({"removed", n.op, n.name, ""});
    for (const NodeRef& n : c.diff.added) rows.push_back({"added", n.op, n.name, ""});
  } else {
    rows = CollapseRows(std::move(rows), {{2, Numbers::kStar}, {3, Numbers::kStar}});
  }
  if (rows.empty()) return {};
  const size_t all = rows.size();
  if (!details && all > kMost) rows.resize(kMost);
  std::string text = FormatTable({"node", "operator", "name", "what"}, rows, style);
  if (rows.size() < all)
    text += fmt::format("and {} more; --details lists all\n", all - rows.size());
  return text + "\n";
}

std::string Text(const DiffFlags& flags, const Compared& c, const Style& style) {
  const ModelDiff& d = c.diff;
  std::string text =
      InterfaceText(d, style) + CountsText(d, style) + NodesText(c, flags.details, style);
  const ConstantCounts& w = d.constants;
  if (w.changed + w.removed + w.added > 0) {
    text += fmt::format("constants: {} kept, {} changed, {} removed, {} added; {} -> {} bytes\n",
                        w.kept, w.changed, w.removed, w.added, w.bytes_before, w.bytes_after);
  }
  return text + fmt::format("{}: nodes {} kept, {} changed, {} removed, {} added\n",
                            d.Same() ? style.Paint(Tone::kGood, "same")
                                     : style.Paint(Tone::kWarning, "differ"),
                            d.kept, d.changed.size(), d.removed.size(), d.added.size());
}

}  // namespace

int RunDiff(const DiffFlags& flags, Io io) {
  const auto before = Load(io, flags.before, flags.common);
  if (!before) return kUnreadable;
  const auto after = Load(io, flags.after, flags.common);
  if (!after) return kUnreadable;
  io.Say("comparing the graphs");
  auto old_graph = Graph::Build(before->proto), new_graph = Graph::Build(after->proto);
  for (const auto* graph : {&old_graph, &new_graph}) {
    if (graph->ok()) continue;
    Complain(io, graph == &old_graph ? flags.before : flags.after, graph->status());
    return kUnreadable;
  }
  ModelDiff diff = Diff(*old_graph, *new_graph);
  const Compared compared{*std::move(old_graph), *std::move(new_graph), std::move(diff)};
  if (flags.common.json) {
    PrintJson(io, Document(flags, compared));
  } else if (!flags.common.quiet) {
    io.Results() << Text(flags, compared, io.OutStyle());
  }
  return compared.diff.Same() ? kDone : kFindings;
}

}  // namespace kvlift::cli
