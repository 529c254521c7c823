// What a report of a conversion tells, before any format: words, tables, drawings and curves. Texts
// are as they come from models; whoever formats them escapes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvlift {

struct ReportTable {
  std::string id;       // of the table in the page
  std::string caption;  // one sentence
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
  // The same without layers told once; empty if that says no more.
  std::vector<std::vector<std::string>> all_rows = {};
};

struct DrawnNode {
  enum class Mark { kKept, kChanged, kRemoved, kAdded, kValue };
  std::string op;  // or the kind of a value: "input", "output"
  std::string name;
  Mark mark = Mark::kKept;
};

struct DrawnEdge {
  size_t from = 0, to = 0;
  bool alias = false;  // one buffer: no data flows
};

struct Drawing {
  std::vector<DrawnNode> nodes;
  std::vector<DrawnEdge> edges;
};

// One layer that stands for all of its class.
struct DrawnLayer {
  std::string title;
  Drawing before, after;  // after is empty if there is none
};

// The life of a cache's buffers over the nodes of one step.
struct Lifetime {
  std::string cache;
  int past_until = 0;     // the last node that reads the past
  int present_from = 0;   // the node that makes the present
  int present_until = 0;  // the last node that reads it, or the end
  bool in_place = false;  // the present is written into the past's buffer
};

struct LifetimeChart {
  std::string title;
  int nodes = 0;
  std::vector<Lifetime> caches;
};

// Bytes of all caches of one sequence, for 1 to `capacity` tokens.
struct MemoryCurves {
  int64_t bytes_per_token = 0;
  int64_t capacity = 0;
  bool growing_before = true;
  bool capacity_assumed = false;  // the model leaves it open
};

struct ReportFile {
  std::string role, path, sha256;
  int64_t nodes = 0, opset = 0;
};

struct Report {
  std::string verdict;  // "equal", "different", "inconclusive", "not verified", "not converted"
  std::string reason;   // why it is not equal
  std::string command, version;
  std::vector<ReportFile> files;
  std::vector<std::string> facts;  // short sentences under the verdict
  ReportTable interface, layers, plans, outputs, mutants, proof, aliases, preconditions, refused;
  std::vector<DrawnLayer> drawings;
  std::vector<LifetimeChart> lifetimes;
  std::optional<MemoryCurves> memory;
  std::vector<std::string> counterexample;  // lines
  std::vector<std::string> how_to;          // steps
  std::string json;                         // the documents of the commands, one object
};

// One HTML file that loads nothing and needs no script.
std::string HtmlReport(const Report& report);

}  // namespace kvlift
