#pragma once
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "text/unicode/unicode_class.hpp"
#include "text/unicode/utf8.hpp"

/// A regular expression, matched by backtracking. It is slow and simple, so that the handwritten
/// splitters can be compared with the exact strings of tokenizer.json. It supports what those use:
/// | () (?i:) (?!) [] [^] \p{..} \s \S \r \n $ ? * + {n,m} and the possessive forms ?+ *+ ++.
namespace trireme::text::samples {

class PlainPattern {
 public:
  explicit PlainPattern(std::string_view regex) : regex_(regex) { root_ = alternatives(false); }

  /// Returns the matches of `text`, which the pattern must cover completely.
  std::vector<std::string> split(std::string_view text) {
    chars_.clear();
    for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
      const std::uint32_t c = utf8_decode(text.data() + at, length);
      chars_.push_back({c, at});
    }
    std::vector<std::string> pieces;
    const auto offset = [&](std::size_t i) {
      return i < chars_.size() ? chars_[i].at : text.size();
    };
    for (std::size_t at = 0; at < chars_.size();) {
      std::size_t stop = at;
      if (!root_(at,
                 [&](std::size_t reached) {
                   stop = reached;
                   return true;
                 }) ||
          stop == at)
        throw std::runtime_error("no match at " + std::to_string(at));
      pieces.emplace_back(text.substr(offset(at), offset(stop) - offset(at)));
      at = stop;
    }
    return pieces;
  }

 private:
  struct Char {
    std::uint32_t code;
    std::size_t at;
  };

  using Next = std::function<bool(std::size_t)>;
  // true if it and everything after it match
  using Node = std::function<bool(std::size_t, const Next&)>;
  using Set = std::function<bool(std::uint32_t)>;

  bool more() const { return read_ < regex_.size(); }

  char peek() const { return more() ? regex_[read_] : '\0'; }

  bool take(std::string_view text) {
    if (regex_.substr(read_, text.size()) != text) return false;
    read_ += text.size();
    return true;
  }

  Node alternatives(bool any_case) {
    std::vector<Node> nodes = {sequence(any_case)};
    while (take("|")) nodes.push_back(sequence(any_case));
    return [nodes](std::size_t at, const Next& next) {
      for (const Node& node : nodes) {
        if (node(at, next)) return true;
      }
      return false;
    };
  }

  Node sequence(bool any_case) {
    Node all = [](std::size_t at, const Next& next) { return next(at); };
    while (more() && peek() != '|' && peek() != ')') {
      const Node one = quantified(any_case);
      all = [all, one](std::size_t at, const Next& next) {
        return all(at, [&](std::size_t reached) { return one(reached, next); });
      };
    }
    return all;
  }

  Node quantified(bool any_case) {
    const Node atom = this->atom(any_case);
    std::size_t least = 1;
    std::size_t most = 1;
    bool interval = false;
    if (take("?")) {
      least = 0;
    } else if (take("*")) {
      least = 0;
      most = ~std::size_t{0};
    } else if (take("+")) {
      most = ~std::size_t{0};
    } else if (take("{1,3}")) {
      most = 3;
      interval = true;
    } else {
      return atom;
    }
    if (interval && take("+")) most = ~std::size_t{0};  // Oniguruma: one or more repeats of 1 to 3
    const Node many = repeat(atom, least, most);
    if (interval || !take("+")) return many;
    return [many](std::size_t at, const Next& next) {  // possessive: the first way or none
      std::size_t reached = at;
      const auto accept = [&](std::size_t stop) {
        reached = stop;
        return true;
      };
      return many(at, accept) && next(reached);
    };
  }

  static Node repeat(const Node& atom, std::size_t least, std::size_t most) {
    return [=](std::size_t at, const Next& next) {
      const std::function<bool(std::size_t, std::size_t)> from = [&](std::size_t i,
                                                                     std::size_t done) -> bool {
        if (done < most && atom(i, [&](std::size_t r) { return r > i && from(r, done + 1); }))
          return true;
        return done >= least && next(i);
      };
      return from(at, 0);
    };
  }

  Node atom(bool any_case) {
    if (take("(?i:")) return group(true);
    if (take("(?!")) {
      const Node inner = group(any_case);
      return [inner](std::size_t at, const Next& next) {
        return !inner(at, [](std::size_t) { return true; }) && next(at);
      };
    }
    if (take("$"))
      return [this](std::size_t at, const Next& next) {
        return (at == chars_.size() || chars_[at].code == '\n') && next(at);
      };
    const Set set = take("[") ? bracket(any_case) : member(any_case);
    return [this, set](std::size_t at, const Next& next) {
      return at < chars_.size() && set(chars_[at].code) && next(at + 1);
    };
  }

  Node group(bool any_case) {
    const Node inner = alternatives(any_case);
    if (!take(")")) throw std::runtime_error("no )");
    return inner;
  }

  Set bracket(bool any_case) {
    const bool negated = take("^");
    std::vector<Set> sets;
    while (!take("]")) sets.push_back(member(any_case));
    return [=](std::uint32_t c) {
      bool found = false;
      for (const Set& set : sets) found = found || set(c);
      return found != negated;
    };
  }

  Set member(bool any_case) {
    const auto of_class = [](std::uint8_t bits) {
      return [bits](std::uint32_t c) { return (char_class(c) & bits) != 0; };
    };
    const auto only = [](std::uint8_t one, std::uint8_t other) {  // only letters of one class
      return [=](std::uint32_t c) {
        const std::uint8_t bits = char_class(c);
        return (bits & kLetter) != 0 && (bits & one) != 0 && (bits & other) == 0;
      };
    };
    const auto both = [](std::uint32_t c) {
      const std::uint8_t bits = char_class(c);
      return (bits & kLetter) != 0 && (bits & kCapital) != 0 && (bits & kSmall) != 0;
    };
    if (take("\\p{L}")) return of_class(kLetter);
    if (take("\\p{N}")) return of_class(kNumber);
    if (take("\\p{M}")) return of_class(kMark);
    if (take("\\p{Lu}") || take("\\p{Lt}")) return only(kCapital, kSmall);
    if (take("\\p{Ll}")) return only(kSmall, kCapital);
    if (take("\\p{Lm}") || take("\\p{Lo}")) return both;
    if (take("\\s")) return of_class(kSpace);
    if (take("\\S")) return [](std::uint32_t c) { return (char_class(c) & kSpace) == 0; };
    if (take("\\r")) return [](std::uint32_t c) { return c == '\r'; };
    if (take("\\n")) return [](std::uint32_t c) { return c == '\n'; };
    if (peek() == '\\') throw std::runtime_error("escape");
    const auto wanted = static_cast<std::uint32_t>(regex_[read_++]);
    const bool letter = any_case && wanted >= 'a' && wanted <= 'z';
    return [=](std::uint32_t c) {
      return c == wanted || (letter && (c == wanted - 32 || (wanted == 's' && c == 0x17F)));
    };
  }

  std::string_view regex_;
  std::size_t read_ = 0;
  Node root_;
  std::vector<Char> chars_;
};

}  // namespace trireme::text::samples
