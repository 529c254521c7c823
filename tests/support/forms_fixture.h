// A model in ONNX text, and the symbolic forms of its values as text.
#pragma once

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "ir/graph.h"
#include "onnxio/model/model.h"
#include "sym/forms/forms.h"

namespace kvlift::testing {

class FormsOfText {
 public:
  explicit FormsOfText(const std::string& text, const sym::FormsOptions& options = {}) {
    auto model = ParseModelText(text);
    if (!model.ok()) ADD_FAILURE() << model.status();
    if (!model.ok()) return;
    auto graph = Graph::Build(std::make_shared<onnx::ModelProto>(*std::move(model)));
    if (!graph.ok()) ADD_FAILURE() << graph.status();
    if (!graph.ok()) return;
    graph_ = std::make_unique<Graph>(*std::move(graph));
    forms_ = std::make_unique<sym::Forms>(*graph_, options);
  }

  sym::Forms& forms() { return *forms_; }
  const Graph& graph() { return *graph_; }
  ValueId Find(const std::string& name) { return graph_->Find(name); }
  const sym::Form& Of(const std::string& name) { return forms_->Of(Find(name)); }

  // Returns "[B, P + S]", or "unknown".
  std::string Shape(const std::string& name) {
    const sym::Form& form = Of(name);
    if (!form.known_rank) return "unknown";
    std::string text;
    for (sym::Expr dim : form.shape) {
      text += (text.empty() ? "" : ", ") + sym::ToString(dim, graph_.get());
    }
    return "[" + text + "]";
  }
  std::string Element(const std::string& name) {
    const sym::Form& form = Of(name);
    return form.known_rank ? sym::ToString(form.element, graph_.get()) : "unknown";
  }
  // Returns the predicates assumed so far, each followed by a semicolon.
  std::string Assumed() {
    std::string text;
    for (const sym::FormAssumption& assumption : forms_->assumptions()) {
      text += sym::ToString(assumption.predicate, graph_.get()) + ";";
    }
    return text;
  }

 private:
  std::unique_ptr<Graph> graph_;
  std::unique_ptr<sym::Forms> forms_;
};

// Returns the text of a model; `signature` is like "(float[A,B] x) => (float[A,B] y)".
inline std::string ModelText(const std::string& signature, const std::string& body,
                             int opset = 20) {
  return "<ir_version: 10, opset_import: [\"\" : " + std::to_string(opset) + "]>\ng " + signature +
         " {\n" + body + "\n}\n";
}

}  // namespace kvlift::testing
