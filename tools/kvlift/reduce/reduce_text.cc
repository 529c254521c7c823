#include "kvlift/reduce/reduce_text.h"

#include "base/escape.h"
#include "fmt/format.h"
#include "kvlift/cli.h"
#include "report/text/bytes.h"

namespace kvlift::cli {
namespace {

using nlohmann::ordered_json;

// Returns a word as a shell reads it.
std::string Quoted(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789-_=.,:/@%+") == std::string::npos;
  if (plain) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

ordered_json SizeJson(const SubjectSize& size) {
  return {{"nodes", size.nodes}, {"bytes", size.bytes}};
}

// Returns a sentence about what the command shows.
std::string Expectation(const ReduceResult& result) {
  const std::string& word = result.property.Word();
  if (word == "crash") return fmt::format("kvlift ends with {}.", result.property.Text());
  if (!result.pair) return fmt::format("kvlift says that the model is {}.", result.property.Text());
  return fmt::format("kvlift says that the pair is {}.", result.property.Text());
}

}  // namespace

std::string CommandOf(const ReduceResult& result) {
  std::string line = result.pair ? "kvlift verify before.onnx after.onnx"
                                 : "kvlift convert model.onnx -o out.onnx --dry-run";
  for (const std::string& word : result.arguments) line += " " + Quoted(word);
  return line;
}

std::string ReadmeOf(const ReduceResult& result) {
  std::string text = fmt::format("# {}: {}\n\n", result.pair ? "A pair of models" : "A model",
                                 result.property.Text());
  text += fmt::format(
      "`kvlift reduce` made {} small. In this folder,\n\n```sh\n{}\n```\n\nshows what is to be "
      "seen "
      "with kvlift {}. {}\n\n",
      result.pair ? "this pair" : "this model", EscapeTerminal(CommandOf(result)), kVersion,
      Expectation(result));
  if (!result.observed.empty()) {
    text += fmt::format("What it says:\n\n```text\n{}\n```\n\n", EscapeTerminal(result.observed));
  }
  text += fmt::format(
      "| | nodes | bytes |\n| --- | --- | --- |\n| given | {} | {} |\n| here | {} | {} |\n\n",
      result.before.nodes, result.before.bytes, result.after.nodes, result.after.bytes);
  if (result.pair) {
    text +=
        "`before.onnx` is the source, `after.onnx` its conversion, and `after.kv.json` says how "
        "the "
        "inputs\nand outputs of the two correspond. Numbers of nodes and bytes are sums over both "
        "models.\n";
  }
  if (!result.complete) text += "The time was over before nothing smaller was found.\n";
  return text;
}

ordered_json DocumentOf(const ReduceResult& result) {
  const std::string& code = result.property.code();
  ordered_json json = {{"schema", "kvlift/reduce/1"}, {"status", "reduced"}};
  json["property"] = {{"kind", result.property.Word()},
                      {"code", code.empty() ? ordered_json(nullptr) : ordered_json(code)},
                      {"text", result.property.Text()}};
  json["observed"] = result.observed;
  json["command"] = CommandOf(result);
  json["before"] = SizeJson(result.before);
  json["after"] = SizeJson(result.after);
  json["complete"] = result.complete;
  json["outputs"] = result.outputs;
  return json;
}

ordered_json NotShownDocument(const std::string& outcome, const std::string& reason) {
  return {{"schema", "kvlift/reduce/1"},
          {"status", "not-shown"},
          {"property", nullptr},
          {"observed", reason.empty() ? outcome : outcome + ": " + reason},
          {"command", nullptr},
          {"before", nullptr},
          {"after", nullptr},
          {"complete", nullptr},
          {"outputs", ordered_json::array()}};
}

std::string TextOf(const ReduceResult& result) {
  std::string text;
  for (const std::string& file : result.outputs) {
    text += fmt::format("wrote {}\n", EscapeTerminal(file));
  }
  if (!result.complete) text += "the time was over before nothing smaller was found\n";
  return text + fmt::format("reduced: {} -> {} nodes, {} -> {}, still {}\n", result.before.nodes,
                            result.after.nodes, BytesText(result.before.bytes),
                            BytesText(result.after.bytes), result.property.Text());
}

}  // namespace kvlift::cli
