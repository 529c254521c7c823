#include "kvlift/reduce/reduce_text.h"

#include "base/escape.h"
#include "base/findings.h"
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

// Returns what the command says, as the end of a sentence: "verify still says different with
// KV404".
std::string StillSays(const ReduceResult& result) {
  const char* command = result.pair ? "verify" : "convert";
  return result.property.Word() == "crash"
             ? fmt::format("{} still ends in {}", command, result.property.Text())
             : fmt::format("{} still says {}", command, result.property.Text());
}

// Returns what the command shows, as the end of a sentence that begins with the command.
std::string Expectation(const ReduceResult& result) {
  const std::string property = result.property.Text();
  const std::string what =
      result.property.Word() == "crash"
          ? fmt::format("end in {}", property)
          : fmt::format("say that {} {}", result.pair ? "the pair is" : "the model is", property);
  const FindingInfo* info = FindFinding(result.property.code());
  return fmt::format("makes kvlift {} {}{}", kVersion, what,
                     info == nullptr ? "" : fmt::format(" ({})", info->message));
}

}  // namespace

std::string CommandOf(const ReduceResult& result) {
  std::string line = result.pair ? "kvlift verify before.onnx after.onnx"
                                 : "kvlift convert model.onnx -o out.onnx --dry-run";
  for (const std::string& word : result.arguments) line += " " + Quoted(word);
  return line;
}

std::string ReadmeOf(const ReduceResult& result) {
  const char* what = result.pair ? "this pair of models" : "this model";
  std::string text = fmt::format("# {}: {}\n\n", result.pair ? "A pair of models" : "A model",
                                 result.property.Text());
  text += fmt::format(
      "`kvlift reduce` made {} out of a larger one, by taking away what is not needed to see\n"
      "this. In this folder,\n\n```sh\n{}\n```\n\n{}",
      what, EscapeTerminal(CommandOf(result)), Expectation(result));
  text += result.observed.empty()
              ? ".\n\n"
              : fmt::format(":\n\n```text\n{}\n```\n\n", EscapeTerminal(result.observed));
  text += fmt::format(
      "| | nodes | bytes |\n| --- | --- | --- |\n| given | {} | {} |\n| in this folder | {} | {} "
      "|\n\n",
      result.before.nodes, result.before.bytes, result.after.nodes, result.after.bytes);
  text += result.pair ? "`before.onnx` is the source, `after.onnx` its conversion, and "
                        "`after.kv.json` says how the inputs\nand outputs of the two correspond. "
                        "Numbers are sums over both models; nodes in bodies of If, Loop\nand Scan "
                        "are counted.\n"
                      : "Nodes in bodies of If, Loop and Scan are counted.\n";
  if (!result.complete) {
    text += "The search ended when its time (`--budget`) was over; something smaller may exist.\n";
  }
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
  if (!result.complete) {
    text += "the time of --budget was over; something smaller may exist\n";
  }
  return text + fmt::format("reduced: {} -> {} nodes, {} -> {}; {}\n", result.before.nodes,
                            result.after.nodes, BytesText(result.before.bytes),
                            BytesText(result.after.bytes), StillSays(result));
}

}  // namespace kvlift::cli
