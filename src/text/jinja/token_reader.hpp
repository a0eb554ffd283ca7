#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "text/jinja/lexer.hpp"
#include "text/jinja/syntax.hpp"

namespace trireme::text::jinja {

/// Reads the tokens of a template one after the other.
class TokenReader {
 public:
  TokenReader(std::vector<JinjaToken> tokens, std::string_view template_name)
      : tokens_(std::move(tokens)), template_name_(template_name) {}

  [[nodiscard]] const JinjaToken& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }

  [[nodiscard]] bool is(JinjaToken::Kind kind, std::string_view text = {}) const {
    return peek().kind == kind && (text.empty() || peek().text == text);
  }

  [[nodiscard]] bool is_sign(std::string_view text) const {
    return is(JinjaToken::Kind::sign, text);
  }

  [[nodiscard]] bool is_name(std::string_view text) const {
    return is(JinjaToken::Kind::name, text);
  }

  JinjaToken next() {
    JinjaToken token = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }

  /// Skips the token and returns true if it is this sign or name.
  bool take_sign(std::string_view text) { return is_sign(text) && (next(), true); }

  bool take_name(std::string_view text) { return is_name(text) && (next(), true); }

  JinjaToken expect(JinjaToken::Kind kind, std::string_view what) {
    if (peek().kind != kind) refuse(peek().place, cat("expected ", what, found()));
    return next();
  }

  void expect_sign(std::string_view text) {
    if (!take_sign(text)) refuse(peek().place, cat("expected '", text, "'", found()));
  }

  [[noreturn]] void refuse(JinjaPlace place, std::string_view reason) const {
    refuse_template(template_name_, place, reason);
  }

 private:
  [[nodiscard]] std::string found() const {
    const JinjaToken& token = peek();
    return token.text.empty() ? std::string(", but the tag or the template ends")
                              : cat(", found '", token.text, "'");
  }

  std::vector<JinjaToken> tokens_;
  std::size_t at_ = 0;
  std::string template_name_;
};

/// Reads one expression. `with_choice`: `a if b else c` is allowed.
JinjaExpressionPtr parse_expression(TokenReader& reader, bool with_choice = true);

/// Reads `a, b` as a list of two, otherwise one expression.
JinjaExpressionPtr parse_expression_list(TokenReader& reader);

}  // namespace trireme::text::jinja
