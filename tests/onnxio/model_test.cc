// LIBS: onnxio
#include "onnxio/model/model.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/coded.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvlift {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kModel[] = R"(<ir_version: 10, opset_import: ["" : 18]>
g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = Relu(x) y = Add(a, w) })";

class ModelFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "kvlift-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::string Put(const std::string& name, const std::string& bytes) const {
    std::ofstream(dir_ / name, std::ios::binary) << bytes;
    return (dir_ / name).string();
  }
  std::string Get(const std::string& name) const {
    std::ifstream file(dir_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  int NumFiles() const {
    return static_cast<int>(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()));
  }
  absl::Status LoadError(const std::string& bytes) const {
    return LoadModel(Put("m.onnx", bytes)).status();
  }

  fs::path dir_;
};

onnx::ModelProto Parsed(const std::string& text = kModel) { return ParseModelText(text).value(); }

TEST_F(ModelFiles, BinaryAndText) {
  const std::string bytes = Parsed().SerializeAsString();
  const auto binary = LoadModel(Put("m.onnx", bytes));
  ASSERT_TRUE(binary.ok()) << binary.status();
  EXPECT_EQ(binary->Sha256(), Sha256Hex(bytes));
  EXPECT_EQ(binary->base_dir, dir_.string());
  EXPECT_EQ(*SerializeModel(*binary->proto), bytes);
  const auto text = LoadModel(Put("m.onnxtxt", kModel));
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->proto->SerializeAsString(), bytes);
  EXPECT_EQ(Parsed(PrintModelText(*text->proto)).SerializeAsString(), bytes);
}

TEST_F(ModelFiles, StandardInput) {
  const std::string path = Put("m.onnx", Parsed().SerializeAsString());
  const int saved = dup(STDIN_FILENO);
  const int fd = open(path.c_str(), O_RDONLY);
  dup2(fd, STDIN_FILENO);
  const auto model = LoadModel("-");
  dup2(saved, STDIN_FILENO);
  close(saved);
  close(fd);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->path, "-");
}

