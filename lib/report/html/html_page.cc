#include <algorithm>

#include "base/escape.h"
#include "fmt/format.h"
#include "report/html/html_parts.h"
#include "report/text/bytes.h"
#include "report/text/report.h"

namespace kvlift {
namespace {

using html::Text;

// The page embeds at most this much JSON; --json writes larger documents.
constexpr size_t kMaxJsonBytes = size_t{1} << 20;

std::string_view VerdictClass(const std::string& verdict) {
  if (verdict == "equal" || verdict == "equal within quantisation") return "good";
  return verdict == "different" || verdict == "not converted" ? "bad" : "warn";
}

std::string VerdictSentence(const std::string& verdict) {
  if (verdict == "equal") return "Equal: the converted model does what the source does.";
  if (verdict == "equal within quantisation") {
    return "Equal within quantisation: the models differ by no more than rounding caches explains.";
  }
  if (verdict == "equal as tested") {
    return "Equal as tested: every plan passed, and not everything is proved for all shapes.";
  }
  if (verdict == "different") return "Different: the models do not do the same.";
  if (verdict == "inconclusive") return "Inconclusive: nothing disproved, but not proved.";
  if (verdict == "not converted") return "Not converted: nothing was written.";
  return "Not verified: converted, but not proved. Run kvlift verify.";
}

std::string List(const char* element, const std::vector<std::string>& items) {
  if (items.empty()) return {};
  std::string text = fmt::format("<{}>\n", element);
  for (const std::string& item : items) text += fmt::format("<li>{}</li>\n", Text(item));
  return text + fmt::format("</{}>\n", element);
}

class Page {
 public:
  explicit Page(const Report& report) : r_(report) {}

  std::string Run() {
    Verdict();
    Section("interface", "Interface", html::TableMarkup(r_.interface));
    Section("refused", "Refused, with reasons", html::TableMarkup(r_.refused));
    Section("layers", "Layers", html::TableMarkup(r_.layers));
    Section("drawing", "Before and after", Drawings());
    Section("memory", "Memory", Charts());
    Section("verification", "Verification",
            List("ul", r_.counterexample) + html::TableMarkup(r_.plans) +
                html::TableMarkup(r_.outputs) + html::TableMarkup(r_.proof) +
                html::TableMarkup(r_.aliases) + html::TableMarkup(r_.mutants));
    Section("drive", "How to drive the model",
            List("ol", r_.how_to) + html::TableMarkup(r_.preconditions));
    return html::Head(Title()) + Body();
  }

 private:
  void Verdict() {
    verdict_ = fmt::format(
        "<div class=\"verdict {}\" id=\"verdict\" data-verdict=\"{}\">\n<p><b>{}</b></p>\n",
        VerdictClass(r_.verdict), Text(r_.verdict), Text(VerdictSentence(r_.verdict)));
    if (!r_.reason.empty()) verdict_ += fmt::format("<p>{}</p>\n", Text(r_.reason));
    verdict_ += List("ul", r_.facts) + "</div>\n";
    if (!r_.command.empty()) {
      verdict_ += fmt::format("<p class=\"faint\">Made by <code>{}</code> (kvlift {})</p>\n",
                              Text(r_.command), Text(r_.version));
    }
    ReportTable files{"files", "", {"", "file", "nodes", "opset", "SHA-256"}, {}};
    for (const ReportFile& f : r_.files) {
      files.rows.push_back({f.role, f.path, fmt::format("{}", f.nodes), fmt::format("{}", f.opset),
                            f.sha256.empty() ? "not written" : f.sha256});
    }
    verdict_ += html::TableMarkup(files);
  }

  // Adds a section, unless its content is empty.
  void Section(const char* id, const char* title, const std::string& content) {
    if (content.empty()) return;
    nav_ += fmt::format("<a href=\"#{}\">{}</a>\n", id, title);
    body_ += fmt::format("<section id=\"{}\">\n<h2>{}</h2>\n{}</section>\n", id, title, content);
  }

  std::string Drawings() const {
    if (r_.drawings.empty()) return {};
    std::string text =
        "<p class=\"key\"><span>kept</span><span class=\"removed\">\u2212 removed</span>"
        "<span class=\"added\">+ added</span><span class=\"changed\">~ changed</span>"
        "<span class=\"alias\">one buffer</span></p>\n";
    for (const DrawnLayer& layer : r_.drawings) {
      text += fmt::format("<h3>{}</h3>\n<div class=\"pair\">\n", Text(layer.title));
      text += Figure("before", html::DrawingSvg(layer.before, "before: " + layer.title));
      text += Figure("after", html::DrawingSvg(layer.after, "after: " + layer.title));
      text += "</div>\n";
    }
    return text;
  }

  static std::string Figure(const char* caption, const std::string& svg) {
    if (svg.empty()) return {};
    return fmt::format(
        "<figure><figcaption>{}</figcaption><div class=\"scroll draw\">\n{}</div></figure>\n",
        caption, svg);
  }

  std::string Charts() const {
    std::string text;
    for (const LifetimeChart& chart : r_.lifetimes) {
      text += fmt::format(
          "<figure><figcaption>{}</figcaption><div class=\"scroll\">\n{}</div></figure>\n",
          Text(chart.title), html::LifetimeSvg(chart));
    }
    if (!text.empty()) {
      text =
          "<p>How long the buffers of the caches live in one step, from the first node to the "
          "last. Grey is the past, green the present; a blue line is a write in place.</p>\n" +
          text;
    }
    if (!r_.memory) return text;
    const MemoryCurves& m = *r_.memory;
    const int64_t full = m.bytes_per_token * m.capacity;
    std::string caption = fmt::format(
        "Bytes of all caches for one sequence, {} per token. After: {} for a capacity of {} "
        "tokens{}.",
        BytesText(m.bytes_per_token), BytesText(full), m.capacity,
        m.capacity_assumed ? " (assumed here: the model leaves it to the host)" : "");
    if (m.growing_before) {
      caption += fmt::format(
          " Before: past and present side by side, {} in the last step, which "
          "copies {}.",
          BytesText(full * 2 - m.bytes_per_token), BytesText(full - m.bytes_per_token));
    }
    return text +
           fmt::format(
               "<figure><figcaption>{}</figcaption><div class=\"scroll\">\n{}</div></figure>\n",
               Text(caption), html::MemorySvg(m));
  }

  std::string Title() const {
    const std::string path = r_.files.empty() ? "" : r_.files[0].path;
    return "kvlift: " + path.substr(path.rfind('/') + 1);
  }

  std::string Body() const {
    std::string text = fmt::format(
        "<body>\n<header>\n<h1>{}</h1>\n{}<nav>\n{}</nav>\n</header>\n<main>\n{}</main>\n",
        Text(Title()), verdict_, nav_, body_);
    if (r_.json.size() <= kMaxJsonBytes) {
      text += fmt::format("<script type=\"application/json\" id=\"data\">{}</script>\n",
                          EscapeJsonInScript(r_.json));
    }
    return text + "</body>\n</html>\n";
  }

  const Report& r_;
  std::string verdict_, nav_, body_;
};

}  // namespace

std::string html::Head(std::string_view title) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'\">\n<meta name=\"referrer\" content=\"no-referrer\">\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n",
      Text(title), StyleSheet());
}

std::string HtmlReport(const Report& report) { return Page(report).Run(); }

}  // namespace kvlift
