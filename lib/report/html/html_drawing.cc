// Draws a graph in ranks from top to bottom. Graphviz computes the layout where it is installed.
// The layout without it is the same on all machines.
#include <algorithm>
#include <numeric>

#include "fmt/format.h"
#include "report/html/graphviz.h"
#include "report/html/html_parts.h"
#include "report/text/text_width.h"

namespace kvlift::html {
namespace {

constexpr double kBoxHeight = 36, kRankGap = 30, kBoxGap = 14, kMargin = 10;
constexpr int kMostColumns = 24;  // columns of a name in a box
constexpr double kColumn = 6.2;   // width of a column in pixels

struct Box {
  double x = 0, y = 0, width = 0;  // x is the centre, y the top
};

// Shortens a long name at its beginning, because its end says more.
std::string ShownName(const std::string& name) {
  if (DisplayWidth(name) <= kMostColumns) return name;
  const std::vector<std::string> lines = WrapText(name.substr(0, 2000), kMostColumns - 1);
  std::string tail = lines.back();
  for (size_t k = lines.size() - 1; k-- > 0;) {
    if (DisplayWidth(lines[k] + tail) > kMostColumns - 1) break;
    tail = lines[k] + tail;
  }
  return "\u2026" + tail;
}

std::string_view CssClass(DrawnNode::Mark mark) {
  switch (mark) {
    case DrawnNode::Mark::kChanged:
      return "changed";
    case DrawnNode::Mark::kRemoved:
      return "removed";
    case DrawnNode::Mark::kAdded:
      return "added";
    case DrawnNode::Mark::kValue:
      return "value";
    default:
      return "kept";
  }
}

// Returns a sign in front of the operator, so that colour is never the only mark.
std::string_view Sign(DrawnNode::Mark mark) {
  return mark == DrawnNode::Mark::kRemoved   ? "\u2212 "
         : mark == DrawnNode::Mark::kAdded   ? "+ "
         : mark == DrawnNode::Mark::kChanged ? "~ "
                                             : "";
}

class Layout {
 public:
  explicit Layout(const Drawing& drawing) : drawing_(drawing), boxes_(drawing.nodes.size()) {
    for (size_t n = 0; n < boxes_.size(); ++n) {
      const DrawnNode& node = drawing.nodes[n];
      const int columns = std::max(DisplayWidth(ShownName(node.name)), DisplayWidth(node.op) + 4);
      boxes_[n].width = std::max(64.0, 18 + kColumn * std::min(columns, kMostColumns + 4));
    }
    splines_.resize(drawing.edges.size());
    if (PlaceByOthers()) return;
    Rank();
    RouteLongEdges();
    for (int round = 0; round < 8; ++round) Order(round % 2 == 0);
    Place();
  }

  // The boxes of the nodes, followed by the points of ranks that long edges pass.
  const std::vector<Box>& boxes() const { return boxes_; }
  // The boxes that an edge passes on its way down; empty for an edge between neighbouring ranks.
  const std::vector<size_t>& route(size_t edge) const { return routes_[edge]; }
  // The spline of an edge; empty if Graphviz did not compute the layout.
  const std::vector<Point>& spline(size_t edge) const { return splines_[edge]; }
  double width() const { return width_; }
  double height() const { return height_; }

 private:
  bool PlaceByOthers() {
    GraphSizes sizes{kBoxHeight, {}, {}};
    for (const Box& box : boxes_) sizes.widths.push_back(box.width);
    std::vector<size_t> drawn;
    for (size_t e = 0; e < drawing_.edges.size(); ++e) {
      const DrawnEdge& edge = drawing_.edges[e];
      if (edge.alias) continue;
      sizes.edges.emplace_back(edge.from, edge.to);
      drawn.push_back(e);
    }
    auto places = PlaceByGraphviz(sizes);
    if (!places) return false;
    for (size_t n = 0; n < boxes_.size(); ++n) {
      boxes_[n].x = places->centres[n].x + kMargin;
      boxes_[n].y = places->centres[n].y - kBoxHeight / 2 + kMargin;
    }
    for (size_t k = 0; k < drawn.size(); ++k) {
      for (Point& point : places->edges[k]) point = {point.x + kMargin, point.y + kMargin};
      splines_[drawn[k]] = std::move(places->edges[k]);
    }
    width_ = places->width + 2 * kMargin;
    height_ = places->height + 2 * kMargin;
    return true;
  }

