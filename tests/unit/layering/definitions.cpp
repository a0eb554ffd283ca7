#include "unit/layering/definitions.hpp"

#include <algorithm>
#include <cctype>

namespace trireme::layering {
namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// Splits C++ into words and single characters, without comments, literals and preprocessor lines.
class Tokens {
 public:
  explicit Tokens(std::string_view text) : text_(text) {}

  /// Returns the next token; "" at the end.
  std::string_view next() {
    while (!text_.empty()) {
      const char c = text_.front();
      if (text_.starts_with("//") || c == '#') {
        drop(text_.find('\n'));
      } else if (text_.starts_with("/*")) {
        drop_past("*/");
      } else if (text_.starts_with("R\"")) {
        const std::size_t open = text_.find('(');
        std::string end = ")";
        end += text_.substr(2, open - 2);
        drop_past(end += '"');
      } else if (c == '"' || (c == '\'' && !after_word_)) {
        drop_literal(c);
      } else if (is_word(c)) {
        std::size_t end = 1;
        while (end < text_.size() && is_word(text_[end])) ++end;
        return take(end);
      } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
        drop(1);
      } else {
        return take(1);
      }
    }
    return "";
  }

 private:
  std::string_view take(std::size_t size) {
    const std::string_view token = text_.substr(0, size);
    after_word_ = is_word(token.back());  // the quote in 1'000 begins no character
    text_.remove_prefix(size);
    return token;
  }

  void drop(std::size_t size) {
    text_.remove_prefix(std::min(size, text_.size()));
    after_word_ = false;
  }

  void drop_past(std::string_view end) {
    const std::size_t at = text_.find(end);
    drop(at == std::string_view::npos ? at : at + end.size());
  }

  void drop_literal(char quote) {
    std::size_t at = 1;
    while (at < text_.size() && text_[at] != quote) at += text_[at] == '\\' ? 2 : 1;
    drop(at + 1);
  }

  std::string_view text_;
  bool after_word_ = false;
};

/// One open brace: a named namespace ("trireme::"), or anything else ("").
using Scopes = std::vector<std::string>;

bool in_named_namespaces(const Scopes& scopes) {
  for (const std::string& scope : scopes) {
    if (scope.empty()) return false;
  }
  return !scopes.empty();
}

std::string joined(const std::vector<std::string_view>& words, std::size_t from) {
  std::string text;
  for (std::size_t i = from; i < words.size(); ++i) text += words[i];
  return text;
}

/// Returns the name that a statement up to its '{' defines as a type; "" if it defines none.
std::string type_name(const std::vector<std::string_view>& words) {
  std::size_t at = 0;
  if (at < words.size() && words[at] == "template") {
    int depth = 0;
    do {
      ++at;
      if (at < words.size() && words[at] == "<") ++depth;
      if (at < words.size() && words[at] == ">") --depth;
    } while (at < words.size() && depth > 0);
    ++at;
  }
  if (at >= words.size()) return "";
  if (words[at] != "class" && words[at] != "struct" && words[at] != "enum") return "";
  ++at;
  while (at < words.size() &&
         (words[at] == "class" || words[at] == "[" || words[at] == "]" || words[at] == "nodiscard"))
    ++at;
  if (at >= words.size() || !is_word(words[at].front())) return "";
  // A specialization is not a new name, and a function that returns `struct X` does not define it.
  const auto word = [&](std::size_t i) { return i < words.size() ? words[i] : ""; };
  const bool nested = word(at + 1) == ":" && word(at + 2) == ":";  // struct Outer::Inner
  const bool ends = word(at + 1).empty() || word(at + 1) == ":" || word(at + 1) == "final";
  return ends && !nested ? std::string(words[at]) : "";
}

}  // namespace

std::vector<std::string> defined_types(std::string_view content) {
  Tokens tokens(content);
  Scopes scopes;
  std::vector<std::string_view> words;  // words of the current statement
  std::vector<std::string> types;
  for (std::string_view token = tokens.next(); !token.empty(); token = tokens.next()) {
    if (token == "{") {
      const bool is_namespace = !words.empty() && words[0] == "namespace" && words.size() > 1;
      if (!is_namespace && in_named_namespaces(scopes)) {
        std::string place;
        for (const std::string& scope : scopes) place += scope;
        const std::string name = type_name(words);
        if (!name.empty()) types.push_back(place + name);
      }
      scopes.push_back(is_namespace ? joined(words, 1) + "::" : "");
      words.clear();
    } else if (token == "}") {
      if (!scopes.empty()) scopes.pop_back();
      words.clear();
    } else if (token == ";") {
      words.clear();
    } else {
      words.push_back(token);
    }
  }
  return types;
}

}  // namespace trireme::layering
