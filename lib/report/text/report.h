// The content of a report on a conversion, before it is formatted: words, tables, drawings and
// curves. Texts are as they come from models; the formatter escapes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvlift {

struct ReportTable {
  std::string id;       // id of the table's element in the page
  std::string caption;  // one sentence
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
  // All rows, where `rows` merges layers that are alike; empty if there is no difference.
  std::vector<std::vector<std::string>> all_rows = {};
};

// A box in a drawing: a node, or a value of the graph's interface.
struct DrawnNode {
  enum class Mark { kKept, kChanged, kRemoved, kAdded, kValue };
  std::string op;  // operator type; for a value "input" or "output"
  std::string name;
  Mark mark = Mark::kKept;
};

// An edge between two boxes, by their places in Drawing::nodes.
struct DrawnEdge {
  size_t from = 0, to = 0;
  bool alias = false;  // both ends share one buffer; no data flows
};

struct Drawing {
  std::vector<DrawnNode> nodes;
  std::vector<DrawnEdge> edges;
};

// A drawing of one layer that stands for all layers of its class.
struct DrawnLayer {
  std::string title;
  Drawing before, after;  // `after` is empty if the model was not converted
};

// The nodes of a step that need the buffers of a cache. Nodes are counted from 0 in topological
// order.
struct Lifetime {
  std::string cache;
  int past_until = 0;     // the last node that reads the past
  int present_from = 0;   // the node that makes the present
  int present_until = 0;  // the last node that reads it, or the end
  bool in_place = false;  // the present is written into the past's buffer
};

// The buffers of several caches in one step of a model with `nodes` nodes.
struct LifetimeChart {
  std::string title;
  int nodes = 0;
  std::vector<Lifetime> caches;
};

// The memory of all caches for one sequence, as a function of the number of tokens.
struct MemoryCurves {
  int64_t bytes_per_token = 0;
  // M in tokens.
  int64_t capacity = 0;
  bool growing_before = true;
  bool capacity_assumed = false;  // the model leaves the capacity to the host
};

// A model file of the report.
struct ReportFile {
  std::string role, path, sha256;
  int64_t nodes = 0, opset = 0;
};

struct Report {
  // "equal", "equal within quantisation", "equal as tested", "different", "inconclusive", "not
  // converted", or "not verified".
  std::string verdict;
  std::string reason;  // why the verdict is not "equal"; empty if it is
  std::string command, version;
  std::vector<ReportFile> files;
  std::vector<std::string> facts;  // short sentences under the verdict
  ReportTable interface, layers, plans, outputs, mutants, proof, aliases, preconditions, refused;
  std::vector<DrawnLayer> drawings;
  std::vector<LifetimeChart> lifetimes;
  std::optional<MemoryCurves> memory;
  std::vector<std::string> counterexample;  // lines of text; empty if there is no counterexample
  std::vector<std::string> how_to;          // steps in their order
  std::string json;                         // the JSON documents of the commands, as one object
};

// Returns one HTML file that loads nothing and needs no script.
std::string HtmlReport(const Report& report);

}  // namespace kvlift
