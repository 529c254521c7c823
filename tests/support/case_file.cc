#include "support/case_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <utility>

#include "base/status.h"
#include "fmt/format.h"
#include "support/case_edits.h"

namespace kvlift {
namespace {

constexpr std::string_view kSectionMark = "# ---- ";

using Entries = std::map<std::string, std::string>;

absl::Status Broken(std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("{}", what));
}

std::string Trim(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::vector<std::string> Words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

absl::StatusOr<std::map<std::string, std::string>> SplitSections(const std::string& text) {
  std::map<std::string, std::string> sections;
  std::istringstream stream(text);
  std::string line, current;
  while (std::getline(stream, line)) {
    if (line.starts_with(kSectionMark)) {
      current = Trim(line.substr(kSectionMark.size()));
      if (!sections.try_emplace(current).second) {
        return Broken(fmt::format("section {} occurs twice", current));
      }
    } else if (current.empty()) {
      if (!Trim(line).empty()) return Broken("text in front of the first section");
    } else {
      sections[current] += line + "\n";
    }
  }
  for (const auto& [name, body] : sections) {
    if (name != "case" && name != "before" && name != "edits" && name != "after" &&
        name != "refuse" && name != "keep") {
      return Broken(fmt::format("unknown section {}", name));
    }
  }
  return sections;
}

absl::StatusOr<Entries> ReadEntries(const std::string& body, const std::set<std::string>& known) {
  Entries entries;
  std::istringstream stream(body);
  std::string line;
  while (std::getline(stream, line)) {
    if (Trim(line).empty()) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) return Broken(fmt::format("no \"key: value\": {}", line));
    const std::string key = Trim(line.substr(0, colon));
    if (!known.contains(key)) return Broken(fmt::format("unknown key {}", key));
    if (!entries.try_emplace(key, Trim(line.substr(colon + 1))).second) {
      return Broken(fmt::format("key {} occurs twice", key));
    }
  }
  return entries;
}

template <typename T>
absl::Status Choose(const Entries& entries, const std::string& key,
                    const std::map<std::string, T>& choices, T* result) {
  const auto it = entries.find(key);
  if (it == entries.end()) return absl::OkStatus();
  const auto choice = choices.find(it->second);
  if (choice == choices.end()) return Broken(fmt::format("unknown {}: {}", key, it->second));
  *result = choice->second;
  return absl::OkStatus();
}

absl::Status ReadOptions(const Entries& entries, ConvertOptions* options) {
  KV_RETURN_IF_ERROR(Choose<Target>(entries, "target",
                                    {{"spec", Target::kSpec},
                                     {"ort", Target::kOrt},
                                     {"genai", Target::kGenai},
                                     {"genai-static", Target::kGenaiStatic},
                                     {"tensorrt", Target::kTensorRt},
                                     {"portable", Target::kPortable}},
                                    &options->target));
  KV_RETURN_IF_ERROR(Choose<Control>(entries, "control",
                                     {{"derived", Control::kDerived}, {"input", Control::kInput}},
                                     &options->control));
  KV_RETURN_IF_ERROR(Choose<MaskForm>(entries, "mask",
                                      {{"causal", MaskForm::kCausal},
                                       {"explicit", MaskForm::kExplicit},
                                       {"additive", MaskForm::kAdditive}},
                                      &options->mask));
  KV_RETURN_IF_ERROR(Choose<ReadForm>(
      entries, "read", {{"prefix", ReadForm::kPrefix}, {"full", ReadForm::kFull}}, &options->read));
  KV_RETURN_IF_ERROR(Choose<Padding>(
      entries, "padding", {{"keep", Padding::kKeep}, {"none", Padding::kNone}}, &options->padding));
  KV_RETURN_IF_ERROR(
      Choose<WriteMode>(entries, "mode", {{"circular", WriteMode::kCircular}}, &options->mode));
  KV_RETURN_IF_ERROR(
      Choose<Layout>(entries, "layout", {{"bnsd", Layout::kBnsd}}, &options->layout));
  KV_RETURN_IF_ERROR(Choose<CacheTensors>(
      entries, "cache_tensors", {{"packed", CacheTensors::kPacked}}, &options->cache_tensors));
  KV_RETURN_IF_ERROR(
      Choose<IoNames>(entries, "io_names", {{"static", IoNames::kStatic}}, &options->io_names));
  KV_RETURN_IF_ERROR(Choose<Rotary>(
      entries, "rotary", {{"keep", Rotary::kKeep}, {"fused", Rotary::kFused}}, &options->rotary));
  KV_RETURN_IF_ERROR(
      Choose<Rounding>(entries, "rounding", {{"free", Rounding::kFree}}, &options->rounding));
  KV_RETURN_IF_ERROR(Choose<StepLength>(entries, "step_length", {{"fixed", StepLength::kFixed}},
                                        &options->step_length));
  if (const auto it = entries.find("window"); it != entries.end()) {
    options->window = WindowForm::kCircular;
    if (it->second != "circular") options->window_capacity = std::stoll(it->second);
  }
  if (const auto it = entries.find("quantize_cache"); it != entries.end()) {
    options->quantize_cache = ReadCacheQuantization(it->second);
    if (!options->quantize_cache) return Broken("unknown quantize_cache: " + it->second);
  }
  if (const auto it = entries.find("max_seq_len"); it != entries.end()) {
    options->max_seq_len = std::stoll(it->second);
  }
  if (const auto it = entries.find("only"); it != entries.end()) options->only = {it->second};
  if (const auto it = entries.find("skip"); it != entries.end()) options->skip = {it->second};
  return absl::OkStatus();
}

std::optional<std::string> Optional(const Entries& entries, const std::string& key) {
  const auto it = entries.find(key);
  return it == entries.end() ? std::nullopt : std::optional(it->second);
}

absl::StatusOr<Refusal> ReadRefusal(const std::string& body) {
  KV_ASSIGN_OR_RETURN(Entries entries,
                      ReadEntries(body, {"code", "node", "text", "value", "also", "status"}));
  Refusal refusal;
  for (const char* key : {"code", "text"}) {
    if (!entries.contains(key)) return Broken(fmt::format("refuse without {}", key));
  }
  refusal.code = entries["code"];
  refusal.text = entries["text"];
  refusal.node = entries["node"];
  refusal.value = entries["value"];
  refusal.also = Words(entries["also"]);
  if (refusal.node.empty() && refusal.value.empty()) {
    return Broken("refuse without node and value");
  }
  if (const auto status = Optional(entries, "status")) refusal.status = *status;
  if (refusal.status != "refused" && refusal.status != "nothing") {
    return Broken(fmt::format("unknown status {}", refusal.status));
  }
  return refusal;
}

std::string PathOf(const std::filesystem::path& folder, const std::string& name) {
  return (folder / (name + ".onnxtxt")).string();
}

// Returns the source of a case: its section `before`, or that of its base with its edits.
absl::StatusOr<std::string> SourceOf(const std::string& path,
                                     const std::map<std::string, std::string>& sections,
                                     const std::optional<std::string>& base) {
  if (!base) {
    if (!sections.contains("before")) return Broken("no section before");
    if (sections.contains("edits")) return Broken("edits without a base");
    return sections.at("before");
  }
  if (sections.contains("before")) return Broken("a base beside a section before");
  const std::string base_path = PathOf(std::filesystem::path(path).parent_path(), *base);
  if (!std::filesystem::exists(base_path)) return Broken(fmt::format("no base {}", *base));
  KV_ASSIGN_OR_RETURN(const auto of_base, SplitSections(ReadFile(base_path)));
  if (!of_base.contains("before")) {
    return Broken(fmt::format("the base {} has no section before", *base));
  }
  if (!sections.contains("edits")) return of_base.at("before");
  return ApplyEdits(of_base.at("before"), sections.at("edits"));
}

}  // namespace

