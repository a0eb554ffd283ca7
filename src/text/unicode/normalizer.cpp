#include "text/unicode/normalizer.hpp"

#include <algorithm>

#include "text/unicode/letters.hpp"
#include "text/unicode/nfc.hpp"
#include "text/unicode/unicode_class.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::text {
namespace {

bool begins_with_space(std::string_view text) {
  std::size_t length = 0;
  return (char_class(utf8_decode(text.data(), length)) & kSpace) != 0;
}

std::string stripped(std::string_view text, bool left, bool right) {
  while (left && !text.empty() && begins_with_space(text)) {
    std::size_t length = 0;
    utf8_decode(text.data(), length);
    text.remove_prefix(length);
  }
  while (right && !text.empty() && begins_with_space(text.substr(utf8_last_start(text))))
    text = text.substr(0, utf8_last_start(text));
  return std::string(text);
}

std::string with_blanks_replaced(std::string_view text, std::string_view to) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_not_of(' ', at), text.size());
    if (end - at >= 2) {
      result += to;
      at = end;
    } else {
      result += text[at++];
    }
  }
  return result;
}

}  // namespace

std::string with_replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; (at = text.find(from)) != std::string_view::npos;) {
    result.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return result.append(text);
}

Normalizer Normalizer::nfc_if(bool nfc) {
  return nfc ? Normalizer({NormalizerStep{}}) : Normalizer();
}

Normalizer Normalizer::nfkc() {
  return Normalizer({NormalizerStep{.kind = NormalizerStep::Kind::nfkc}});
}

bool Normalizer::is_nfkc() const noexcept {
  return steps_.size() == 1 && steps_.front().kind == NormalizerStep::Kind::nfkc;
}

bool Normalizer::is_nfc() const noexcept {
  return steps_.size() == 1 && steps_.front().kind == NormalizerStep::Kind::nfc;
}

bool Normalizer::surely_keeps(std::string_view text) const noexcept {
  return is_identity() || text.empty() || (is_nfc() && surely_nfc(text));
}

std::string Normalizer::apply(std::string_view text) const {
  using enum NormalizerStep::Kind;
  std::string result(text);
  for (const NormalizerStep& step : steps_) {
    switch (step.kind) {
      case nfc:
        if (!surely_nfc(result)) result = to_nfc(result);
        break;
      case nfkc:
        result = to_nfkc(result);
        break;
      case prepend:
        if (!result.empty()) result.insert(0, step.to);
        break;
      case replace:
        result = with_replaced(result, step.from, step.to);
        break;
      case replace_blanks:
        result = with_blanks_replaced(result, step.to);
        break;
      case strip:
        result = stripped(result, step.left, step.right);
        break;
      case precompiled:
        result = step.charsmap->apply(result);
        break;
      case nfd:
        result = to_nfd(result);
        break;
      case nfkd:
        result = to_nfkd(result);
        break;
      case lowercase:
        result = lowercased(result);
        break;
      case strip_accents:
        result = without_accents(result);
        break;
    }
  }
  return result;
}

}  // namespace trireme::text
