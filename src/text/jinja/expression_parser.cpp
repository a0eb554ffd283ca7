#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "text/jinja/library.hpp"
#include "text/jinja/token_reader.hpp"

namespace trireme::text::jinja {
namespace {

using NodeKind = JinjaExpression::Kind;
constexpr int kMaxNestedExpressions = 200;  // nested expressions

JinjaExpressionPtr made(NodeKind kind, JinjaPlace place, std::string name = {}) {
  auto node = std::make_unique<JinjaExpression>();
  node->kind = kind;
  node->place = place;
  node->name = std::move(name);
  return node;
}

template <class... Parts>
JinjaExpressionPtr made_of(NodeKind kind, JinjaPlace place, std::string name, Parts... parts) {
  JinjaExpressionPtr node = made(kind, place, std::move(name));
  (node->parts.push_back(std::move(parts)), ...);
  return node;
}

JinjaExpressionPtr constant(JinjaPlace place, JinjaValue value) {
  JinjaExpressionPtr node = made(NodeKind::constant, place);
  node->constant = std::move(value);
  return node;
}

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenReader& reader) : reader_(reader) {}

  JinjaExpressionPtr choice() {
    const Depth depth(*this);
    JinjaExpressionPtr value = either();
    while (reader_.is_name("if")) {
      const JinjaPlace place = reader_.next().place;
      JinjaExpressionPtr condition = either();
      JinjaExpressionPtr other = reader_.take_name("else") ? choice() : nullptr;
      value = made_of(NodeKind::choice, place, "", std::move(value), std::move(condition),
                      std::move(other));
    }
    return value;
  }

  JinjaExpressionPtr either() {
    JinjaExpressionPtr left = both();
    while (reader_.is_name("or")) {
      const JinjaPlace place = reader_.next().place;
      left = made_of(NodeKind::binary, place, "or", std::move(left), both());
    }
    return left;
  }

 private:
  /// Counts nested expressions, so that a malicious template cannot use up the stack.
  struct Depth {
    explicit Depth(ExpressionParser& owner) : parser(owner) {
      if (++parser.depth_ > kMaxNestedExpressions)
        parser.reader_.refuse(parser.reader_.peek().place, "the expression is nested too deep");
    }

    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

    ~Depth() { --parser.depth_; }

    ExpressionParser& parser;
  };

  JinjaExpressionPtr both() {
    JinjaExpressionPtr left = negation();
    while (reader_.is_name("and")) {
      const JinjaPlace place = reader_.next().place;
      left = made_of(NodeKind::binary, place, "and", std::move(left), negation());
    }
    return left;
  }

  JinjaExpressionPtr negation() {
    if (!reader_.is_name("not")) return comparison();
    const Depth depth(*this);
    const JinjaPlace place = reader_.next().place;
    return made_of(NodeKind::unary, place, "not", negation());
  }

  /// Takes a comparison operator; "" if there is none.
  std::string take_comparison() {
    for (const char* sign : {"==", "!=", "<=", ">=", "<", ">"})
      if (reader_.take_sign(sign)) return sign;
    if (reader_.take_name("in")) return "in";
    const bool is_not_in = reader_.is_name("not") &&
                           reader_.peek(1).kind == JinjaToken::Kind::name &&
                           reader_.peek(1).text == "in";
    if (!is_not_in) return "";
    reader_.next();
    reader_.next();
    return "not in";
  }

  JinjaExpressionPtr comparison() {
    JinjaExpressionPtr first = sum();
    const JinjaPlace place = reader_.peek().place;
    std::string sign = take_comparison();
    if (sign.empty()) return first;
    JinjaExpressionPtr chain = made_of(NodeKind::chain, place, "", std::move(first));
    for (; !sign.empty(); sign = take_comparison()) {
      chain->names.push_back(sign);
      chain->parts.push_back(sum());
    }
    return chain;
  }

  template <class Next>
  JinjaExpressionPtr left_binary(std::initializer_list<const char*> signs, const Next& next) {
    JinjaExpressionPtr left = next();
    while (true) {
      const auto sign =
          std::ranges::find_if(signs, [&](const char* each) { return reader_.is_sign(each); });
      if (sign == signs.end()) return left;
      const JinjaPlace place = reader_.next().place;
      left = made_of(NodeKind::binary, place, *sign, std::move(left), next());
    }
  }

  JinjaExpressionPtr sum() {
    return left_binary({"+", "-"}, [this] { return joined_texts(); });
  }

  JinjaExpressionPtr joined_texts() {
    return left_binary({"~"}, [this] { return product(); });
  }

  JinjaExpressionPtr product() {
    return left_binary({"*", "//", "/", "%"}, [this] { return power(); });
  }

