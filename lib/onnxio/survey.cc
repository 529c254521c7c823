#include "onnxio/survey.h"

#include <algorithm>
#include <utility>

#include "base/coded.h"
#include "base/status.h"
#include "fmt/format.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "onnx/onnx_pb.h"
#include "onnxio/message_fields.h"

namespace kvlift {
namespace {

using google::protobuf::io::CodedInputStream;
using wire::Kind;
using wire::WireFormatLite;

// Estimated memory of a protobuf message, a text and a number.
constexpr int64_t kMessageBytes = 128;
constexpr int64_t kTextBytes = 40;
constexpr int64_t kNumberBytes = 8;

struct Frame {
  const wire::MessageInfo* message = nullptr;
  size_t length_at = 0;  // of the length in front of the message
  size_t begin = 0;
  size_t end = 0;
  CodedInputStream::Limit outside = 0;  // the stream's limit around the message
  int64_t grown = 0;                    // bytes that replacements inside have added
  int64_t rank = 0;
  int64_t attributes = 0;
  int64_t level = 0;  // nesting depth of graphs and functions
  TensorSite tensor;
};

class Surveyor {
 public:
  Surveyor(std::string_view model, const Limits& limits, const EditTensor& edit)
      : bytes_(model),
        limits_(limits),
        edit_(edit),
        stream_(reinterpret_cast<const uint8_t*>(model.data()), static_cast<int>(model.size())) {}

  absl::StatusOr<Survey> Run() {
    open_.emplace_back();
    open_.back().message = wire::Schema().data();
    open_.back().end = bytes_.size();
    while (!open_.empty()) {
      if (At() == open_.back().end) {
        Close();
      } else {
        KV_RETURN_IF_ERROR(ReadField());
      }
    }
    std::sort(survey_.replacements.begin(), survey_.replacements.end(),
              [](const auto& a, const auto& b) {
                return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
              });
    return std::move(survey_);
  }

 private:
  // The position in the model's bytes.
  size_t At() const { return static_cast<size_t>(stream_.CurrentPosition()); }

  absl::Status Damaged() const {
    return Coded("KV002", absl::InvalidArgumentError(fmt::format(
                              "not an ONNX model: the file is truncated, damaged, or of another "
                              "type (at byte {} of {})",
                              At(), bytes_.size())));
  }

  absl::Status Spend(int64_t bytes) {
    parsed_ += bytes;
    return parsed_ > limits_.parsed_bytes ? OverLimit(&Limits::parsed_bytes, limits_)
                                          : absl::OkStatus();
  }

  // Reads a field of the innermost open message. The stream's limit is the end of that message.
  absl::Status ReadField() {
    Frame& frame = open_.back();
    const size_t begin = At();
    uint64_t tag_value = 0;
    if (!stream_.ReadVarint64(&tag_value) || tag_value > UINT32_MAX) return Damaged();
    const auto tag = static_cast<uint32_t>(tag_value);
    const auto number = static_cast<uint32_t>(WireFormatLite::GetTagFieldNumber(tag));
    const WireFormatLite::WireType type = WireFormatLite::GetTagWireType(tag);
    const auto& fields = frame.message->fields;
    const bool known = number < fields.size() && fields[number].known;
    const wire::FieldInfo field = known ? fields[number] : wire::FieldInfo{};
    const bool is_bytes = type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
    if (!known || (type != field.type && !(field.numbers && is_bytes))) {
      ++survey_.unknown_fields;
      if (!WireFormatLite::SkipField(&stream_, tag)) return Damaged();
      return Spend(kTextBytes + static_cast<int64_t>(At() - begin));
    }
    if (is_bytes) return ReadBytes(begin, number, field);
    const size_t value_at = At();
    uint64_t value = 0;
    const bool read = type == WireFormatLite::WIRETYPE_VARINT
                          ? stream_.ReadVarint64(&value)
                          : WireFormatLite::SkipField(&stream_, tag);
    if (!read) return Damaged();
    if (frame.message->kind == Kind::kTensor) {
      if (number == onnx::TensorProto::kDataTypeFieldNumber) frame.tensor.data_type = value;
      KV_RETURN_IF_ERROR(NoteTensorField(frame, number, {begin, value_at, At()}));
    }
    return field.numbers ? Spend(kNumberBytes) : absl::OkStatus();
  }

  absl::Status ReadBytes(size_t begin, uint32_t number, const wire::FieldInfo& field) {
    Frame& frame = open_.back();
    const size_t length_at = At();
    uint64_t length = 0;
    if (!stream_.ReadVarint64(&length) || length > frame.end - At()) return Damaged();
    const auto size = static_cast<size_t>(length);
    const TensorSite::Field place = {begin, At(), At() + size};
    if (frame.message->kind == Kind::kTensor) {
      KV_RETURN_IF_ERROR(NoteTensorField(frame, number, place));
    }
    if (field.message >= 0) return Open(field.message, length_at, place);
    if (!stream_.Skip(static_cast<int>(size))) return Damaged();
    if (field.name && static_cast<int64_t>(size) > limits_.name_bytes) {
      return OverLimit(&Limits::name_bytes, limits_);
    }
    const bool raw =
        frame.message->kind == Kind::kTensor && number == onnx::TensorProto::kRawDataFieldNumber;
    if (raw) return absl::OkStatus();  // counted if it stays
    const bool varints = field.numbers && field.type == WireFormatLite::WIRETYPE_VARINT;
    return Spend(kTextBytes + static_cast<int64_t>(size) * (varints ? kNumberBytes : 1));
  }

