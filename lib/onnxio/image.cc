#include "onnxio/image.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/coded.h"
#include "base/status.h"
#include "fmt/format.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"
#include "onnxio/guard.h"
#include "onnxio/tensors.h"

namespace kvlift {
namespace {

using google::protobuf::internal::WireFormatLite;
using onnx::TensorProto;

std::string Spliced(std::string_view bytes, const Survey& survey) {
  std::string result;
  result.reserve(survey.size);
  size_t at = 0;
  for (const Replacement& r : survey.replacements) {
    result.append(bytes.substr(at, r.begin - at)).append(r.text).append(r.data);
    at = r.end;
  }
  return result.append(bytes.substr(at));
}

// Returns true for a data_location field with value DEFAULT, which ONNX writes after external data
// was moved into the model.
bool SaysInline(std::string_view bytes, const TensorSite::Field& field) {
  TensorProto only;  // that field
  return only.ParseFromArray(bytes.data() + field.begin,
                             static_cast<int>(field.end - field.begin)) &&
         only.has_data_location() && only.data_location() == TensorProto::DEFAULT;
}

bool StaysInFile(std::string_view bytes, const TensorSite& site) {
  if (site.raw.size() != 1 || site.other_values || site.in_sparse) return false;
  for (const TensorSite::Field& field : site.external) {
    if (!SaysInline(bytes, field)) return false;
  }
  const size_t size = site.raw[0].end - site.raw[0].data;
  const bool integers =
      site.data_type == TensorProto::INT64 || site.data_type == TensorProto::INT32;
  return site.data_type != TensorProto::STRING &&
         size >= (integers ? kIntegerSpanBytes : kSpanBytes);
}

void AddEntry(TensorProto& tensor, const char* key, std::string value) {
  auto* entry = tensor.add_external_data();
  entry->set_key(key);
  entry->set_value(std::move(value));
}

// Returns the serialised fields that stand for the elements of a span.
std::string SpanFields(const SpanSource& source, size_t offset, size_t length) {
  TensorProto tensor;
  AddEntry(tensor, "location", source.name());
  AddEntry(tensor, "offset", fmt::format("{}", offset));
  AddEntry(tensor, "length", fmt::format("{}", length));
  tensor.set_data_location(TensorProto::EXTERNAL);
  return tensor.SerializeAsString();
}

// protobuf merges a field that occurs twice, which would also merge a span.
absl::Status CheckSpans(const onnx::ModelProto& model, const SpanSource& source) {
  bool merged = false;
  ForEachTensor(model, [&](const TensorProto& tensor) {
    for (const auto& entry : tensor.external_data()) {
      if (entry.value() != source.name()) continue;
      merged = merged || tensor.external_data_size() != 3 || tensor.has_raw_data() ||
               SpanOf(tensor).source == nullptr;
    }
  });
  if (!merged) return absl::OkStatus();
  return Coded("KV002", absl::InvalidArgumentError("damaged: a tensor stands twice in one place"));
}

absl::Status ParseInto(std::string_view bytes, onnx::ModelProto* model) {
  bool complete = false;
  KV_RETURN_IF_ERROR(Guard("not an ONNX model", [&] {
    google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes.data()),
                                                  static_cast<int>(bytes.size()));
    stream.SetTotalBytesLimit(std::numeric_limits<int>::max());
    stream.SetRecursionLimit(kMaxMessageDepth);
    complete = model->ParseFromCodedStream(&stream) && stream.ConsumedEntireMessage();
  }));
  if (complete) return absl::OkStatus();
  return Coded("KV002",
               absl::InvalidArgumentError(
                   "not an ONNX model: the file is truncated, damaged, or of another type"));
}

struct Kept {
  std::string skeleton;
  Survey survey;
  std::vector<std::shared_ptr<const SpanSource>> sources;
};

bool NamesSpan(const TensorProto& tensor) {
  return std::any_of(tensor.external_data().begin(), tensor.external_data().end(),
                     [](const auto& entry) {
                       return entry.value().compare(0, kSpanPrefix.size(), kSpanPrefix) == 0;
                     });
}

absl::Status RestoreLocations(const DataLocations& locations, onnx::ModelProto* model) {
  bool gone = false;
  ForEachMutableTensor(*model, [&](TensorProto& tensor) {
    const SpanRange span = SpanOf(tensor);
    gone = gone || (span.source == nullptr && NamesSpan(tensor));
    if (span.source == nullptr) return;
    const SpanSource::Content& content = span.source->content();
    if (content.kind != SpanSource::Kind::kDataFile) return;
    const auto moved = locations.find(span.source->name());
    for (auto& entry : *tensor.mutable_external_data()) {
      if (entry.key() != "location") continue;
      entry.set_value(moved == locations.end() ? content.location : moved->second);
    }
  });
  return gone ? absl::InternalError("a model outlived the file of its weights") : absl::OkStatus();
}