  JinjaExpressionPtr power() {
    return left_binary({"**"}, [this] { return signed_value(true); });
  }

  JinjaExpressionPtr signed_value(bool with_filter) {
    const Depth depth(*this);
    JinjaExpressionPtr node;
    if (reader_.is_sign("-") || reader_.is_sign("+")) {
      const JinjaToken sign = reader_.next();
      node = made_of(NodeKind::unary, sign.place, sign.text, signed_value(false));
    } else {
      node = postfix(primary());
    }
    return with_filter ? filtered(std::move(node)) : std::move(node);
  }

  JinjaExpressionPtr primary() {
    const JinjaToken token = reader_.next();
    switch (token.kind) {
      case JinjaToken::Kind::name:
        return named_value(token);
      case JinjaToken::Kind::text: {
        std::string text = token.text;
        while (reader_.is(JinjaToken::Kind::text)) text += reader_.next().text;
        return constant(token.place, JinjaValue::text(text));
      }
      case JinjaToken::Kind::integer:
      case JinjaToken::Kind::real:
        return number(token);
      default:
        break;
    }
    if (token.text == "(") return in_parentheses(token.place);
    if (token.text == "[") {
      JinjaExpressionPtr list = made(NodeKind::list, token.place);
      read_items("]", [&] { list->parts.push_back(choice()); });
      return list;
    }
    if (token.text == "{") {
      JinjaExpressionPtr dict = made(NodeKind::dict, token.place);
      read_items("}", [&] {
        dict->parts.push_back(choice());
        reader_.expect_sign(":");
        dict->parts.push_back(choice());
      });
      return dict;
    }
    reader_.refuse(token.place, token.text.empty()
                                    ? std::string("an expression is missing")
                                    : cat("'", token.text, "' begins no expression"));
  }

  static JinjaExpressionPtr named_value(const JinjaToken& token) {
    if (token.text == "true" || token.text == "True") return constant(token.place, true);
    if (token.text == "false" || token.text == "False") return constant(token.place, false);
    if (token.text == "none" || token.text == "None") return constant(token.place, nullptr);
    return made(NodeKind::name, token.place, token.text);
  }

  JinjaExpressionPtr number(const JinjaToken& token) {
    if (token.kind == JinjaToken::Kind::real) return constant(token.place, std::stod(token.text));
    if (token.text.size() > 18) reader_.refuse(token.place, "the number is too large");
    return constant(token.place, std::int64_t{std::stoll(token.text)});
  }

  /// Reads items with commas between them, up to the bracket `end`.
  template <class Item>
  void read_items(const char* end, const Item& item) {
    while (!reader_.take_sign(end)) {
      item();
      if (reader_.take_sign(end)) return;
      reader_.expect_sign(",");
    }
  }

  JinjaExpressionPtr in_parentheses(JinjaPlace place) {
    JinjaExpressionPtr list = made(NodeKind::list, place);
    while (!reader_.take_sign(")")) {
      list->parts.push_back(choice());
      if (reader_.take_sign(",")) continue;
      reader_.expect_sign(")");
      if (list->parts.size() == 1) return std::move(list->parts.front());
      break;
    }
    return list;
  }

  JinjaExpressionPtr postfix(JinjaExpressionPtr node) {
    while (true) {
      const JinjaPlace place = reader_.peek().place;
      if (reader_.take_sign(".")) {
        const JinjaToken name = reader_.expect(JinjaToken::Kind::name, "the name of an attribute");
        check_attribute(*node, name);
        node = made_of(NodeKind::attribute, name.place, name.text, std::move(node));
      } else if (reader_.take_sign("[")) {
        node = subscript(std::move(node), place);
      } else if (reader_.is_sign("(")) {
        node = call(std::move(node));
      } else {
        return node;
      }
    }
  }

  /// Refuses methods that do not exist, and attributes of loops that are not supported.
  void check_attribute(const JinjaExpression& object, const JinjaToken& name) const {
    constexpr std::array<std::string_view, 11> kLoop = {
        "index",  "index0",   "revindex", "revindex0", "first", "last",
        "length", "previtem", "nextitem", "cycle",     "depth"};
    const bool is_loop = object.kind == NodeKind::name && object.name == "loop";
    if (is_loop && std::ranges::find(kLoop, name.text) == kLoop.end())
      reader_.refuse(name.place, cat("loop.", name.text, " is not supported"));
    if (!is_loop && reader_.is_sign("(") && !has_method(name.text))
      reader_.refuse(name.place, cat("the method ", name.text, "() is not supported"));
  }

