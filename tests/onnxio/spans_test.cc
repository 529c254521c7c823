// LIBS: onnxio
// Weights that stay in their files: what becomes a span, what it reads, and what is written back.
#include "ir/spans.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/coded.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/tensor_data.h"
#include "onnxio/bytes/tensors.h"
#include "onnxio/files/cleanup.h"
#include "onnxio/model/model.h"

namespace kvlift {
namespace {

namespace fs = std::filesystem;
using onnx::TensorProto;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Pattern(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
  return bytes;
}

TensorProto Weight(const std::string& name, size_t size) {
  TensorProto tensor;
  tensor.set_name(name);
  tensor.set_data_type(TensorProto::UINT8);
  tensor.add_dims(static_cast<int64_t>(size));
  tensor.set_raw_data(Pattern(size));
  tensor.set_doc_string("behind the data");
  return tensor;
}

TensorProto External(const std::string& name, const std::string& location, int64_t offset,
                     int64_t size) {
  TensorProto tensor = Weight(name, 0);
  tensor.clear_raw_data();
  tensor.set_dims(0, size);
  tensor.set_data_location(TensorProto::EXTERNAL);
  const auto add = [&](const char* key, const std::string& value) {
    auto* entry = tensor.add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  };
  add("location", location);
  add("offset", std::to_string(offset));
  add("length", std::to_string(size));
  return tensor;
}

// One weight in each place where a tensor can stand.
onnx::ModelProto Everywhere(size_t size) {
  onnx::ModelProto model = ParseModelText(R"(<ir_version: 10, opset_import: ["" : 18]>
      g (float[2] x) => (float[2] y) { y = Relu(x) })")
                               .value();
  auto* graph = model.mutable_graph();
  *graph->add_initializer() = Weight("initializer", size);
  auto* node = graph->mutable_node(0);
  *node->add_attribute()->mutable_t() = Weight("t", size);
  *node->add_attribute()->add_tensors() = Weight("tensors", size);
  *node->add_attribute()->mutable_g()->add_initializer() = Weight("g", size);
  *node->add_attribute()->add_graphs()->add_initializer() = Weight("graphs", size);
  auto* function = model.add_functions();
  *function->add_attribute_proto()->mutable_t() = Weight("default", size);
  function->set_name("F");
  function->set_domain("f");
  auto* inside = function->add_node();
  inside->set_op_type("Relu");
  *inside->add_attribute()->mutable_t() = Weight("body", size);
  auto* training = model.add_training_info();
  *training->mutable_initialization()->add_initializer() = Weight("initialization", size);
  *training->mutable_algorithm()->add_initializer() = Weight("algorithm", size);
  auto* sparse = graph->add_sparse_initializer();
  *sparse->mutable_values() = Weight("values", size);
  *sparse->mutable_indices() = Weight("indices", size);
  return model;
}

class Spans : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "kvlift-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::string Put(const std::string& name, const std::string& bytes) const {
    fs::create_directories((dir_ / name).parent_path());
    std::ofstream(dir_ / name, std::ios::binary) << bytes;
    return (dir_ / name).string();
  }
  std::string Get(const std::string& name) const {
    std::ifstream file(dir_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  fs::path dir_;
};

TEST_F(Spans, LargeWeightsStayInTheFileWhereverTheyStand) {
  for (const size_t size : {kSpanBytes - 1, kSpanBytes, size_t{70000}}) {
    const std::string bytes = Everywhere(size).SerializeAsString();
    const auto model = LoadModel(Put("m.onnx", bytes));
    ASSERT_TRUE(model.ok()) << model.status();
    int spans = 0, copies = 0;
    ForEachTensor(*model->proto, [&](const TensorProto& tensor) {
      (SpanOf(tensor).source != nullptr ? spans : copies) += 1;
      EXPECT_EQ(RawDataOf(tensor).bytes, Pattern(size)) << tensor.name();
      EXPECT_EQ(*InlineBytes(tensor), Pattern(size)) << tensor.name();
      EXPECT_EQ(*ReadTensorBytes(tensor, model->base_dir), Pattern(size)) << tensor.name();
    });
    // ONNX's checker reads sparse tensors.
    EXPECT_EQ(spans, size < kSpanBytes ? 0 : 9);
    EXPECT_EQ(copies, size < kSpanBytes ? 11 : 2);
    EXPECT_EQ(*SerializeModel(*model->proto), bytes);
    const auto memory = LoadModelBytes(bytes, dir_.string());
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(*SerializeModel(*memory->proto), bytes);
  }
}

TEST_F(Spans, IntegerVectorsOfInferenceStayInTheModel) {
  onnx::ModelProto model = Everywhere(8);
  auto* tensor = model.mutable_graph()->mutable_initializer(0);
  tensor->set_data_type(TensorProto::INT64);
  tensor->set_dims(0, 1000);
  tensor->set_raw_data(Pattern(8000));
  const auto loaded = LoadModel(Put("m.onnx", model.SerializeAsString()));
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->proto->graph().initializer(0).raw_data(), Pattern(8000));
}

TEST_F(Spans, TensorsThatStandTwiceAreDamage) {
  // protobuf merges a field that stands twice.
  onnx::AttributeProto attribute;
  *attribute.mutable_t() = Weight("t", 5000);
  const std::string twice = attribute.SerializeAsString() + attribute.SerializeAsString();
  onnx::ModelProto model = Everywhere(8);
  model.mutable_graph()->mutable_node(0)->clear_attribute();
  model.mutable_graph()->mutable_node(0)->add_attribute()->set_name(std::string(twice.size(), '#'));
  std::string bytes = model.SerializeAsString();
  // The name is as long as the two; its own tag and length are kept as unknown bytes would be.
  const size_t at = bytes.find(std::string(twice.size(), '#'));
  onnx::NodeProto node;
  node.ParseFromString("");
  ASSERT_NE(at, std::string::npos);
  const onnx::AttributeProto named = model.graph().node(0).attribute(0);
  const size_t head = named.ByteSizeLong() - twice.size();
  // Tag and length of the name become an unknown varint field of the same size.
  std::string filler = "\xf8\x07";
  filler.append(head - 3, '\x80').append(1, '\0');
  bytes.replace(at - head, head, filler);
  bytes.replace(at, twice.size(), twice);
  const absl::Status status = LoadModel(Put("m.onnx", bytes)).status();
  EXPECT_EQ(CodeOf(status), "KV002") << status;
}

TEST_F(Spans, ExternalDataIsBoundToItsFile) {
  Put("sub/w.bin", Pattern(9000));
  onnx::ModelProto model = Everywhere(8);
  *model.mutable_graph()->mutable_initializer(0) = External("a", "sub/w.bin", 3000, 5000);
  *model.mutable_graph()->add_initializer() = External("small", "sub/w.bin", 10, 20);
  *model.mutable_graph()->add_initializer() = External("missing", "none.bin", 0, 5000);
  const auto loaded = LoadModel(Put("m.onnx", model.SerializeAsString()));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->external_bytes, 10020);
  const auto& graph = loaded->proto->graph();
  EXPECT_EQ(RawDataOf(graph.initializer(0)).bytes, Pattern(9000).substr(3000, 5000));
  EXPECT_EQ(graph.initializer(1).raw_data(), Pattern(9000).substr(10, 20));
  EXPECT_TRUE(IsElsewhere(graph.initializer(2)));
  onnx::ModelProto written;
  ASSERT_TRUE(written.ParseFromString(*SerializeModel(*loaded->proto)));
  EXPECT_EQ(written.graph().initializer(0).SerializeAsString(),
            model.graph().initializer(0).SerializeAsString());
  EXPECT_EQ(written.graph().initializer(2).SerializeAsString(),
            model.graph().initializer(2).SerializeAsString());
  EXPECT_THAT(written.SerializeAsString(), Not(HasSubstr(std::string(kSpanPrefix))));
}