  absl::Status Open(int message, size_t length_at, const TensorSite::Field& place) {
    KV_RETURN_IF_ERROR(Spend(kMessageBytes));
    Frame& parent = open_.back();
    Frame frame;
    frame.message = &wire::Schema()[message];
    frame.length_at = length_at;
    frame.begin = place.data;
    frame.end = place.end;
    frame.level = parent.level;
    const Kind inside = parent.message->kind;
    switch (frame.message->kind) {
      case Kind::kGraph:
      case Kind::kFunction:
        if (++frame.level > limits_.subgraph_depth + 1) {
          return OverLimit(&Limits::subgraph_depth, limits_);
        }
        if (frame.message->kind == Kind::kFunction && ++functions_ > limits_.functions) {
          return OverLimit(&Limits::functions, limits_);
        }
        break;
      case Kind::kNode:
        if (++nodes_ > limits_.nodes) return OverLimit(&Limits::nodes, limits_);
        break;
      case Kind::kAttribute:
        if (inside == Kind::kNode && ++parent.attributes > limits_.attributes) {
          return OverLimit(&Limits::attributes, limits_);
        }
        break;
      case Kind::kTensor:
        frame.tensor.begin = place.data;
        frame.tensor.end = place.end;
        frame.tensor.behind_raw = place.end;
        frame.tensor.in_sparse = inside == Kind::kSparse;
        break;
      default:
        if (inside == Kind::kShape && ++parent.rank > limits_.rank) {
          return OverLimit(&Limits::rank, limits_);
        }
    }
    if (open_.size() >= static_cast<size_t>(kMaxMessageDepth)) return Damaged();
    frame.outside = stream_.PushLimit(static_cast<int>(place.end - place.data));
    open_.push_back(std::move(frame));
    return absl::OkStatus();
  }

  absl::Status NoteTensorField(Frame& frame, uint32_t number, const TensorSite::Field& place) {
    using onnx::TensorProto;
    TensorSite& site = frame.tensor;
    if (number > TensorProto::kRawDataFieldNumber) {
      site.behind_raw = std::min(site.behind_raw, place.begin);
    }
    switch (number) {
      case TensorProto::kDimsFieldNumber:
        frame.rank += CountNumbers(place);
        if (frame.rank > limits_.rank) return OverLimit(&Limits::rank, limits_);
        break;
      case TensorProto::kRawDataFieldNumber:
        site.raw.push_back(place);
        break;
      case TensorProto::kExternalDataFieldNumber:
      case TensorProto::kDataLocationFieldNumber:
        site.external.push_back(place);
        break;
      case TensorProto::kFloatDataFieldNumber:
      case TensorProto::kInt32DataFieldNumber:
      case TensorProto::kStringDataFieldNumber:
      case TensorProto::kInt64DataFieldNumber:
      case TensorProto::kDoubleDataFieldNumber:
      case TensorProto::kUint64DataFieldNumber:
        site.other_values = true;
        break;
      default:
        break;
    }
    return absl::OkStatus();
  }

  // Counts varints, packed or single: each has one byte whose top bit is clear.
  int64_t CountNumbers(const TensorSite::Field& place) const {
    const std::string_view data = bytes_.substr(place.data, place.end - place.data);
    return std::count_if(data.begin(), data.end(),
                         [](char c) { return (static_cast<uint8_t>(c) & 0x80u) == 0; });
  }

  void Close() {
    Frame frame = std::move(open_.back());
    open_.pop_back();
    if (frame.message->kind == Kind::kTensor) EditOf(frame);
    if (open_.empty()) {  // the model itself
      survey_.size = static_cast<uint64_t>(static_cast<int64_t>(bytes_.size()) + frame.grown);
      return;
    }
    stream_.PopLimit(frame.outside);
    if (frame.grown == 0) return;
    const auto length =
        static_cast<uint64_t>(static_cast<int64_t>(frame.end - frame.begin) + frame.grown);
    Replacement header{frame.length_at, frame.begin, {}, {}};
    google::protobuf::io::StringOutputStream text(&header.text);
    google::protobuf::io::CodedOutputStream(&text).WriteVarint64(length);
    open_.back().grown += frame.grown + static_cast<int64_t>(header.text.size()) -
                          static_cast<int64_t>(header.end - header.begin);
    survey_.replacements.push_back(std::move(header));
  }

  void EditOf(Frame& frame) {
    const size_t before = survey_.replacements.size();
    edit_(frame.tensor, &survey_.replacements);
    for (size_t i = before; i < survey_.replacements.size(); ++i) {
      const Replacement& r = survey_.replacements[i];
      frame.grown += static_cast<int64_t>(r.text.size() + r.data.size()) -
                     static_cast<int64_t>(r.end - r.begin);
    }
    int64_t kept = frame.grown;
    for (const TensorSite::Field& raw : frame.tensor.raw) {
      kept += static_cast<int64_t>(raw.end - raw.begin);
    }
    parsed_ += std::max<int64_t>(kept, 0);
  }

  const std::string_view bytes_;
  const Limits& limits_;
  const EditTensor& edit_;
  CodedInputStream stream_;
  std::vector<Frame> open_;
  int64_t nodes_ = 0, functions_ = 0, parsed_ = 0;
  Survey survey_;
};

}  // namespace

absl::StatusOr<Survey> SurveyModel(std::string_view model, const Limits& limits,
                                   const EditTensor& edit) {
  if (model.size() > static_cast<size_t>(kMaxModelBytes)) {
    return OverLimit(&Limits::file_bytes, Limits());
  }
  return Surveyor(model, limits, edit).Run();
}

}  // namespace kvlift
