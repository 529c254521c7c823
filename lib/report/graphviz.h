// Places of boxes and edges by Graphviz, where its program `dot` is installed. It is told sizes and
// numbers, never a name out of a model; what is drawn is drawn by ourselves.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kvlift::html {

struct Point {
  double x = 0, y = 0;  // pixels; y grows downwards
};

struct GraphPlaces {
  double width = 0, height = 0;
  std::vector<Point> centres;             // of the boxes
  std::vector<std::vector<Point>> edges;  // cubic splines: 3k + 1 points each
};

struct GraphSizes {
  double height = 0;  // of every box
  std::vector<double> widths;
  std::vector<std::pair<size_t, size_t>> edges;  // from, to
};

// nullopt: there is no such program, or it fails, takes longer than some seconds, or says something
// else than places.
std::optional<GraphPlaces> PlaceByGraphviz(const GraphSizes& sizes);

// What `dot -Tplain` prints for the boxes n0, n1, ...
std::optional<GraphPlaces> ReadPlainPlaces(const std::string& text, const GraphSizes& sizes);

}  // namespace kvlift::html
