#include "onnxio/survey.h"

#include <algorithm>
#include <utility>

#include "base/coded.h"
#include "base/status.h"
#include "fmt/format.h"
#include "onnx/onnx_pb.h"
#include "onnxio/wire.h"

namespace kvlift {
namespace {

using wire::Kind;
using wire::Type;

// Estimated memory of a protobuf message, a text and a number.
constexpr int64_t kMessageBytes = 128;
constexpr int64_t kTextBytes = 40;
constexpr int64_t kNumberBytes = 8;

struct Frame {
  const wire::MessageInfo* message = nullptr;
  size_t length_at = 0;  // of the length in front of the message
  size_t begin = 0;
  size_t end = 0;
  int64_t grown = 0;  // bytes that replacements inside have added
  int64_t rank = 0;
  int64_t attributes = 0;
  int64_t level = 0;  // nesting depth of graphs and functions
  TensorSite tensor;
};

class Surveyor {
 public:
  Surveyor(std::string_view model, const Limits& limits, const EditTensor& edit)
      : bytes_(model), limits_(limits), edit_(edit) {}

  absl::StatusOr<Survey> Run() {
    open_.emplace_back();
    open_.back().message = wire::Schema().data();
    open_.back().end = bytes_.size();
    while (!open_.empty()) {
      if (at_ == open_.back().end) {
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
  absl::Status Damaged() const {
    return Coded("KV002", absl::InvalidArgumentError(fmt::format(
                              "not an ONNX model: the file is truncated, damaged, or of another "
                              "type (at byte {} of {})",
                              at_, bytes_.size())));
  }

  absl::Status Spend(int64_t bytes) {
    parsed_ += bytes;
    return parsed_ > limits_.parsed_bytes ? OverLimit(&Limits::parsed_bytes, limits_)
                                          : absl::OkStatus();
  }

  absl::Status ReadField() {
    Frame& frame = open_.back();
    const std::string_view body = bytes_.substr(0, frame.end);
    const size_t begin = at_;
    wire::Tag tag;
    if (!wire::ReadTag(body, &at_, &tag)) return Damaged();
    const auto& fields = frame.message->fields;
    const bool known = tag.number < fields.size() && fields[tag.number].known;
    const wire::FieldInfo field = known ? fields[tag.number] : wire::FieldInfo{};
    const bool packed = field.numbers && tag.type == Type::kBytes;
    if (!known || (tag.type != field.type && !packed)) {
      ++survey_.unknown_fields;
      if (!wire::Skip(body, &at_, tag)) return Damaged();
      return Spend(kTextBytes + static_cast<int64_t>(at_ - begin));
    }
    if (tag.type == Type::kBytes) return ReadBytes(body, begin, tag.number, field);
    const size_t value_at = at_;
    if (!wire::Skip(body, &at_, tag)) return Damaged();
    if (frame.message->kind == Kind::kTensor) {
      KV_RETURN_IF_ERROR(NoteTensorField(frame, tag.number, {begin, value_at, at_}));
    }
    return field.numbers ? Spend(kNumberBytes) : absl::OkStatus();
  }

  absl::Status ReadBytes(std::string_view body, size_t begin, uint32_t number,
                         const wire::FieldInfo& field) {
    Frame& frame = open_.back();
    const size_t length_at = at_;
    uint64_t length = 0;
    if (!wire::ReadVarint(body, &at_, &length) || length > body.size() - at_) return Damaged();
    const auto size = static_cast<size_t>(length);
    const TensorSite::Field place = {begin, at_, at_ + size};
    if (frame.message->kind == Kind::kTensor) {
      KV_RETURN_IF_ERROR(NoteTensorField(frame, number, place));
    }
    if (field.message >= 0) return Open(field.message, length_at, place);
    at_ = place.end;
    if (field.name && static_cast<int64_t>(size) > limits_.name_bytes) {
      return OverLimit(&Limits::name_bytes, limits_);
    }
    const bool raw =
        frame.message->kind == Kind::kTensor && number == onnx::TensorProto::kRawDataFieldNumber;
    if (raw) return absl::OkStatus();  // counted if it stays
    const bool varints = field.numbers && field.type == Type::kVarint;
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
      case TensorProto::kDataTypeFieldNumber: {
        size_t at = place.data;
        wire::ReadVarint(bytes_, &at, &site.data_type);
        break;
      }
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
    if (open_.empty()) {
      survey_.size = static_cast<uint64_t>(static_cast<int64_t>(bytes_.size()) + frame.grown);
      return;
    }
    if (frame.grown == 0) return;
    const auto length =
        static_cast<uint64_t>(static_cast<int64_t>(frame.end - frame.begin) + frame.grown);
    Replacement header{frame.length_at, frame.begin, {}, {}};
    wire::AppendVarint(length, &header.text);
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
  size_t at_ = 0;
  std::vector<Frame> open_;
  int64_t nodes_ = 0, functions_ = 0, parsed_ = 0;
  Survey survey_;
};

}  // namespace

absl::StatusOr<Survey> SurveyModel(std::string_view model, const Limits& limits,
                                   const EditTensor& edit) {
  return Surveyor(model, limits, edit).Run();
}

}  // namespace kvlift