absl::StatusOr<TextCase> ParseCase(const std::string& path, const std::string& text) {
  KV_ASSIGN_OR_RETURN(auto sections, SplitSections(text));
  if (!sections.contains("case")) return Broken("no section case");
  if (sections.contains("after") == sections.contains("refuse")) {
    return Broken("needs a section after or a section refuse");
  }
  KV_ASSIGN_OR_RETURN(
      Entries entries,
      ReadEntries(
          sections["case"],
          {"rule",          "base",     "only",    "skip",          "target", "max_seq_len",
           "control",       "mask",     "read",    "padding",       "mode",   "layout",
           "cache_tensors", "io_names", "rotary",  "rounding",      "window", "quantize_cache",
           "step_length",   "sees",     "uniform", "preconditions", "form",   "unproved"}));
  TextCase c;
  c.path = path;
  c.name = std::filesystem::path(path).stem().string();
  if (!entries.contains("rule")) return Broken("case without rule");
  c.rules = Words(entries["rule"]);
  KV_RETURN_IF_ERROR(ReadOptions(entries, &c.options));
  c.mask = Optional(entries, "sees");
  c.uniform = Optional(entries, "uniform");
  c.form = Optional(entries, "form");
  c.unproved = Optional(entries, "unproved");
  c.preconditions = Words(entries["preconditions"]);
  KV_ASSIGN_OR_RETURN(c.before, SourceOf(path, sections, Optional(entries, "base")));
  if (sections.contains("after")) {
    c.after = Trim(sections["after"]);
    if (c.preconditions.empty()) return Broken("a case that converts lists its preconditions");
    if (sections.contains("keep")) {
      KV_ASSIGN_OR_RETURN(c.keep, ReadRefusal(sections["keep"]));
    }
    return c;
  }
  if (c.mask || c.uniform || c.form || c.unproved || !c.preconditions.empty()) {
    return Broken("sees, uniform, form and preconditions are of cases that convert");
  }
  KV_ASSIGN_OR_RETURN(c.refuse, ReadRefusal(sections["refuse"]));
  return c;
}

std::vector<std::string> CaseFiles() {
  std::vector<std::string> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(KVLIFT_TESTDATA_DIR) + "/rewrites")) {
    files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

absl::StatusOr<TextCase> LoadCase(const std::string& path) {
  if (!path.ends_with(".onnxtxt")) return Broken(fmt::format("{} is no .onnxtxt", path));
  return ParseCase(path, ReadFile(path));
}

std::string WithAfter(const std::string& text, const std::string& after) {
  const std::string mark = fmt::format("{}after\n", kSectionMark);
  const size_t at = text.find(mark);
  if (at == std::string::npos) return text;
  return text.substr(0, at + mark.size()) + after + "\n";
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace kvlift