  JinjaExpressionPtr subscript(JinjaExpressionPtr node, JinjaPlace place) {
    const auto part = [&]() -> JinjaExpressionPtr {
      return reader_.is_sign(":") || reader_.is_sign("]") ? nullptr : choice();
    };
    JinjaExpressionPtr begin = part();
    if (reader_.take_sign("]")) {
      if (!begin) reader_.refuse(place, "the index is missing");
      return made_of(NodeKind::item, place, "", std::move(node), std::move(begin));
    }
    reader_.expect_sign(":");
    JinjaExpressionPtr end = part();
    JinjaExpressionPtr step = reader_.take_sign(":") ? part() : nullptr;
    reader_.expect_sign("]");
    return made_of(NodeKind::slice, place, "", std::move(node), std::move(begin), std::move(end),
                   std::move(step));
  }

  void read_arguments(JinjaExpression& target) {
    reader_.expect_sign("(");
    read_items(")", [&] {
      if (reader_.is_sign("*") || reader_.is_sign("**"))
        reader_.refuse(reader_.peek().place, "arguments with * or ** are not supported");
      const bool is_named = reader_.is(JinjaToken::Kind::name) &&
                            reader_.peek(1).kind == JinjaToken::Kind::sign &&
                            reader_.peek(1).text == "=";
      if (!is_named) {
        if (!target.named.empty())
          reader_.refuse(reader_.peek().place, "an argument without a name follows a named one");
        target.parts.push_back(choice());
        return;
      }
      std::string name = reader_.next().text;
      reader_.next();
      target.named.emplace_back(std::move(name), choice());
    });
  }

  JinjaExpressionPtr call(JinjaExpressionPtr callee) {
    JinjaExpressionPtr node = made_of(NodeKind::call, reader_.peek().place, "", std::move(callee));
    read_arguments(*node);
    return node;
  }

  JinjaExpressionPtr filtered(JinjaExpressionPtr node) {
    while (true) {
      if (reader_.take_sign("|")) {
        const JinjaToken name = reader_.expect(JinjaToken::Kind::name, "the name of a filter");
        if (!has_filter(name.text))
          reader_.refuse(name.place, cat("the filter '", name.text, "' is not supported"));
        node = made_of(NodeKind::filter, name.place, name.text, std::move(node));
        if (reader_.is_sign("(")) read_arguments(*node);
      } else if (reader_.take_name("is")) {
        node = test(std::move(node));
      } else if (reader_.is_sign("(")) {
        node = call(std::move(node));
      } else {
        return node;
      }
    }
  }

  JinjaExpressionPtr test(JinjaExpressionPtr value) {
    const bool negated = reader_.take_name("not");
    const JinjaToken name = reader_.is_sign("==")
                                ? reader_.next()
                                : reader_.expect(JinjaToken::Kind::name, "the name of a test");
    if (!has_test(name.text))
      reader_.refuse(name.place, cat("the test '", name.text, "' is not supported"));
    JinjaExpressionPtr node = made_of(NodeKind::test, name.place, name.text, std::move(value));
    node->negated = negated;
    if (reader_.is_sign("(")) {
      read_arguments(*node);
    } else if (begins_argument()) {
      node->parts.push_back(postfix(primary()));
    }
    return node;
  }

  /// Returns true if the next token is the argument of a test without parentheses.
  [[nodiscard]] bool begins_argument() const {
    using Token = JinjaToken::Kind;
    constexpr std::array<std::string_view, 6> kWords = {"else", "or", "and", "if", "is", "not"};
    const JinjaToken& token = reader_.peek();
    if (token.kind == Token::name) return std::ranges::find(kWords, token.text) == kWords.end();
    return token.kind == Token::text || token.kind == Token::integer || token.kind == Token::real ||
           reader_.is_sign("[") || reader_.is_sign("{");
  }

  TokenReader& reader_;
  int depth_ = 0;
};

}  // namespace

JinjaExpressionPtr parse_expression(TokenReader& reader, bool with_choice) {
  ExpressionParser parser(reader);
  return with_choice ? parser.choice() : parser.either();
}

JinjaExpressionPtr parse_expression_list(TokenReader& reader) {
  const JinjaPlace place = reader.peek().place;
  JinjaExpressionPtr first = parse_expression(reader);
  if (!reader.is_sign(",")) return first;
  JinjaExpressionPtr list = made_of(NodeKind::list, place, "", std::move(first));
  while (reader.take_sign(",")) {
    if (reader.is(JinjaToken::Kind::block_end) || reader.is(JinjaToken::Kind::output_end)) break;
    list->parts.push_back(parse_expression(reader));
  }
  return list;
}

}  // namespace trireme::text::jinja
