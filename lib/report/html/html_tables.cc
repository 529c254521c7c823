#include <algorithm>

#include "base/escape.h"
#include "fmt/format.h"
#include "report/html/html_parts.h"

namespace kvlift::html {
namespace {

constexpr size_t kMaxHtmlCellBytes = 400;
// Longer tables are cut; programs read them from the JSON.
constexpr size_t kMaxRows = 1500;

std::string_view ClassOf(const std::string& cell) {
  const auto is = [&](std::initializer_list<std::string_view> words) {
    return std::find(words.begin(), words.end(), cell) != words.end();
  };
  if (is({"yes", "bitwise", "within bound", "in place", "proved", "guarded", "equal"})) {
    return " class=\"yes\"";
  }
  const bool code = cell.size() == 5 && cell.rfind("KV", 0) == 0;
  if (code || is({"no", "different", "failed", "NOT DETECTED"})) return " class=\"no\"";
  return is({"skipped", "copy", "assumed", "only tested"}) ? " class=\"so\"" : "";
}

std::string RowsMarkup(const std::vector<std::vector<std::string>>& rows) {
  std::string text;
  for (size_t k = 0; k < std::min(rows.size(), kMaxRows); ++k) {
    text += "<tr>";
    for (size_t c = 0; c < rows[k].size(); ++c) {
      const std::string& cell = rows[k][c];
      text += fmt::format("<td{}>{}</td>", c == 0 ? "" : ClassOf(cell), Text(cell));
    }
    text += "</tr>\n";
  }
  return text;
}

std::string OneTable(const ReportTable& table, const std::string& id,
                     const std::vector<std::vector<std::string>>& rows) {
  std::string text = fmt::format("<div class=\"scroll\"><table id=\"{}\" data-rows=\"{}\"{}>\n", id,
                                 rows.size(), table.header.size() > 4 ? " class=\"wide\"" : "");
  if (!table.caption.empty()) text += fmt::format("<caption>{}</caption>\n", Text(table.caption));
  text += "<thead><tr>";
  for (const std::string& title : table.header) {
    text += fmt::format("<th scope=\"col\">{}</th>", Text(title));
  }
  text += "</tr></thead>\n<tbody>\n" + RowsMarkup(rows) + "</tbody></table></div>\n";
  if (rows.size() > kMaxRows) {
    text += fmt::format("<p class=\"faint\">and {} more rows</p>\n", rows.size() - kMaxRows);
  }
  return text;
}

ReportTable WithoutEmptyColumns(ReportTable table) {
  for (size_t c = table.header.size(); c-- > 1;) {
    const auto empty = [c](const std::vector<std::string>& row) { return row[c].empty(); };
    if (!std::all_of(table.rows.begin(), table.rows.end(), empty)) continue;
    const auto at = static_cast<std::ptrdiff_t>(c);
    table.header.erase(table.header.begin() + at);
    for (auto* rows : {&table.rows, &table.all_rows}) {
      for (auto& row : *rows) row.erase(row.begin() + at);
    }
  }
  return table;
}

}  // namespace

std::string Text(std::string_view text) { return EscapeMarkup(Shorten(text, kMaxHtmlCellBytes)); }

std::string TableMarkup(const ReportTable& whole) {
  if (whole.rows.empty()) return {};
  const ReportTable table = WithoutEmptyColumns(whole);
  std::string text = OneTable(table, table.id, table.rows);
  if (table.all_rows.empty()) return text;
  ReportTable bare = table;
  bare.caption.clear();
  return text + fmt::format("<details><summary>all {} of them</summary>\n{}</details>\n",
                            table.all_rows.size(),
                            OneTable(bare, table.id + "-all", table.all_rows));
}

}  // namespace kvlift::html
