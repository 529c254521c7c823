#include "kvlift/fleet/result.h"

#include <cmath>
#include <utility>

#include "base/escape.h"

namespace kvlift::cli {
namespace {

using nlohmann::ordered_json;

constexpr char kSchema[] = "kvlift/fleet-result/1";

ordered_json OrNull(const std::string& text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(ToValidUtf8(text));
}

ordered_json OrNull(const std::optional<double>& number) {
  return number ? ordered_json(*number) : ordered_json(nullptr);
}

ordered_json Texts(const std::vector<std::string>& texts) {
  ordered_json json = ordered_json::array();
  for (const std::string& text : texts) json.push_back(ToValidUtf8(text));
  return json;
}

ordered_json FilesJson(const std::vector<FleetFile>& files) {
  ordered_json json = ordered_json::array();
  for (const FleetFile& file : files) {
    json.push_back({{"path", ToValidUtf8(file.path)}, {"bytes", file.bytes}});
  }
  return json;
}

// Reads the fields of an object. A field that is not there, or of another type, makes `good` false.
class ResultReader {
 public:
  explicit ResultReader(const ordered_json& json) : json_(json) {}

  void Read(const char* key, std::string* text, bool may_be_null = false) {
    const auto field = Find(key);
    if (field != json_.end() && field->is_string()) {
      *text = *field->get_ptr<const std::string*>();
    } else {
      good_ = good_ && may_be_null && field != json_.end() && field->is_null();
    }
  }

  void Read(const char* key, std::vector<std::string>* texts) {
    const auto field = Find(key);
    good_ = good_ && field != json_.end() && field->is_array();
    if (!good_) return;
    for (const ordered_json& entry : *field) {
      good_ = good_ && entry.is_string();
      if (good_) texts->push_back(*entry.get_ptr<const std::string*>());
    }
  }

  template <typename Number>
  void ReadNumber(const char* key, Number* number) {
    const auto field = Find(key);
    good_ = good_ && field != json_.end() && field->is_number();
    if (good_) *number = field->get<Number>();
  }

  // Reads a list of files, which lines of earlier versions do not have.
  void Read(const char* key, std::vector<FleetFile>* files) {
    const auto field = Find(key);
    if (field == json_.end()) return;
    good_ = good_ && field->is_array();
    if (!good_) return;
    for (const ordered_json& entry : *field) {
      FleetFile file;
      ResultReader reader(entry);
      reader.Read("path", &file.path);
      reader.ReadNumber("bytes", &file.bytes);
      good_ = good_ && entry.is_object() && reader.good();
      files->push_back(std::move(file));
    }
  }

  void Read(const char* key, bool* flag) {
    const auto field = Find(key);
    good_ = good_ && field != json_.end() && field->is_boolean();
    if (good_) *flag = field->get<bool>();
  }

  void Read(const char* key, std::optional<double>* number) {
    const auto field = Find(key);
    if (field != json_.end() && field->is_null()) return;
    ReadNumber(key, &number->emplace());
  }

  bool good() const { return good_; }

 private:
  ordered_json::const_iterator Find(const char* key) const { return json_.find(key); }

  const ordered_json& json_;
  bool good_ = true;
};

}  // namespace

const std::vector<std::string>& FleetOutcomes() {
  static const std::vector<std::string>& words =
      *new std::vector<std::string>{"converted",
                                    "converted-as-tested",
                                    "converted-untested",
                                    "partial",
                                    "stopped",
                                    "equal",
                                    "equal-as-tested",
                                    "equal-within-quantisation",
                                    "clean",
                                    "findings",
                                    "refused",
                                    "no-cache",
                                    "different",
                                    "inconclusive",
                                    "invalid",
                                    "not-written",
                                    "out-of-memory",
                                    "timeout",
                                    "crashed"};
  return words;
}

ordered_json ToJson(const FleetResult& r) {
  return {{"schema", kSchema},
          {"index", r.index},
          {"of", r.of},
          {"command", r.command},
          {"model", ToValidUtf8(r.model)},
          {"after", OrNull(r.after)},
          {"sha256", OrNull(r.sha256)},
          {"after_sha256", OrNull(r.after_sha256)},
          {"options", Texts(r.options)},
          {"memory_gib", OrNull(r.memory_gib)},
          {"timeout_seconds", OrNull(r.timeout_seconds)},
          {"version", r.version},
          {"key", r.key},
          {"outcome", r.outcome},
          {"succeeded", r.succeeded},
          {"exit_code", r.exit_code},
          {"codes", Texts(r.codes)},
          {"reason", OrNull(r.reason)},
          {"output", OrNull(r.output)},
          {"document", OrNull(r.document)},
          {"report", OrNull(r.report)},
          {"log", OrNull(r.log)},
          {"files", FilesJson(r.files)},
          {"seconds", std::round(r.seconds * 1000) / 1000},
          {"peak_memory_bytes", r.peak_memory_bytes}};
}

std::string ToLine(const FleetResult& result) {
  constexpr bool kAscii = true;
  return ToJson(result).dump(-1, ' ', kAscii) + "\n";
}

std::optional<FleetResult> ReadLine(std::string_view text) {
  const auto json = ordered_json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  FleetResult r;
  std::string schema;
  ResultReader reader(json);
  constexpr bool kNullable = true;
  reader.Read("schema", &schema);
  reader.ReadNumber("index", &r.index);
  reader.ReadNumber("of", &r.of);
  reader.Read("command", &r.command);
  reader.Read("model", &r.model);
  reader.Read("after", &r.after, kNullable);
  reader.Read("sha256", &r.sha256, kNullable);
  reader.Read("after_sha256", &r.after_sha256, kNullable);
  reader.Read("options", &r.options);
  reader.Read("memory_gib", &r.memory_gib);
  reader.Read("timeout_seconds", &r.timeout_seconds);
  reader.Read("version", &r.version);
  reader.Read("key", &r.key);
  reader.Read("outcome", &r.outcome);
  reader.Read("succeeded", &r.succeeded);
  reader.ReadNumber("exit_code", &r.exit_code);
  reader.Read("codes", &r.codes);
  reader.Read("reason", &r.reason, kNullable);
  reader.Read("output", &r.output, kNullable);
  reader.Read("document", &r.document, kNullable);
  reader.Read("report", &r.report, kNullable);
  reader.Read("log", &r.log, kNullable);
  reader.Read("files", &r.files);
  reader.ReadNumber("seconds", &r.seconds);
  reader.ReadNumber("peak_memory_bytes", &r.peak_memory_bytes);
  if (!reader.good() || schema != kSchema) return std::nullopt;
  return r;
}

}  // namespace kvlift::cli
