#include "report/text/table.h"

#include <algorithm>
#include <numeric>

#include "base/escape.h"

namespace kvlift {
namespace {

// Names can have any length, and the widest cell of a column widens the whole column.
constexpr size_t kMaxCellBytes = 256;
constexpr int kGap = 2;
// Columns are not made narrower than this.
constexpr int kLeast = 8;

using Lines = std::vector<std::string>;

// Narrows the widest column, one step at a time, until the table fits or no column can be narrowed.
void Fit(int width, std::vector<int>* widths) {
  const int gaps = kGap * static_cast<int>(widths->size() - 1);
  int excess = std::accumulate(widths->begin(), widths->end(), gaps) - width;
  for (; excess > 0; --excess) {
    const auto widest = std::max_element(widths->begin(), widths->end());
    if (*widest <= kLeast) return;
    --*widest;
  }
}

class Writer {
 public:
  Writer(const std::vector<Column>& header, std::vector<int> widths, const Style& style)
      : header_(header), widths_(std::move(widths)), style_(style) {}

  // Appends a row; `tones` has one tone per cell.
  void Row(const std::vector<std::string>& cells, const std::vector<Tone>& tones) {
    std::vector<Lines> wrapped;
    size_t height = 1;
    for (size_t k = 0; k < cells.size(); ++k) {
      wrapped.push_back(WrapText(cells[k], widths_[k]));
      height = std::max(height, wrapped.back().size());
    }
    for (size_t line = 0; line < height; ++line) {
      int owed = 0;  // spaces that are written only if a cell follows
      for (size_t k = 0; k < wrapped.size(); ++k) {
        const std::string cell = line < wrapped[k].size() ? wrapped[k][line] : std::string();
        const int pad = widths_[k] - DisplayWidth(cell);
        const bool right = header_[k].align == Align::kRight;
        if (right) owed += pad;
        if (!cell.empty()) {
          text_.append(static_cast<size_t>(owed), ' ');
          text_ += style_.Paint(tones[k], cell);
          owed = 0;
        }
        owed += (right ? 0 : pad) + kGap;
      }
      text_ += '\n';
    }
  }

  std::string Finish() { return std::move(text_); }

 private:
  const std::vector<Column>& header_;
  const std::vector<int> widths_;
  const Style& style_;
  std::string text_;
};

}  // namespace

std::string FormatTable(const std::vector<Column>& header,
                        const std::vector<std::vector<std::string>>& rows, const Style& style,
                        ToneFn tone) {
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : header) lines[0].push_back(column.title);
  for (const auto& row : rows) {
    lines.emplace_back();
    for (size_t k = 0; k < header.size(); ++k) {
      lines.back().push_back(k < row.size() ? Shorten(EscapeTerminal(row[k]), kMaxCellBytes)
                                            : std::string());
    }
  }
  std::vector<int> widths(header.size(), 0);
  for (const auto& line : lines) {
    for (size_t k = 0; k < line.size(); ++k) widths[k] = std::max(widths[k], DisplayWidth(line[k]));
  }
  Fit(style.width, &widths);
  Writer writer(header, std::move(widths), style);
  for (const auto& line : lines) {
    std::vector<Tone> tones;
    for (const std::string& cell : line) {
      tones.push_back(&line == &lines[0] ? Tone::kHeading : tone ? tone(cell) : Tone::kPlain);
    }
    writer.Row(line, tones);
  }
  return writer.Finish();
}

}  // namespace kvlift