TEST_F(Spans, ALinkedSnapshotFindsItsBlobs) {
  // As a hub's cache: snapshots/x/model.onnx and its data link to files under blobs/.
  Put("blobs/1111", [&] {
    onnx::ModelProto model = Everywhere(8);
    *model.mutable_graph()->mutable_initializer(0) = External("a", "model.data", 0, 5000);
    return model.SerializeAsString();
  }());
  Put("blobs/2222", Pattern(5000));
  Put("other/3333", Pattern(5000));
  fs::create_directories(dir_ / "snapshots" / "x");
  fs::create_symlink("../../blobs/1111", dir_ / "snapshots" / "x" / "model.onnx");
  const fs::path data = dir_ / "snapshots" / "x" / "model.data";
  fs::create_symlink("../../blobs/2222", data);
  const std::string path = (dir_ / "snapshots" / "x" / "model.onnx").string();
  const auto model = LoadModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(RawDataOf(model->proto->graph().initializer(0)).bytes, Pattern(5000));
  LoadOptions strict;
  strict.data.links = false;
  EXPECT_EQ(CodeOf(LoadModel(path, strict).status()), "KV005");
  fs::remove(data);
  fs::create_symlink("../../other/3333", data);
  EXPECT_EQ(CodeOf(LoadModel(path).status()), "KV005");
  LoadOptions roots;
  roots.data_folders = {(dir_ / "snapshots" / "x").string(), (dir_ / "other").string()};
  EXPECT_TRUE(LoadModel(path, roots).ok());
  fs::remove(data);
  fs::create_hard_link(dir_ / "blobs" / "2222", data);
  EXPECT_EQ(CodeOf(LoadModel(path).status()), "KV005");
  LoadOptions trusting;
  trusting.data.hard_links = true;
  EXPECT_TRUE(LoadModel(path, trusting).ok());
}

