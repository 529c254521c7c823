#include "report/text/diagnostic.h"

#include "fmt/format.h"

namespace kvlift {

std::string OneLine(const Finding& finding) {
  std::string text = finding.code.empty() ? "" : finding.code + ": ";
  text += finding.text;
  if (finding.nodes.empty()) return text;
  text += " (at " + finding.nodes[0];
  if (finding.nodes.size() > 1) text += fmt::format(" and {} more", finding.nodes.size() - 1);
  return text + ")";
}

}  // namespace kvlift
