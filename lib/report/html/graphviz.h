// Layout of a drawing by Graphviz, where its program `dot` is installed. It is given sizes and
// numbers only, never a name from a model; the drawing itself is made by kvlift.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kvlift::html {

struct Point {
  double x = 0, y = 0;  // in pixels; y grows downwards
};

// The layout of a drawing, in pixels.
struct GraphPlaces {
  double width = 0, height = 0;
  std::vector<Point> centres;             // one per box
  std::vector<std::vector<Point>> edges;  // one cubic spline of 3k + 1 points per edge
};

// The boxes and edges that are laid out, in pixels.
struct GraphSizes {
  double height = 0;  // height of every box
  // One width per box.
  std::vector<double> widths;
  std::vector<std::pair<size_t, size_t>> edges;  // (from, to) as box numbers
};

// Runs `dot`. Returns nullopt if the program is not installed, fails, takes longer than five
// seconds, or prints anything that ReadPlainPlaces refuses.
std::optional<GraphPlaces> PlaceByGraphviz(const GraphSizes& sizes);

// Parses the output of `dot -Tplain` for boxes named n0, n1, ... Returns nullopt unless it is
// well-formed and has as many boxes and edges as `sizes`.
std::optional<GraphPlaces> ReadPlainPlaces(const std::string& text, const GraphSizes& sizes);

}  // namespace kvlift::html