// Puts raw_data in the place of the fields of a span.
void PutBack(const TensorSite& site, Kept& kept, std::vector<Replacement>* replacements) {
  if (site.external.empty()) return;
  TensorProto tensor;
  if (!tensor.ParseFromArray(kept.skeleton.data() + site.begin,
                             static_cast<int>(site.end - site.begin))) {
    return;
  }
  SpanRange span = SpanOf(tensor);
  if (span.source == nullptr) return;
  for (const TensorSite::Field& field : site.external) {
    replacements->push_back({field.begin, field.end, {}, {}});
  }
  Replacement raw{site.behind_raw, site.behind_raw, {}, {}};
  {
    google::protobuf::io::StringOutputStream text(&raw.text);
    google::protobuf::io::CodedOutputStream coded(&text);
    WireFormatLite::WriteTag(TensorProto::kRawDataFieldNumber,
                             WireFormatLite::WIRETYPE_LENGTH_DELIMITED, &coded);
    coded.WriteVarint64(span.length);
  }
  raw.data = span.source->content().bytes.substr(span.offset, span.length);
  replacements->insert(replacements->end() - static_cast<ptrdiff_t>(site.external.size()),
                       std::move(raw));
  if (kept.sources.empty() || kept.sources.back() != span.source) {
    kept.sources.push_back(std::move(span.source));
  }
}

}  // namespace

absl::Status ForgedSpan() {
  return Coded("KV004", absl::InvalidArgumentError(fmt::format(
                            "external data at a location that starts with \"{}\", which no model "
                            "may use",
                            kSpanPrefix)));
}

absl::StatusOr<ParsedModel> ParseModel(const SpanSource& source, const Limits& limits) {
  const std::string_view bytes = source.content().bytes;
  bool forged = false;
  KV_ASSIGN_OR_RETURN(
      const Survey survey,
      SurveyModel(
          bytes, limits, [&](const TensorSite& site, std::vector<Replacement>* replacements) {
            for (const TensorSite::Field& field : site.external) {
              forged =
                  forged || bytes.substr(field.data, field.end - field.data).find(kSpanPrefix) !=
                                std::string_view::npos;
            }
            if (!StaysInFile(bytes, site)) return;
            const TensorSite::Field& raw = site.raw[0];
            replacements->push_back(
                {raw.begin, raw.end, SpanFields(source, raw.data, raw.end - raw.data), {}});
            for (const TensorSite::Field& field : site.external) {
              replacements->push_back({field.begin, field.end, {}, {}});
            }
          }));
  if (forged) return ForgedSpan();
  ParsedModel parsed;
  parsed.unknown_fields = survey.unknown_fields;
  parsed.proto = std::make_unique<onnx::ModelProto>();
  if (survey.size > static_cast<uint64_t>(kMaxModelBytes)) {
    return OverLimit(&Limits::file_bytes, Limits());
  }
  KV_RETURN_IF_ERROR(survey.replacements.empty()
                         ? ParseInto(bytes, parsed.proto.get())
                         : ParseInto(Spliced(bytes, survey), parsed.proto.get()));
  KV_RETURN_IF_ERROR(CheckSpans(*parsed.proto, source));
  return parsed;
}

absl::StatusOr<ModelImage> ImageOf(const onnx::ModelProto& model, const DataLocations& locations) {
  onnx::ModelProto restored = model;
  KV_RETURN_IF_ERROR(RestoreLocations(locations, &restored));
  auto kept = std::make_shared<Kept>();
  bool complete = false;
  KV_RETURN_IF_ERROR(Guard("cannot serialise the model", [&] {
    if (restored.ByteSizeLong() > static_cast<size_t>(kMaxModelBytes)) return;
    google::protobuf::io::StringOutputStream stream(&kept->skeleton);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    complete = restored.SerializeToCodedStream(&coded);
  }));
  if (!complete) return Coded("KV502", OverLimit(&Limits::file_bytes, Limits()));
  Limits unlimited;
  for (const LimitInfo& info : AllLimits()) {
    unlimited.*info.value = std::numeric_limits<int64_t>::max() - 1;
  }
  KV_ASSIGN_OR_RETURN(kept->survey,
                      SurveyModel(kept->skeleton, unlimited,
                                  [&](const TensorSite& site, std::vector<Replacement>* r) {
                                    PutBack(site, *kept, r);
                                  }));
  ModelImage image;
  image.size = kept->survey.size;
  if (image.size > static_cast<uint64_t>(kMaxModelBytes)) {
    return Coded("KV502", OverLimit(&Limits::file_bytes, Limits()));
  }
  const auto add = [&](std::string_view bytes) {
    if (!bytes.empty()) image.pieces.push_back({bytes, -1, 0});
  };
  const std::string_view skeleton = kept->skeleton;
  size_t at = 0;
  for (const Replacement& r : kept->survey.replacements) {
    add(skeleton.substr(at, r.begin - at));
    add(r.text);
    add(r.data);
    at = r.end;
  }
  add(skeleton.substr(at));
  for (Piece& piece : image.pieces) {
    for (const auto& source : kept->sources) {
      const SpanSource::Content& content = source->content();
      const auto* begin = content.bytes.data();
      if (std::less<>()(piece.bytes.data(), begin) ||
          !std::less<>()(piece.bytes.data(), begin + content.bytes.size())) {
        continue;
      }
      piece.fd = content.fd;
      piece.offset = static_cast<uint64_t>(piece.bytes.data() - begin);
      break;
    }
  }
  image.owner = kept;
  return image;
}

}  // namespace kvlift