  // Ranks nodes by the longest path from above. Nodes without operands then move down to the rank
  // above their first reader.
  void Rank() {
    std::vector<int> rank(boxes_.size(), 0);
    for (size_t round = 0; round < boxes_.size(); ++round) {
      bool moved = false;
      for (const DrawnEdge& e : drawing_.edges) {
        if (e.alias || rank[e.to] > rank[e.from]) continue;
        rank[e.to] = rank[e.from] + 1;
        moved = true;
      }
      if (!moved) break;
    }
    std::vector<bool> fed(boxes_.size(), false);
    std::vector<int> lowest(boxes_.size(), -1);
    for (const DrawnEdge& e : drawing_.edges) {
      if (e.alias) continue;
      fed[e.to] = true;
      lowest[e.from] = lowest[e.from] < 0 ? rank[e.to] : std::min(lowest[e.from], rank[e.to]);
    }
    for (size_t n = 0; n < boxes_.size(); ++n) {
      if (!fed[n] && lowest[n] > 0) rank[n] = lowest[n] - 1;
      if (rank[n] >= static_cast<int>(ranks_.size())) ranks_.resize(rank[n] + 1);
    }
    for (size_t n = 0; n < boxes_.size(); ++n) ranks_[rank[n]].push_back(n);
    rank_of_ = std::move(rank);
  }

  // Gives an edge over several ranks a place of its own in each rank that it passes.
  void RouteLongEdges() {
    constexpr double kPlace = 8;
    routes_.resize(drawing_.edges.size());
    for (size_t e = 0; e < drawing_.edges.size(); ++e) {
      const DrawnEdge& edge = drawing_.edges[e];
      if (edge.alias) continue;
      size_t last = edge.from;
      for (int rank = rank_of_[edge.from] + 1; rank < rank_of_[edge.to]; ++rank) {
        const size_t place = boxes_.size();
        boxes_.push_back({0, 0, kPlace});
        ranks_[rank].push_back(place);
        routes_[e].push_back(place);
        links_.emplace_back(last, place);
        last = place;
      }
      links_.emplace_back(last, edge.to);
    }
  }

  // Sorts the boxes of each rank by the mean place of their neighbours above or below.
  void Order(bool downwards) {
    std::vector<double> place(boxes_.size());
    const auto note = [&](const std::vector<size_t>& rank) {
      for (size_t k = 0; k < rank.size(); ++k) {
        place[rank[k]] = (static_cast<double>(k) + 0.5) / static_cast<double>(rank.size());
      }
    };
    for (const auto& rank : ranks_) note(rank);
    for (size_t i = 0; i < ranks_.size(); ++i) {
      auto& rank = ranks_[downwards ? i : ranks_.size() - 1 - i];
      std::vector<double> mean(boxes_.size());
      for (const size_t n : rank) mean[n] = Mean(n, downwards, place, place[n]);
      std::stable_sort(rank.begin(), rank.end(),
                       [&](size_t a, size_t b) { return mean[a] < mean[b]; });
      note(rank);
    }
  }

  double Mean(size_t n, bool from_above, const std::vector<double>& place, double own) const {
    double sum = 0;
    int count = 0;
    for (const auto& [above, below] : links_) {
      if ((from_above ? below : above) != n) continue;
      sum += place[from_above ? above : below];
      ++count;
    }
    return count == 0 ? own : sum / count;
  }

  void Place() {
    for (const auto& rank : ranks_) {
      double total = -kBoxGap;
      for (const size_t n : rank) total += boxes_[n].width + kBoxGap;
      width_ = std::max(width_, total);
    }
    double y = kMargin;
    for (const auto& rank : ranks_) {
      double total = -kBoxGap;
      for (const size_t n : rank) total += boxes_[n].width + kBoxGap;
      double x = (width_ - total) / 2;
      for (const size_t n : rank) {
        boxes_[n].x = x + boxes_[n].width / 2;
        boxes_[n].y = y;
        x += boxes_[n].width + kBoxGap;
      }
      y += kBoxHeight + kRankGap;
    }
    for (int round = 0; round < 12; ++round) Straighten(round % 2 == 0);
    double left = 1e9, right = 0;
    for (const Box& box : boxes_) {
      left = std::min(left, box.x - box.width / 2);
      right = std::max(right, box.x + box.width / 2);
    }
    for (Box& box : boxes_) box.x += kMargin - left;
    width_ = right - left + 2 * kMargin;
    height_ = y - kRankGap + kMargin;
  }

  // Moves boxes towards their neighbours above or below, as far as the boxes beside them allow.
  void Straighten(bool downwards) {
    std::vector<double> place(boxes_.size());
    for (size_t n = 0; n < boxes_.size(); ++n) place[n] = boxes_[n].x;
    for (auto& rank : ranks_) {
      for (size_t k = 0; k < rank.size(); ++k) {
        Box& box = boxes_[rank[k]];
        double low = -1e9, high = 1e9;
        if (k > 0) {
          const Box& other = boxes_[rank[k - 1]];
          low = other.x + (other.width + box.width) / 2 + kBoxGap;
        }
        if (k + 1 < rank.size()) {
          const Box& other = boxes_[rank[k + 1]];
          high = other.x - (other.width + box.width) / 2 - kBoxGap;
        }
        const double wanted = Mean(rank[k], downwards, place, box.x);
        if (low <= high) box.x = std::clamp(wanted, low, high);
      }
    }
  }

