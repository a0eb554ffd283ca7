#include "text/jinja/lexer.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <utility>

#include "core/error.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::text::jinja {
namespace {

constexpr std::string_view kBlank = " \t\n\r\f\v";
constexpr auto npos = std::string_view::npos;

bool is_name_begin(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string with_unix_lines(std::string_view source) {
  std::string text;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexing {
 public:
  Lexing(std::string_view source, std::string_view name)
      : source_(with_unix_lines(source)), name_(name) {}

  std::vector<JinjaToken> run() {
    while (at_ < source_.size()) read_data();
    add(JinjaToken::Kind::end, "", at_);
    return std::move(tokens_);
  }

 private:
  using Kind = JinjaToken::Kind;

  [[nodiscard]] bool here(std::string_view text) const {
    return std::string_view(source_).substr(at_).starts_with(text);
  }

  [[nodiscard]] JinjaPlace place_of(std::size_t at) const {
    const std::string_view before = std::string_view(source_).substr(0, at);
    const std::size_t line = before.rfind('\n');
    return {static_cast<std::size_t>(std::ranges::count(before, '\n')) + 1,
            at - (line == npos ? 0 : line + 1) + 1};
  }

  [[noreturn]] void refuse(std::size_t at, std::string_view reason) const {
    refuse_template(name_, place_of(at), reason);
  }

  void add(Kind kind, std::string text, std::size_t at) {
    tokens_.push_back({kind, std::move(text), place_of(at)});
  }

  /// Returns the position of the next tag.
  [[nodiscard]] std::size_t next_tag() const {
    for (std::size_t at = at_; (at = source_.find('{', at)) != npos; ++at) {
      const char next = at + 1 < source_.size() ? source_[at + 1] : ' ';
      if (next == '%' || next == '{' || next == '#') return at;
    }
    return source_.size();
  }

  void read_data() {
    const std::size_t begin = at_;
    const std::size_t tag = next_tag();
    std::string data = source_.substr(begin, tag - begin);
    const char kind = tag < source_.size() ? source_[tag + 1] : ' ';
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    if (tag < source_.size()) trim_before(data, kind, sign);
    if (!data.empty()) add(Kind::data, data, begin);
    if (tag == source_.size()) {
      at_ = tag;
      return;
    }
    at_ = tag + 2 + (sign == '-' || sign == '+' ? 1 : 0);
    if (kind == '#') return read_comment(tag);
    if (kind == '%' && read_raw(tag)) return;
    add(kind == '%' ? Kind::block_begin : Kind::output_begin, "", tag);
    read_tag(kind == '%' ? "%}" : "}}", kind == '%');
  }

  /// Applies `{%-` and lstrip_blocks to the text before a tag.
  void trim_before(std::string& data, char kind, char sign) const {
    if (sign == '-') {
      data.erase(data.find_last_not_of(kBlank) + 1);
    } else if (sign != '+' && kind != '{') {
      const std::size_t line = data.rfind('\n') + 1;  // npos + 1 is 0
      const bool begins_line = line > 0 || line_begins_;
      if (begins_line && data.find_first_not_of(" \t\f\v\r", line) == npos) data.erase(line);
    }
  }

  /// Moves behind the end of a tag and applies `-%}` and trim_blocks to the text after it.
  void end_tag(char sign, std::size_t length, bool trims_line) {
    at_ += length;
    const std::size_t begin = at_;
    if (sign == '-') {
      at_ = std::min(source_.find_first_not_of(kBlank, at_), source_.size());
    } else if (sign != '+' && trims_line && here("\n")) {
      ++at_;
    }
    line_begins_ = at_ > begin && source_[at_ - 1] == '\n';
  }

  void read_comment(std::size_t tag) {
    const std::size_t end = source_.find("#}", at_);
    if (end == npos) refuse(tag, "the comment has no end '#}'");
    const char sign = end > at_ ? source_[end - 1] : ' ';
    at_ = end;
    end_tag(sign == '+' ? '+' : sign, 2, true);
  }

  /// Reads {% raw %} ... {% endraw %}; false if the tag is another one.
  bool read_raw(std::size_t tag) {
    std::size_t at = source_.find_first_not_of(kBlank, at_);
    if (at == npos || source_.compare(at, 3, "raw") != 0) return false;
    at = source_.find_first_not_of(kBlank, at + 3);
    const bool trims = at != npos && source_[at] == '-';
    if (at == npos || source_.compare(at + (trims ? 1 : 0), 2, "%}") != 0) return false;
    at_ = at + (trims ? 1 : 0);
    end_tag(trims ? '-' : ' ', 2, true);
    for (std::size_t end = at_; (end = source_.find("{%", end)) != npos; ++end) {
      std::size_t word = end + 2;
      const char sign = word < source_.size() ? source_[word] : ' ';
      if (sign == '-' || sign == '+') ++word;
      word = source_.find_first_not_of(kBlank, word);
      if (word == npos || source_.compare(word, 6, "endraw") != 0) continue;
      std::string data = source_.substr(at_, end - at_);
      trim_before(data, '%', sign);
      if (!data.empty()) add(Kind::data, data, at_);
      at_ = source_.find_first_not_of(kBlank, word + 6);
      if (at_ == npos) break;
      const char last = source_[at_];
      if (last == '-' || last == '+') ++at_;
      if (!here("%}")) break;
      end_tag(last, 2, true);
      return true;
    }
    refuse(tag, "the raw block has no end");
  }

  void read_tag(std::string_view end, bool is_block) {
    const std::size_t begin = at_;
    std::string open;  // brackets
    while (true) {
      at_ = source_.find_first_not_of(kBlank, at_);
      if (at_ == npos) {
        at_ = source_.size();
        refuse(begin, formatted("the tag has no end '{}'", end));
      }
      const char sign = source_[at_];
      const bool has_sign = sign == '-' || sign == '+';
      if (open.empty() && source_.compare(at_ + (has_sign ? 1 : 0), 2, end) == 0) {
        add(is_block ? Kind::block_end : Kind::output_end, "", at_);
        return end_tag(has_sign ? sign : ' ', has_sign ? 3 : 2, is_block);
      }
      read_token(open);
    }
  }

  void read_token(std::string& open) {
    const std::size_t begin = at_;
    const char c = source_[at_];
    if (is_name_begin(c)) {
      while (at_ < source_.size() && (is_name_begin(source_[at_]) || is_digit(source_[at_]))) ++at_;
      return add(Kind::name, source_.substr(begin, at_ - begin), begin);
    }
    if (is_digit(c)) return read_number();
    if (c == '"' || c == '\'') return read_text(c);
    for (const std::string_view sign : {"==", "!=", "<=", ">=", "//", "**"}) {
      if (!here(sign)) continue;
      at_ += 2;
      return add(Kind::sign, std::string(sign), begin);
    }
    if (std::string_view("+-*/%~<>=.,:|()[]{}").find(c) == npos)
      refuse(begin, static_cast<unsigned char>(c) < 0x80
                        ? formatted("the character '{}' has no meaning here", c)
                        : "a character that is not ASCII has no meaning here");
    if (c == '(' || c == '[' || c == '{') open += c;
    if (c == ')' || c == ']' || c == '}') {
      const char partner = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (!open.ends_with(partner)) refuse(begin, formatted("'{}' was not opened", c));
      open.pop_back();
    }
    ++at_;
    add(Kind::sign, std::string(1, c), begin);
  }

  void read_number() {
    const std::size_t begin = at_;
    const auto digits = [&] {
      while (at_ < source_.size() && is_digit(source_[at_])) ++at_;
    };
    digits();
    const bool is_real =
        at_ + 1 < source_.size() && source_[at_] == '.' && is_digit(source_[at_ + 1]);
    if (is_real) {
      ++at_;
      digits();
    }
    if (at_ < source_.size() && (is_name_begin(source_[at_])))
      refuse(begin, "only decimal numbers without exponent are supported");
    add(is_real ? Kind::real : Kind::integer, source_.substr(begin, at_ - begin), begin);
  }

  void read_text(char quote) {
    const std::size_t begin = at_++;
    std::string text;
    for (; at_ < source_.size() && source_[at_] != quote; ++at_) {
      if (source_[at_] == '\\') {
        read_escape(text);
      } else {
        text += source_[at_];
      }
    }
    if (at_ == source_.size()) refuse(begin, "the text has no end");
    ++at_;
    add(Kind::text, std::move(text), begin);
  }

  void read_escape(std::string& text) {
    constexpr std::array kEscapes = {
        std::pair{'n', '\n'},  std::pair{'t', '\t'}, std::pair{'r', '\r'}, std::pair{'\\', '\\'},
        std::pair{'\'', '\''}, std::pair{'"', '"'},  std::pair{'b', '\b'}, std::pair{'f', '\f'}};
    const std::size_t begin = at_++;
    const char c = at_ < source_.size() ? source_[at_] : ' ';
    for (const auto& [name, value] : kEscapes) {
      if (c == name) {
        text += value;
        return;
      }
    }
    if (c == '\n') return;  // a line that continues
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    const std::string code = source_.substr(at_ + 1, digits);
    const bool is_code = digits != 0 && code.size() == digits &&
                         code.find_first_not_of("0123456789abcdefABCDEF") == npos;
    const unsigned long value = is_code ? std::stoul(code, nullptr, 16) : 0;
    if (is_code && (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)))
      refuse(begin, "the escape is not a character");
    if (is_code) {
      append_utf8(static_cast<std::uint32_t>(value), text);
      at_ += digits;
    } else if (is_digit(c)) {
      refuse(begin, "octal escapes are not supported");
    } else {
      text += '\\';
      text += c;
    }
  }

  std::string source_;
  std::string_view name_;
  std::size_t at_ = 0;
  bool line_begins_ = true;  // the last tag or the start of the source ended a line
  std::vector<JinjaToken> tokens_;
};

}  // namespace

void refuse_template(std::string_view template_name, JinjaPlace place, std::string_view reason) {
  fail(ErrorKind::data, "{}, line {}, column {}: {}", template_name, place.line, place.column,
       reason);
}

std::vector<JinjaToken> lex_template(std::string_view source, std::string_view template_name) {
  return Lexing(source, template_name).run();
}

}  // namespace trireme::text::jinja