TEST_F(ModelFiles, OtherFilesAreNamed) {
  const auto message = [&](const std::string& bytes) {
    const absl::Status status = LoadError(bytes);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message(""), HasSubstr("empty"));
  EXPECT_THAT(message("PK\x03\x04..."), HasSubstr("zip"));
  EXPECT_THAT(message("GGUF...."), HasSubstr("GGUF"));
  EXPECT_THAT(message("\x89HDF\r\n\x1a\n"), HasSubstr("HDF5"));
  EXPECT_THAT(message("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
              HasSubstr("Git LFS"));
  EXPECT_THAT(message("{\"a\": 1}"), HasSubstr("JSON"));
  EXPECT_THAT(message(std::string("\x40\0\0\0\0\0\0\0{\"w\":", 13)), HasSubstr("safetensors"));
  EXPECT_THAT(message("\x08\x0a"), HasSubstr("no graph"));
  EXPECT_EQ(LoadModel(dir_.string()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(LoadModel(dir_.string()).status().message()), HasSubstr("directory"));
  EXPECT_EQ(LoadModel((dir_ / "none").string()).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ModelFiles, TruncationAndGarbage) {
  const std::string bytes = Parsed().SerializeAsString();
  // A cut between two fields of the model leaves a shorter model; any other is an error.
  int whole = 0;
  for (size_t size = 1; size < bytes.size(); ++size) {
    if (LoadError(bytes.substr(0, size)).ok()) ++whole;
  }
  EXPECT_LE(whole, 2);
  EXPECT_FALSE(LoadError(bytes + std::string(3, '\0')).ok());
  EXPECT_FALSE(LoadError(bytes + "\xff\xff").ok());
}

TEST_F(ModelFiles, FieldsThatNoMessageCanHave) {
  const std::string bytes = Parsed().SerializeAsString();
  ASSERT_TRUE(LoadError(bytes + "\xfb\x07\xfc\x07").ok());  // an empty group, number 127
  for (const std::string& end :
       {std::string("\x02\0", 2),                      // the field number 0
        std::string("\xfe\x07\0", 3),                  // the wire type 6
        std::string("\x88\x80\x80\x80\x10\0", 6),      // a tag of more than 32 bits
        std::string("\xfa\x07\x81\x80\x80\x80\x10x"),  // a length of more than 32 bits
        std::string("\xf8\x07") + std::string(10, '\xff') + "\x01",  // more than 64 bits
        std::string("\xfb\x07"),                                     // a group that never ends
        std::string("\xfb\x07\xf4\x07"),                             // and one of another number
        std::string("\xfc\x07")}) {
    EXPECT_EQ(CodeOf(LoadError(bytes + end)), "KV002") << ::testing::PrintToString(end);
  }
  std::string groups;
  for (int i = 0; i < 100'000; ++i) groups += "\xfb\x07";
  EXPECT_EQ(CodeOf(LoadError(bytes + groups)), "KV002");
}

TEST_F(ModelFiles, DamageHasAPosition) {
  // A graph of 100 bytes, in which 2 bytes follow.
  EXPECT_THAT(std::string(LoadError(std::string("\x3a\x64\x0a\0", 4)).message()),
              HasSubstr("at byte 2 of 4"));
}

TEST_F(ModelFiles, NestingHasALimit) {
  for (const int depth : {30, 31, 60, 500}) {
    onnx::ModelProto model = Parsed();
    onnx::NodeProto* at = model.mutable_graph()->mutable_node(0);
    for (int i = 0; i < depth; ++i) {
      auto* attribute = at->add_attribute();
      attribute->set_type(onnx::AttributeProto::GRAPH);
      at = attribute->mutable_g()->add_node();
    }
    EXPECT_EQ(LoadError(model.SerializeAsString()).ok(), depth <= 30) << depth;
  }
}

TEST_F(ModelFiles, NamesInMessagesAreEscaped) {
  const auto status = LoadModel((dir_ / "a\x1b[31m").string()).status();
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("\\x1b"), Not(HasSubstr("\x1b"))));
}

TEST(ParseModelText, ErrorsHaveAPosition) {
  const auto status =
      ParseModelText("<ir_version: 10, opset_import: [\"\" : 18]>\ng (float[2] x) => y)").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("line: 2 column: "));
  EXPECT_FALSE(ParseModelText("").ok());
  EXPECT_FALSE(ParseModelText(std::string(kModel) + std::string(1, '\0')).ok());
  EXPECT_FALSE(ParseModelText(std::string(kModel) + " trailing").ok());
  EXPECT_EQ(ParseModelText(std::string(100000, '{')).status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST(CheckModel, AcceptsAndRefuses) {
  EXPECT_TRUE(CheckModel(Parsed()).ok()) << CheckModel(Parsed());
  onnx::ModelProto bad = Parsed();
  bad.mutable_graph()->mutable_node(0)->set_op_type("NoSuchOp");
  EXPECT_EQ(CheckModel(bad).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(CheckModel(bad).message()), HasSubstr("NoSuchOp"));
  bad = Parsed();
  bad.mutable_graph()->mutable_output(0)->mutable_type()->mutable_tensor_type()->set_elem_type(
      onnx::TensorProto::INT64);
  EXPECT_FALSE(CheckModel(bad).ok());
}

onnx::ModelProto WithExternalData(const std::string& location) {
  onnx::ModelProto model = Parsed();
  auto* tensor = model.mutable_graph()->mutable_initializer(0);
  tensor->clear_float_data();
  tensor->clear_raw_data();
  tensor->set_data_location(onnx::TensorProto::EXTERNAL);
  const auto add = [&](const char* key, const std::string& value) {
    auto* entry = tensor->add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  };
  add("location", location);
  add("offset", "4");
  add("length", "8");
  return model;
}

// Which of two attributes of one name is meant cannot be told, and readers take either.
TEST(LoadModelBytes, AnAttributeStandsOnce) {
  onnx::ModelProto model = Parsed();
  onnx::NodeProto* node = model.mutable_graph()->mutable_node(0);
  for (const int64_t axis : {0, 1}) {
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name("axis");
    attribute->set_type(onnx::AttributeProto::INT);
    attribute->set_i(axis);
  }
  const auto loaded = LoadModelBytes(model.SerializeAsString(), "");
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(loaded.status().message()), HasSubstr("has attribute axis twice"));
  EXPECT_EQ(CodeOf(loaded.status()), "KV101");
}

// Runtimes choose between an operator of ONNX and a function of its name; ONNX's own inliner and
// reference implementation choose differently.
TEST(LoadModelBytes, AFunctionIsNoOperatorOfOnnx) {
  const auto load = [](const std::string& domain, const std::string& name, int opset) {
    const auto model = ParseModelText(
        "<ir_version: 10, opset_import: [\"\": " + std::to_string(opset) +
        ", \"com.microsoft\": 1]> g (float[2] x) => (float[2] y) { y = Neg(x) }\n<domain: \"" +
        domain + "\", opset_import: [\"\": " + std::to_string(opset) + "]> " + name +
        " (a) => (b) { b = Neg(a) }");
    EXPECT_TRUE(model.ok()) << model.status();
    return LoadModelBytes(model->SerializeAsString(), "").status();
  };
  EXPECT_EQ(load("", "Gelu", 20).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(load("ai.onnx", "Softmax", 18).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(load("", "Gelu", 18).ok());  // Gelu came with opset 20
  EXPECT_TRUE(load("f", "Gelu", 20).ok());
  // ONNX Runtime runs an operator of its own instead.
  EXPECT_EQ(load("com.microsoft", "MatMulNBits", 20).code(), absl::StatusCode::kInvalidArgument);
  // Some of these bodies stay beside their nodes (IsBodyOfOperator).
  EXPECT_TRUE(load("com.microsoft", "Gelu", 20).ok());
}

TEST(CheckModel, DoesNotLookForExternalData) {
  const onnx::ModelProto model = WithExternalData("no/such/file");
  EXPECT_TRUE(CheckModel(model).ok()) << CheckModel(model);
  EXPECT_EQ(model.graph().initializer(0).external_data(0).value(), "no/such/file");
}

TEST(InferShapes, IsStrict) {
  const auto inferred = InferShapes(Parsed());
  ASSERT_TRUE(inferred.ok()) << inferred.status();
  EXPECT_EQ(inferred->graph().value_info(0).name(), "a");
  const auto bad = InferShapes(Parsed(R"(<ir_version: 10, opset_import: ["" : 18]>
      g (float[2] x, float[3] z) => (float[2] y) { y = Add(x, z) })"));
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(InferShapes, BranchesMayUseTheSameNames) {
  const auto model = Parsed(R"(<ir_version: 10, opset_import: ["" : 18]>
      g (bool c, float[N] x) => (int64[1] y) {
        y = If (c) <then_branch = t () => (int64[1] y1) { s = Shape(x) y1 = Identity(s) },
                    else_branch = e () => (int64[1] y2) { s = Shape(x) y2 = Neg(s) }> })");
  EXPECT_TRUE(InferShapes(model).ok()) << InferShapes(model).status();
  EXPECT_TRUE(CheckModel(model).ok()) << CheckModel(model);
}

TEST(InlineFunctions, RemovesAllCalls) {
  const auto inlined = InlineFunctions(Parsed(R"(<ir_version: 10, opset_import: ["" : 18, "f" : 1]>
      g (float[2] x) => (float[2] y) { y = f.Twice(x) }
      <domain: "f", opset_import: ["" : 18]> Twice (a) => (b) { b = Add(a, a) })"));
  ASSERT_TRUE(inlined.ok()) << inlined.status();
  EXPECT_EQ(inlined->functions_size(), 0);
  EXPECT_EQ(inlined->graph().node(0).op_type(), "Add");
  const auto cycle = InlineFunctions(Parsed(R"(<ir_version: 10, opset_import: ["" : 18, "f" : 1]>
      g (float[2] x) => (float[2] y) { y = f.Loops(x) }
      <domain: "f", opset_import: ["" : 18, "f" : 1]> Loops (a) => (b) { b = f.Loops(a) })"));
  EXPECT_EQ(cycle.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ModelFiles, ExternalDataIsReadInsideTheDirectoryOnly) {
  Put("w.bin", std::string("....\0\0\x80\x3f\0\0\0\x40", 12));
  const auto read = [&](const std::string& location) {
    return ReadTensorBytes(WithExternalData(location).graph().initializer(0), dir_.string());
  };
  const auto code = [&](const std::string& location) { return read(location).status().code(); };
  ASSERT_TRUE(read("w.bin").ok()) << read("w.bin").status();
  EXPECT_EQ(*read("w.bin"), std::string("\0\0\x80\x3f\0\0\0\x40", 8));
  Put("w..bin", Get("w.bin"));
  EXPECT_TRUE(read("w..bin").ok());  // two dots in a name are honest
  EXPECT_EQ(code("../w.bin"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("sub/../w.bin"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code((dir_ / "w.bin").string()), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("C:\\w.bin"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(std::string("w.bin\0x", 7)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(""), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("none"), absl::StatusCode::kNotFound);
  Put("short.bin", "1234567890.");
  EXPECT_EQ(code("short.bin"), absl::StatusCode::kOutOfRange);
  fs::create_directory(dir_ / "folder");
  EXPECT_EQ(code("folder"), absl::StatusCode::kInvalidArgument);
  fs::create_symlink("w.bin", dir_ / "inside");
  EXPECT_TRUE(read("inside").ok()) << read("inside").status();
  fs::create_symlink("/etc/passwd", dir_ / "outside");
  EXPECT_EQ(code("outside"), absl::StatusCode::kInvalidArgument);
  fs::create_directory_symlink("/etc", dir_ / "etc");
  EXPECT_EQ(code("etc/passwd"), absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(code("pipe"), absl::StatusCode::kInvalidArgument);
}

TEST_F(ModelFiles, ExternalDataWithWrongNumbers) {
  Put("w.bin", std::string(12, 'x'));
  const auto code = [&](int entry, const std::string& value) {
    onnx::ModelProto model = WithExternalData("w.bin");
    auto* tensor = model.mutable_graph()->mutable_initializer(0);
    tensor->mutable_external_data(entry)->set_value(value);
    return ReadTensorBytes(*tensor, dir_.string()).status().code();
  };
  EXPECT_EQ(code(1, "5"), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code(1, "9223372036854775807"), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code(1, "-4"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(1, "0x4"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(2, "7"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(2, "9999999999999999999999"), absl::StatusCode::kInvalidArgument);
}

TEST_F(ModelFiles, ExternalBytesAreSummed) {
  const auto model = LoadModel(Put("m.onnx", WithExternalData("none").SerializeAsString()));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->external_bytes, 8);
  onnx::ModelProto bad = WithExternalData("none");
  bad.mutable_graph()->mutable_initializer(0)->mutable_external_data(2)->set_value("-8");
  EXPECT_EQ(LoadError(bad.SerializeAsString()).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ModelFiles, WritesAllOrNothing) {
  const std::string a = Put("a", "old a");
  const std::string b = (dir_ / "b").string();
  ASSERT_TRUE(WriteFiles({{a, "new a"}, {b, "new b"}}).ok());
  EXPECT_EQ(Get("a"), "new a");
  EXPECT_EQ(Get("b"), "new b");
  EXPECT_EQ(NumFiles(), 2);
  const absl::Status missing = WriteFiles({{a, "newer"}, {(dir_ / "no" / "c").string(), "c"}});
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Get("a"), "new a");
  EXPECT_EQ(NumFiles(), 2);
  EXPECT_FALSE(WriteFiles({{a, "newer"}, {dir_.string(), "c"}}).ok());
  EXPECT_EQ(Get("a"), "new a");
  EXPECT_EQ(NumFiles(), 2);
  ASSERT_TRUE(WriteFiles({{a, ""}}).ok());
  EXPECT_EQ(Get("a"), "");
}

TEST_F(ModelFiles, FullDiskLeavesOldFiles) {
  const std::string a = Put("a", "old");
  // A limit on file sizes fails writes as a full disk does.
  const auto write_limited = [&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const absl::Status status = WriteFiles({{a, std::string(5000, 'x')}});
    exit(status.code() == absl::StatusCode::kResourceExhausted ? 0 : 1);
  };
  EXPECT_EXIT(write_limited(), ::testing::ExitedWithCode(0), "");
  EXPECT_EQ(Get("a"), "old");
  EXPECT_EQ(NumFiles(), 1);
}

}  // namespace
}  // namespace kvlift