TEST_F(Spans, AModelThatOutlivesItsFileIsNotWritten) {
  onnx::ModelProto copy;
  {
    const auto model = LoadModel(Put("m.onnx", Everywhere(5000).SerializeAsString()));
    ASSERT_TRUE(model.ok());
    copy = *model->proto;
  }
  EXPECT_TRUE(IsElsewhere(copy.graph().initializer(0)));
  EXPECT_EQ(SerializeModel(copy).status().code(), absl::StatusCode::kInternal);
}

TEST_F(Spans, AFileThatBecomesShorterEndsTheRun) {
  const std::string path = Put("m.onnx", Everywhere(100000).SerializeAsString());
  const auto read = [&] {
    CleanUpOnSignals();
    const auto model = LoadModel(path);
    if (!model.ok() || truncate(path.c_str(), 0) != 0) exit(1);
    exit(SerializeModel(*model->proto).ok() ? 1 : 2);
  };
  EXPECT_EXIT(read(), ::testing::ExitedWithCode(3), "KV008");
}

TEST_F(Spans, SignalsRemoveTemporaryFiles) {
  const std::string path = Put("out.tmp", "half");
  const auto end = [&](int signal) {
    CleanUpOnSignals();
    NoteTemporary(path);
    raise(signal);
  };
  EXPECT_EXIT(end(SIGTERM), ::testing::KilledBySignal(SIGTERM), "");
  EXPECT_FALSE(fs::exists(path));
  Put("out.tmp", "half");
  const auto hold = [&] {
    CleanUpOnSignals();
    const int slot = NoteTemporary(path);
    {
      const DelaySignals held;
      raise(SIGINT);
      ForgetTemporary(slot);  // as after a rename
    }
    exit(1);
  };
  EXPECT_EXIT(hold(), ::testing::KilledBySignal(SIGINT), "");
  EXPECT_TRUE(fs::exists(path));
}

TEST_F(Spans, PiecesAreCopiedFromTheirFile) {
  const std::string bytes = Everywhere(size_t{3} << 20).SerializeAsString();
  const auto model = LoadModel(Put("m.onnx", bytes));
  ASSERT_TRUE(model.ok());
  const auto image = ImageOf(*model->proto, {});
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->size, bytes.size());
  uint64_t last = 0;
  const auto status = WriteFiles({{(dir_ / "o.onnx").string(), {}, image->pieces}},
                                 [&](uint64_t done, uint64_t total) {
                                   EXPECT_LE(last, done);
                                   EXPECT_EQ(total, bytes.size());
                                   last = done;
                                 });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(last, bytes.size());
  EXPECT_EQ(Get("o.onnx"), bytes);
}

