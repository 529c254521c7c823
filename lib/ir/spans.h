// Tensors whose elements stay where they were loaded from: in the mapped model file, or in a mapped
// file of external data. Such a TensorProto has data_location EXTERNAL and a location that starts
// with kSpanPrefix and names a source; offset and length are as in any external data. ONNX's
// checker and shape inference take it for external data and look for no file (the '#' tells them);
// LoadModel refuses such locations in what it reads, and SerializeModel writes none.
//
// Everyone who reads elements of a TensorProto gets at them through RawDataOf.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "onnx/onnx_pb.h"

namespace kvlift {

inline constexpr std::string_view kSpanPrefix = "#kvlift/";

// Bytes that tensors are spans of, for as long as someone holds the source.
class SpanSource {
 public:
  enum class Kind { kModel, kDataFile };

  struct Content {
    Kind kind = Kind::kModel;
    std::string_view bytes;
    std::shared_ptr<const void> owner;  // of bytes
    // Of data files: the location as the model has it, and the folder it is in.
    std::string location;
    std::string folder;
    // An open descriptor of the file, -1 if there is none. Not owned; `owner` keeps it.
    int fd = -1;
    dev_t device = 0;
    ino_t inode = 0;
  };

  static std::shared_ptr<const SpanSource> Register(Content content);
  ~SpanSource();
  SpanSource(const SpanSource&) = delete;
  SpanSource& operator=(const SpanSource&) = delete;

  const Content& content() const { return content_; }
  // What stands as location in a TensorProto.
  const std::string& name() const { return name_; }

 private:
  SpanSource(Content content, std::string name);

  Content content_;
  std::string name_;
};

// Elements as they lie in memory: little-endian, not aligned. `owner` keeps the bytes where they
// are no part of the TensorProto; hold it while reading.
struct RawData {
  std::string_view bytes;
  std::shared_ptr<const void> owner;
};

// raw_data, or what the span covers; empty if the tensor has neither. A span without a length
// reaches to the end of its source.
RawData RawDataOf(const onnx::TensorProto& tensor);

// The source and the range, for who writes tensors. Null source if the tensor is no span.
struct SpanRange {
  std::shared_ptr<const SpanSource> source;
  uint64_t offset = 0;
  uint64_t length = 0;
};
SpanRange SpanOf(const onnx::TensorProto& tensor);

// External data that nobody has mapped: a file that is not there, or a source that is gone.
bool IsElsewhere(const onnx::TensorProto& tensor);

}  // namespace kvlift
