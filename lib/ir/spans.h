// Tensors whose elements stay where they were loaded from: in the mapped model file, or in a mapped
// file of external data. Such a tensor is called a span. Its TensorProto has data_location EXTERNAL
// and a location that starts with kSpanPrefix and names a source; offset and length are as in any
// external data. The checker and the shape inference of ONNX look for no file where a location
// starts with '#'. LoadModel refuses such locations in the files that it reads, and SerializeModel
// writes none.
//
// All code that reads elements of a TensorProto gets them through RawDataOf.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "onnx/onnx_pb.h"

namespace kvlift {

inline constexpr std::string_view kSpanPrefix = "#kvlift/";

// A block of bytes that spans refer to by name. Spans do not keep it alive: they can be read as
// long as the pointer that Register returned, or a copy of it, exists.
class SpanSource {
 public:
  enum class Kind { kModel, kDataFile };

  struct Content {
    Kind kind = Kind::kModel;
    std::string_view bytes;
    std::shared_ptr<const void> owner;  // keeps `bytes` valid
    // For kDataFile: the location as the model gives it, and the folder that it is relative to.
    // Empty for kModel.
    std::string location;
    std::string folder;
    // An open descriptor of the file, or -1. It is not owned; `owner` keeps it open.
    int fd = -1;
    // Device and inode of the file; 0 if there is no file.
    dev_t device = 0;
    ino_t inode = 0;
  };

  static std::shared_ptr<const SpanSource> Register(Content content);
  ~SpanSource();
  SpanSource(const SpanSource&) = delete;
  SpanSource& operator=(const SpanSource&) = delete;

  const Content& content() const { return content_; }
  // The location of a TensorProto that refers to this source.
  const std::string& name() const { return name_; }

 private:
  SpanSource(Content content, std::string name);

  Content content_;
  std::string name_;
};

// Elements as raw bytes: little-endian, not aligned. `owner` keeps the bytes valid if they are not
// part of the TensorProto, and is null if they are. Hold it while reading.
struct RawData {
  std::string_view bytes;
  std::shared_ptr<const void> owner;
};

// Returns raw_data, or the bytes of the span; empty if the tensor has neither. Typed fields such as
// float_data are not read. A span without a length reaches to the end of its source.
RawData RawDataOf(const onnx::TensorProto& tensor);

// Returns the source and the byte range of a span, for code that writes tensors. The source is null
// if the tensor is not a span, its source does not exist, or the range leaves the source.
struct SpanRange {
  std::shared_ptr<const SpanSource> source;
  uint64_t offset = 0;
  uint64_t length = 0;
};
SpanRange SpanOf(const onnx::TensorProto& tensor);

// Returns true if the tensor has external data that is not mapped: the file is missing, or its
// source does not exist.
bool IsElsewhere(const onnx::TensorProto& tensor);

}  // namespace kvlift