TEST_F(Spans, ResultsAboveTwoGibibytesAreRefused) {
  constexpr size_t kSize = size_t{1200} << 20;
  void* map = mmap(nullptr, kSize, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(map, MAP_FAILED);
  SpanSource::Content content;
  content.bytes = {static_cast<const char*>(map), kSize};
  const auto source = SpanSource::Register(content);
  onnx::ModelProto model = Everywhere(8);
  *model.mutable_graph()->add_initializer() = External("a", source->name(), 0, kSize);
  EXPECT_TRUE(ImageOf(model, {}).ok());
  *model.mutable_graph()->add_initializer() = External("b", source->name(), 0, kSize);
  EXPECT_EQ(CodeOf(ImageOf(model, {}).status()), "KV502");
  munmap(map, kSize);
}

TEST_F(Spans, WhatCannotBeWrittenHasACode) {
  EXPECT_EQ(CodeOf(WriteFiles({{(dir_ / "no" / "o.onnx").string(), "x"}})), "KV501");
  const auto write_limited = [&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const absl::Status status = WriteFiles({{(dir_ / "o.onnx").string(), Pattern(5000)}});
    exit(CodeOf(status) == "KV504" ? 0 : 1);
  };
  EXPECT_EXIT(write_limited(), ::testing::ExitedWithCode(0), "");
  EXPECT_TRUE(fs::is_empty(dir_));
}

struct LimitCase {
  int64_t Limits::*value;
  const char* code;
  int64_t size;  // what the model has
};

class Limit : public ::testing::TestWithParam<LimitCase> {};

TEST_P(Limit, HoldsJustBelowAndEndsJustAbove) {
  onnx::ModelProto model = Everywhere(8);
  model.clear_functions();
  model.clear_training_info();
  model.mutable_graph()->clear_sparse_initializer();
  auto* node = model.mutable_graph()->mutable_node(0);
  node->clear_attribute();
  for (int i = 0; i < 7; ++i) node->add_attribute()->set_i(1);
  for (int i = 0; i < 4; ++i) model.mutable_graph()->add_node()->set_op_type("Relu");  // 5 nodes
  for (int i = 0; i < 3; ++i) {  // F0 calls F1, F1 calls F2
    auto* function = model.add_functions();
    function->set_domain("f");
    function->set_name("F" + std::to_string(i));
    auto* call = function->add_node();
    call->set_domain("f");
    call->set_op_type("F" + std::to_string(i + 1));
  }
  auto* inner = model.mutable_graph()->mutable_node(1);
  for (int i = 0; i < 6; ++i) inner = inner->add_attribute()->mutable_g()->add_node();
  auto* tensor = model.mutable_graph()->mutable_initializer(0);
  for (int i = 0; i < 10; ++i) tensor->add_dims(1);  // rank 11
  tensor->set_name(std::string(100, 'n'));
  *model.mutable_graph()->add_initializer() = External("a", "a.bin", 0, 8);
  *model.mutable_graph()->add_initializer() = External("b", "b.bin", 0, 8);
  const std::string bytes = model.SerializeAsString();
  const auto load = [&](int64_t limit) {
    LoadOptions options;
    options.limits.*GetParam().value = limit;
    return LoadModelBytes(bytes, "no/such/folder", options).status();
  };
  const int64_t size = GetParam().size < 0 ? static_cast<int64_t>(bytes.size()) : GetParam().size;
  EXPECT_TRUE(load(size).ok()) << load(size);
  const absl::Status above = load(size - 1);
  EXPECT_EQ(above.code(), absl::StatusCode::kOutOfRange) << above;
  EXPECT_EQ(CodeOf(above), GetParam().code);
}

INSTANTIATE_TEST_SUITE_P(All, Limit,
                         ::testing::Values(LimitCase{&Limits::file_bytes, "KV010", -1},
                                           LimitCase{&Limits::nodes, "KV011", 14},
                                           LimitCase{&Limits::attributes, "KV012", 7},
                                           LimitCase{&Limits::functions, "KV013", 3},
                                           LimitCase{&Limits::call_depth, "KV014", 2},
                                           LimitCase{&Limits::subgraph_depth, "KV015", 6},
                                           LimitCase{&Limits::rank, "KV016", 11},
                                           LimitCase{&Limits::name_bytes, "KV017", 100},
                                           LimitCase{&Limits::data_files, "KV019", 2}),
                         [](const auto& c) { return std::string(c.param.code); });

TEST(Limit, MemoryOfEmptyParts) {
  onnx::ModelProto model = Everywhere(8);
  for (int i = 0; i < 1000; ++i) model.mutable_graph()->add_value_info();
  LoadOptions options;
  options.limits.parsed_bytes = 100'000;
  EXPECT_EQ(CodeOf(LoadModelBytes(model.SerializeAsString(), ".", options).status()), "KV018");
  options.limits.parsed_bytes = 200'000;
  EXPECT_TRUE(LoadModelBytes(model.SerializeAsString(), ".", options).ok());
}

// As onnx.save writes what onnx.load read from external data.
TEST(InlineData, MayBeSaidToBeInline) {
  onnx::ModelProto model = Everywhere(5000);
  const std::string plain = model.SerializeAsString();
  for (auto& tensor : *model.mutable_graph()->mutable_initializer()) {
    if (tensor.has_raw_data()) tensor.set_data_location(onnx::TensorProto::DEFAULT);
  }
  const std::string bytes = model.SerializeAsString();
  ASSERT_NE(bytes, plain);
  const auto loaded = LoadModelBytes(bytes, ".");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  int spans = 0;
  for (const auto& tensor : loaded->proto->graph().initializer()) {
    spans += SpanOf(tensor).source != nullptr ? 1 : 0;
  }
  EXPECT_GT(spans, 0);
  const auto written = SerializeModel(*loaded->proto);
  ASSERT_TRUE(written.ok());
  onnx::ModelProto again;
  ASSERT_TRUE(again.ParseFromString(*written));
  for (auto& tensor : *again.mutable_graph()->mutable_initializer()) tensor.clear_data_location();
  EXPECT_EQ(again.SerializeAsString(), plain);
}

TEST(UnknownFields, AreCountedAndKept) {
  const std::string bytes = Everywhere(5000).SerializeAsString() + "\xf8\x07\x01";
  const auto model = LoadModelBytes(bytes, ".");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->unknown_fields, 1);
  EXPECT_EQ(*SerializeModel(*model->proto), bytes);
}

}  // namespace
}  // namespace kvlift