  const Drawing& drawing_;
  std::vector<Box> boxes_;
  std::vector<std::vector<size_t>> ranks_;
  std::vector<int> rank_of_;                      // by node
  std::vector<std::vector<size_t>> routes_;       // by edge
  std::vector<std::vector<Point>> splines_;       // by edge
  std::vector<std::pair<size_t, size_t>> links_;  // between neighbouring ranks
  double width_ = 0, height_ = 0;
};

// Returns a path around the right side, from box to box.
std::string AliasPath(const Box& from, const Box& to) {
  const double x1 = from.x + from.width / 2, x2 = to.x + to.width / 2;
  const double far = std::max(x1, x2) + 34;
  return fmt::format(
      "<path class=\"alias\" d=\"M{0:.1f},{1:.1f} C{2:.1f},{1:.1f} {2:.1f},{3:.1f} "
      "{4:.1f},{3:.1f}\"/>\n",
      x1, from.y + kBoxHeight / 2, far, to.y + kBoxHeight / 2, x2);
}

// Returns a curve from one point down to another.
std::string Bend(double x1, double y1, double x2, double y2) {
  const double half = (y2 - y1) / 2;
  return fmt::format(" C{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}", x1, y1 + half, x2, y2 - half,
                     x2, y2);
}

std::string EdgeMarkup(const std::string& path, double x, double y) {
  return fmt::format(
      "<path class=\"edge\" d=\"{}\"/>\n"
      "<path class=\"tip\" d=\"M{:.1f},{:.1f} l-3.5,-6 h7 z\"/>\n",
      path, x, y);
}

std::string SplinePath(const std::vector<Point>& spline) {
  std::string path = fmt::format("M{:.1f},{:.1f}", spline[0].x, spline[0].y);
  for (size_t k = 1; k + 2 < spline.size(); k += 3) {
    path += fmt::format(" C{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}", spline[k].x, spline[k].y,
                        spline[k + 1].x, spline[k + 1].y, spline[k + 2].x, spline[k + 2].y);
  }
  return EdgeMarkup(path, spline.back().x, spline.back().y);
}

std::string EdgePath(const Layout& layout, size_t edge, const Box& from, const Box& to) {
  constexpr double kTip = 5;
  if (!layout.spline(edge).empty()) return SplinePath(layout.spline(edge));
  double x = from.x, y = from.y + kBoxHeight;
  std::string path = fmt::format("M{:.1f},{:.1f}", x, y);
  for (const size_t place : layout.route(edge)) {
    const Box& box = layout.boxes()[place];
    path += Bend(x, y, box.x, box.y) + fmt::format(" V{:.1f}", box.y + kBoxHeight);
    x = box.x;
    y = box.y + kBoxHeight;
  }
  path += Bend(x, y, to.x, to.y - kTip);
  return EdgeMarkup(path, to.x, to.y);
}

std::string BoxMarkup(const DrawnNode& node, const Box& box) {
  const bool value = node.mark == DrawnNode::Mark::kValue;
  std::string svg = fmt::format(
      "<g><title>{}</title><rect class=\"box {}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
      "height=\"{:.0f}\" rx=\"{}\"/>",
      Text(node.op + " " + node.name), CssClass(node.mark), box.x - box.width / 2, box.y, box.width,
      kBoxHeight, value ? 18 : 4);
  svg += fmt::format(
      "<text text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">{}{}</text>"
      "<text class=\"small\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text></g>\n",
      box.x, box.y + 15, Sign(node.mark), Text(node.op), box.x, box.y + 29,
      Text(ShownName(node.name)));
  return svg;
}

}  // namespace

std::string DrawingSvg(const Drawing& drawing, std::string_view label) {
  if (drawing.nodes.empty()) return {};
  const Layout layout(drawing);
  const bool alias = std::any_of(drawing.edges.begin(), drawing.edges.end(),
                                 [](const DrawnEdge& e) { return e.alias; });
  const double width = layout.width() + (alias ? 40 : 0);
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" "
      "aria-label=\"{2}\" data-nodes=\"{3}\">\n",
      width, layout.height(), Text(label), drawing.nodes.size());
  for (size_t k = 0; k < drawing.edges.size(); ++k) {
    const DrawnEdge& e = drawing.edges[k];
    const Box &from = layout.boxes()[e.from], &to = layout.boxes()[e.to];
    svg += e.alias ? AliasPath(from, to) : EdgePath(layout, k, from, to);
  }
  for (size_t n = 0; n < drawing.nodes.size(); ++n) {
    svg += BoxMarkup(drawing.nodes[n], layout.boxes()[n]);
  }
  return svg + "</svg>\n";
}

}  // namespace kvlift::html
