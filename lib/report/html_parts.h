// Parts of the HTML report. Each function gives markup whose texts are escaped.
#pragma once

#include <string>
#include <string_view>

#include "report/report.h"

namespace kvlift::html {

// At most a few hundred bytes of a text, escaped.
std::string Text(std::string_view text);
// The style sheet: light, dark and printed.
std::string_view StyleSheet();
// Nothing for a table without rows.
std::string TableMarkup(const ReportTable& table);
std::string DrawingSvg(const Drawing& drawing, std::string_view label);
std::string LifetimeSvg(const LifetimeChart& chart);
std::string MemorySvg(const MemoryCurves& curves);
// "1.5 MiB".
std::string BytesText(int64_t bytes);

}  // namespace kvlift::html
