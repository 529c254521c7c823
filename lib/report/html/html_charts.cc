#include <algorithm>
#include <cmath>

#include "fmt/format.h"
#include "report/html/html_parts.h"
#include "report/text/bytes.h"

namespace kvlift::html {
namespace {

constexpr double kWidth = 720;

// Maps values from 0 to `values` to pixels from `low` to `high`.
struct Axis {
  double low, high, values;
  double At(double value) const { return low + (high - low) * value / std::max(values, 1.0); }
};

std::string Bar(const char* css, double x, double y, double width, double height) {
  return fmt::format(
      "<rect class=\"box {}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
      "rx=\"3\"/>\n",
      css, x, y, std::max(width, 2.0), height);
}

}  // namespace

std::string LifetimeSvg(const LifetimeChart& chart) {
  constexpr double kRow = 34, kTop = 8, kLabels = 150;
  const Axis axis{kLabels, kWidth - 12, static_cast<double>(chart.nodes)};
  const double bottom = kTop + kRow * static_cast<double>(chart.caches.size());
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" width=\"{:.0f}\" role=\"img\" aria-label=\"{}\">\n",
      kWidth, bottom + 26, kWidth, Text(chart.title));
  double y = kTop;
  for (const Lifetime& life : chart.caches) {
    svg += fmt::format("<text x=\"0\" y=\"{:.1f}\">{}</text>\n", y + 17, Text(life.cache));
    const double write = axis.At(life.present_from + 0.5);
    if (life.in_place) {
      svg += Bar("past", axis.At(0), y + 6, write - axis.At(0), 14);
      svg += Bar("present", write, y + 6, axis.At(life.present_until) - write, 14);
      svg += fmt::format(
          "<line class=\"write\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/>\n",
          write, y + 2, y + 24);
    } else {
      svg += Bar("past", axis.At(0), y + 2, axis.At(life.past_until + 1) - axis.At(0), 11);
      svg += Bar("present", write, y + 15, axis.At(life.present_until) - write, 11);
    }
    y += kRow;
  }
  svg += fmt::format(
      "<line class=\"axis\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", axis.low,
      bottom + 4, axis.high, bottom + 4);
  svg += fmt::format("<text class=\"small\" x=\"{:.1f}\" y=\"{:.1f}\">first node</text>\n",
                     axis.low, bottom + 18);
  svg += fmt::format(
      "<text class=\"small\" text-anchor=\"end\" x=\"{:.1f}\" y=\"{:.1f}\">node {}</text>\n",
      axis.high, bottom + 18, chart.nodes);
  return svg + "</svg>\n";
}

std::string MemorySvg(const MemoryCurves& c) {
  constexpr double kHeight = 260, kLeft = 74, kBottom = 34, kTop = 14;
  const double tokens = static_cast<double>(c.capacity);
  const double per = static_cast<double>(c.bytes_per_token);
  // A growing step holds the past and the present at once.
  const double growing = c.growing_before ? (2 * tokens - 1) * per : tokens * per;
  const Axis x{kLeft, kWidth - 16, tokens};
  const Axis y{kHeight - kBottom, kTop, std::max(growing, tokens * per)};
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" role=\"img\" "
      "aria-label=\"bytes of the caches by tokens\">\n",
      kWidth, kHeight);
  for (int k = 0; k <= 4; ++k) {
    const double at = y.At(y.values * k / 4);
    svg += fmt::format(
        "<line class=\"axis\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n"
        "<text class=\"small\" text-anchor=\"end\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
        x.low, at, x.high, at, x.low - 6, at + 4, BytesText(std::llround(y.values * k / 4)));
    const double right = x.At(tokens * k / 4);
    svg += fmt::format(
        "<text class=\"small\" text-anchor=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{:.0f}</text>\n",
        k == 0   ? "start"
        : k == 4 ? "end"
                 : "middle",
        right, kHeight - kBottom + 16, tokens * k / 4);
  }
  svg += fmt::format(
      "<text class=\"small\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">tokens</text>\n",
      (x.low + x.high) / 2, kHeight - 4);
  if (c.growing_before) {
    svg += fmt::format("<path class=\"grow\" d=\"M{:.1f},{:.1f} L{:.1f},{:.1f}\"/>\n", x.At(0),
                       y.At(per), x.At(tokens), y.At(growing));
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">before</text>\n",
                       x.At(tokens * 0.74), y.At(growing * 0.8));
  }
  svg += fmt::format("<path class=\"fixed\" d=\"M{:.1f},{:.1f} L{:.1f},{:.1f}\"/>\n", x.At(0),
                     y.At(tokens * per), x.At(tokens), y.At(tokens * per));
  svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">after</text>\n", x.At(tokens * 0.04),
                     y.At(tokens * per) - 6);
  return svg + "</svg>\n";
}

}  // namespace kvlift::html
