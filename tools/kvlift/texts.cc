#include "kvlift/texts.h"

#include <algorithm>

#include "base/escape.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "kvlift/reports/cache_memory.h"
#include "kvlift/reports/documents.h"
#include "report/text/bytes.h"
#include "report/text/collapse.h"
#include "report/text/table.h"

namespace kvlift::cli {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// Returns a finding with its code, its text and its places.
std::string FindingLines(const Finding& finding, size_t places, const Style& style) {
  std::string text =
      style.Paint(Tone::kBad, finding.code) + "  " + EscapeTerminal(finding.text) + "\n";
  if (!finding.nodes.empty()) {
    text += "       " + style.Paint(Tone::kFaint, "at " + EscapeTerminal(finding.nodes[0]));
    const size_t more = places > 1 ? places : finding.nodes.size();
    if (more > 1) text += fmt::format(" ({} nodes)", more);
    text += "\n";
  }
  return text;
}

// Returns each finding once; findings that differ only in numbers within names are one. The remedy
// comes once per code.
std::string FindingsText(const std::vector<Finding>& findings, const Style& style) {
  constexpr size_t kMost = 12;
  Rows rows;
  for (const Finding& f : findings) {
    rows.push_back({f.code, f.text, f.nodes.empty() ? "" : f.nodes[0]});
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  std::string text;
  size_t shown = 0;
  const Rows groups = CollapseRows(rows, {{1, Numbers::kRanges}, {2, Numbers::kRanges}});
  for (size_t k = 0; k < groups.size() && shown < kMost; ++k, ++shown) {
    const auto same = [&](const std::vector<std::string>& row) {
      return row[0] == groups[k][0] && NamePattern(row[1]) == NamePattern(groups[k][1]) &&
             NamePattern(row[2]) == NamePattern(groups[k][2]);
    };
    const auto places = static_cast<size_t>(std::count_if(rows.begin(), rows.end(), same));
    Finding f{groups[k][0], groups[k][1], {}, {}};
    if (!groups[k][2].empty()) f.nodes.push_back(groups[k][2]);
    text += FindingLines(f, places, style);
    const bool last = k + 1 == groups.size() || groups[k + 1][0] != f.code;
    const FindingInfo* info = FindFinding(f.code);
    if (last && info != nullptr) text += fmt::format("       do: {}\n", info->remedy);
  }
  if (shown < groups.size()) text += fmt::format("and {} more\n", groups.size() - shown);
  return text;
}

std::vector<Finding> ReasonsOf(const Inspection& inspection) {
  std::vector<Finding> reasons;
  for (const CacheReport& c : inspection.caches) {
    if (c.reason) reasons.push_back(*c.reason);
  }
  for (const AttentionReport& a : inspection.attention) {
    if (a.reason) reasons.push_back(*a.reason);
  }
  return reasons;
}

// Returns "f32" for "float32", to keep tables narrow.
std::string ShortType(const std::string& type) {
  return type.rfind("float", 0) == 0    ? "f" + type.substr(5)
         : type.rfind("bfloat", 0) == 0 ? "bf" + type.substr(6)
                                        : type;
}

std::string CachesText(const Inspection& inspection, bool details, const Style& style) {
  Rows rows, more;
  for (const CacheReport& c : inspection.caches) {
    rows.push_back({c.id, std::string(WordOf(c.kind)), c.layout, ShortType(c.dtype), c.input,
                    c.output, c.reason ? c.reason->code : "yes"});
    more.push_back({c.id, c.growing ? "grows" : c.capacity, c.write_start, c.update});
  }
  if (rows.empty()) return {};
  if (!details) {
    rows = CollapseRows(std::move(rows),
                        {{0, Numbers::kBareRanges}, {4, Numbers::kStar}, {5, Numbers::kStar}});
  }
  std::string text = FormatTable({"cache", "kind", "axes", "type", "past", "present", "ok"}, rows,
                                 style, ToneOfCell);
  if (details) text += "\n" + FormatTable({"cache", "capacity", "from", "new rows"}, more, style);
  return text;
}

std::string AttentionText(const Inspection& inspection, bool details, const Style& style) {
  Rows rows, more;
  for (const AttentionReport& a : inspection.attention) {
    rows.push_back({a.id, a.form, fmt::format("{}/{}", a.q_heads, a.kv_heads),
                    fmt::format("{}", a.head_dim), fmt::format("{:.6g}", a.scale), a.mask,
                    a.reason ? a.reason->code : "yes"});
    more.push_back({a.id, a.nodes.empty() ? "" : a.nodes[0]});
  }
  if (rows.empty()) return {};
  if (!details) rows = CollapseRows(std::move(rows), {{0, Numbers::kBareRanges}});
  std::string text = "\n" + FormatTable({"attention",
                                         "form",
                                         "heads",
                                         {"size", Align::kRight},
                                         {"scale", Align::kRight},
                                         "mask",
                                         "ok"},
                                        rows, style, ToneOfCell);
  if (details) text += "\n" + FormatTable({"attention", "node"}, more, style);
  return text;
}

std::string MemoryText(const Inspection& inspection, const Style& style) {
  const std::vector<CacheMemory> memory = MemoryOfCaches(inspection);
  if (memory.empty()) return {};
  Rows rows = {{"pasts and presents"}, {"one buffer each, converted"}};
  std::vector<std::string> titles;
  for (const CacheMemory& m : memory) {
    titles.push_back(m.tokens % 1024 == 0 ? fmt::format("{}k tokens", m.tokens / 1024)
                                          : fmt::format("{} tokens", m.tokens));
    rows[0].push_back(BytesText(m.source));
    rows[1].push_back(BytesText(m.converted));
  }
  std::vector<Column> header = {"memory of caches, per sequence"};
  for (const std::string& title : titles) header.emplace_back(title.c_str(), Align::kRight);
  return "\n" + FormatTable(header, rows, style);
}

template <typename Reports>
int64_t CountConverted(const Reports& reports) {
  return std::count_if(reports.begin(), reports.end(), [](const auto& r) { return r.converted; });
}

// Returns the entries of the ledger that say how far scores may reach. No precondition states them.
std::string ScoreRangesText(const ProvedConversion& converted) {
  Assumptions ranges;
  for (const Assumption& a : converted.conversion.manifest.assumptions.all()) {
    if (a.kind == AssumptionKind::kScoreRange) ranges.Add(a);
  }
  return LedgerText(ranges, /*verbose=*/false);
}

// Returns what was shown about a model that is written.
std::string EqualityText(const ProvedConversion& converted) {
  const std::vector<ProofFact>& facts = converted.proof.facts;
  const auto held =
      std::count_if(facts.begin(), facts.end(), [](const ProofFact& f) { return f.holds(); });
  const char* sizes = converted.conversion.manifest.frozen ? "the frozen sizes" : "all shapes";
  const std::string share =
      facts.empty() ? std::string("nothing is proved")
                    : fmt::format("{} of {} facts hold for {}", held, facts.size(), sizes);
  switch (converted.equality) {
    case ConversionVerdict::kProved:
      return fmt::format("equal: all {} facts hold for {}\n", facts.size(), sizes);
    case ConversionVerdict::kTested:
      return fmt::format("equal as tested: {}, the plans passed\n", share);
    default:
      return fmt::format("not tested: {}\n", share);
  }
}

Tone ToneOf(ConvertStatus status) {
  return status == ConvertStatus::kConverted ? Tone::kGood
         : status == ConvertStatus::kPartial ? Tone::kWarning
         : status == ConvertStatus::kStopped ? Tone::kPlain
                                             : Tone::kBad;
}

}  // namespace

Tone ToneOfCell(std::string_view cell) {
  const auto is = [&](std::initializer_list<std::string_view> words) {
    return std::find(words.begin(), words.end(), cell) != words.end();
  };
  if (is({"yes", "bitwise", "within bound", "equal", "in place", "proved"})) return Tone::kGood;
  if (is({"different", "failed", "NOT DETECTED", "error"})) return Tone::kBad;
  if (is({"skipped", "copy", "inconclusive", "warning"})) return Tone::kWarning;
  const bool code = cell.size() == 5 && cell.substr(0, 2) == "KV" && FindFinding(cell) != nullptr;
  return code ? Tone::kBad : Tone::kPlain;
}

std::string InspectText(const std::string& path, const Inspection& inspection, bool details,
                        bool near_misses, const Style& style) {
  std::string text = CachesText(inspection, details, style);
  text += AttentionText(inspection, details, style);
  text += MemoryText(inspection, style);
  const std::string reasons = FindingsText(ReasonsOf(inspection), style);
  if (!reasons.empty()) text += "\n" + reasons;
  std::vector<Finding> others = inspection.near_misses;
  // Caches that are passed through are listed in any case.
  if (!near_misses && !inspection.caches.empty()) {
    others.erase(std::remove_if(others.begin(), others.end(),
                                [](const Finding& f) { return f.code != "KV226"; }),
                 others.end());
  }
  text += FindingsText(others, style);
  const auto convertible = std::count_if(inspection.caches.begin(), inspection.caches.end(),
                                         [](const CacheReport& c) { return !c.reason; });
  return text + fmt::format("{}: {} nodes, opset {}, {} caches, {} convertible\n",
                            EscapeTerminal(path), inspection.nodes, inspection.opset,
                            inspection.caches.size(), convertible);
}

namespace {

std::string WroteText(const std::vector<std::string>& files) {
  std::string text;
  for (const std::string& file : files) text += fmt::format("wrote {}\n", EscapeTerminal(file));
  return text;
}

// Returns the last lines about a conversion that made no model.
std::string NoModelText(const ProvedConversion& converted, const std::string& status) {
  const Conversion& conversion = converted.conversion;
  const size_t caches = conversion.inspection.caches.size();
  const std::string text = WroteText(converted.dumps);
  if (converted.stopped_after == Step::kLower) {
    return text +
           fmt::format("{} after lower, before caches are looked for: no model written\n", status);
  }
  if (converted.stopped_after) {
    return text + fmt::format("{} after {}: {} caches, {} attentions, no model written\n", status,
                              WordOf(*converted.stopped_after), caches,
                              conversion.inspection.attention.size());
  }
  const char* written = converted.dumps.empty() ? "nothing written" : "no model written";
  if (conversion.status == ConvertStatus::kNothing) {
    return text + fmt::format("{}: no cache found, {}\n", status, written);
  }
  // A model that is refused before caches are looked for has none.
  if (caches == 0) return text + fmt::format("{}: {}\n", status, written);
  return text + fmt::format("{}: {} caches, {}\n", status, caches, written);
}

}  // namespace

std::string ConvertText(const ProvedConversion& converted, const std::vector<std::string>& outputs,
                        const Style& style) {
  const Conversion& conversion = converted.conversion;
  const Inspection& inspection = conversion.inspection;
  const std::string status = style.Paint(ToneOf(conversion.status), StatusName(conversion.status));
  std::string text = FindingsText(ReasonsOf(inspection), style);
  if (!conversion.model) {
    text += FindingsText(inspection.near_misses, style);
    if (converted.equality != ConversionVerdict::kNothing) text += EqualityText(converted);
    return text + NoModelText(converted, status);
  }
  for (const Precondition& p : conversion.manifest.preconditions) {
    text += fmt::format("{}  {} ({})\n", p.code, EscapeTerminal(p.text), WordOf(p.status));
  }
  if (conversion.manifest.uniform) {
    text += fmt::format("one length for the whole batch: {}\n",
                        EscapeTerminal(conversion.manifest.uniform_reason));
  }
  if (const auto& q = conversion.manifest.quantization; q && q->bytes_before && q->bytes_after) {
    text += fmt::format("caches as {}: {} bytes per token instead of {}\n", q->scheme,
                        *q->bytes_after, *q->bytes_before);
  }
  text += ScoreRangesText(converted) + EqualityText(converted);
  text += WroteText(converted.dumps) + WroteText(outputs);
  return text + fmt::format("{}: {} of {} caches, {} of {} attentions, {} -> {} nodes\n", status,
                            CountConverted(inspection.caches), inspection.caches.size(),
                            CountConverted(inspection.attention), inspection.attention.size(),
                            inspection.nodes, conversion.model->graph().node_size());
}

}  // namespace kvlift::cli
