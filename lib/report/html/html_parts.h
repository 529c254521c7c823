// Parts of the HTML report. Each function returns markup in which texts are escaped.
#pragma once

#include <string>
#include <string_view>

#include "report/text/report.h"

namespace kvlift::html {

// Returns at most 400 bytes of a text, escaped, with a note of how many bytes were left out.
std::string Text(std::string_view text);
// Returns a page up to the end of its head. The page may load nothing and run no script.
std::string Head(std::string_view title);
// The style sheet, for light and dark screens and for print.
std::string_view StyleSheet();
// Returns an empty string for a table without rows. Columns that are empty in all rows are left
// out, except for the first.
std::string TableMarkup(const ReportTable& table);
// Returns an empty string for a drawing without nodes.
std::string DrawingSvg(const Drawing& drawing, std::string_view label);
// Return a chart as an SVG element.
std::string LifetimeSvg(const LifetimeChart& chart);
std::string MemorySvg(const MemoryCurves& curves);

}  // namespace kvlift::html
