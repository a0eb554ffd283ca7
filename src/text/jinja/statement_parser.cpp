#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "text/jinja/token_reader.hpp"

namespace trireme::text::jinja {
namespace {

using StatementKind = JinjaStatement::Kind;
constexpr int kMaxNestedBlocks = 100;  // nested blocks

class StatementParser {
 public:
  StatementParser(std::string_view source, std::string_view name)
      : reader_(lex_template(source, name), name) {}

  JinjaBody run() {
    JinjaBody body = read_body({});
    return body;
  }

 private:
  /// Reads statements up to a block with one of the names `ends`, which is left unread.
  JinjaBody read_body(std::initializer_list<std::string_view> ends) {
    if (++depth_ > kMaxNestedBlocks)
      reader_.refuse(reader_.peek().place, "blocks are nested too deep");
    JinjaBody body;
    while (!reader_.is(JinjaToken::Kind::end)) {
      const JinjaToken& token = reader_.peek();
      if (token.kind == JinjaToken::Kind::data) {
        body.push_back({.kind = StatementKind::data, .place = token.place, .text = token.text});
        reader_.next();
      } else if (token.kind == JinjaToken::Kind::output_begin) {
        JinjaStatement output{.kind = StatementKind::output, .place = reader_.next().place};
        output.value = parse_expression_list(reader_);
        reader_.expect(JinjaToken::Kind::output_end, "'}}'");
        body.push_back(std::move(output));
      } else {
        const JinjaToken& name = reader_.peek(1);
        if (std::ranges::find(ends, name.text) != ends.end()) {
          --depth_;
          return body;
        }
        reader_.next();
        body.push_back(read_block());
      }
    }
    if (ends.size() != 0)
      reader_.refuse(reader_.peek().place, cat("'{% ", *(ends.end() - 1), " %}' is missing"));
    --depth_;
    return body;
  }

  void end_block() { reader_.expect(JinjaToken::Kind::block_end, "'%}'"); }

  /// Skips {% name %}.
  void skip_block() {
    reader_.next();
    reader_.next();
    end_block();
  }

  JinjaStatement read_block() {
    const JinjaToken name = reader_.expect(JinjaToken::Kind::name, "the name of a block");
    JinjaStatement statement{.place = name.place};
    if (name.text == "if") {
      read_if(statement);
    } else if (name.text == "for") {
      read_for(statement);
    } else if (name.text == "set") {
      read_set(statement);
    } else if (name.text == "macro") {
      read_macro(statement);
    } else if (name.text == "generation") {
      read_generation(statement);
    } else if (name.text == "break" || name.text == "continue") {
      if (num_loops_ == 0) reader_.refuse(name.place, cat("'", name.text, "' is not in a loop"));
      statement.kind = name.text == "break" ? StatementKind::break_ : StatementKind::continue_;
      end_block();
    } else {
      reader_.refuse(name.place,
                     cat("the block '", name.text,
                         "' is not supported; supported: if, for, set, macro, generation, break, "
                         "continue, raw"));
    }
    return statement;
  }

  void read_if(JinjaStatement& statement) {
    statement.kind = StatementKind::if_;
    while (true) {
      JinjaExpressionPtr condition = parse_expression(reader_);
      end_block();
      JinjaBody body = read_body({"elif", "else", "endif"});
      statement.branches.push_back({std::move(condition), std::move(body)});
      reader_.next();
      const std::string word = reader_.next().text;
      if (word == "elif") continue;
      end_block();
      if (word == "endif") return;
      statement.body = read_body({"endif"});
      return skip_block();
    }
  }

  std::vector<std::string> read_targets() {
    std::vector<std::string> targets;
    const bool has_parentheses = reader_.take_sign("(");
    do {
      targets.push_back(reader_.expect(JinjaToken::Kind::name, "the name of a variable").text);
    } while (reader_.take_sign(","));
    if (has_parentheses) reader_.expect_sign(")");
    return targets;
  }

  void read_for(JinjaStatement& statement) {
    statement.kind = StatementKind::for_;
    statement.targets = read_targets();
    if (!reader_.take_name("in")) reader_.refuse(reader_.peek().place, "expected 'in'");
    statement.value = parse_expression(reader_, /*with_choice=*/false);
    if (reader_.take_name("if")) statement.condition = parse_expression(reader_);
    if (reader_.is_name("recursive"))
      reader_.refuse(reader_.peek().place, "recursive loops are not supported");
    end_block();
    ++num_loops_;
    statement.body = read_body({"else", "endfor"});
    --num_loops_;
    reader_.next();
    const bool has_else = reader_.next().text == "else";
    end_block();
    if (!has_else) return;
    statement.otherwise = read_body({"endfor"});
    skip_block();
  }

  void read_set(JinjaStatement& statement) {
    statement.kind = StatementKind::set;
    statement.targets = read_targets();
    if (statement.targets.size() == 1 && reader_.take_sign("."))
      statement.text = reader_.expect(JinjaToken::Kind::name, "the name of an attribute").text;
    if (reader_.take_sign("=")) {
      statement.value = parse_expression_list(reader_);
      return end_block();
    }
    if (reader_.is_sign("|"))
      reader_.refuse(reader_.peek().place, "a filter on a set block is not supported");
    if (statement.targets.size() != 1 || !statement.text.empty())
      reader_.refuse(reader_.peek().place, "expected '='");
    statement.kind = StatementKind::set_block;
    end_block();
    ++num_captures_;
    statement.body = read_body({"endset"});
    --num_captures_;
    skip_block();
  }

  void read_macro(JinjaStatement& statement) {
    statement.kind = StatementKind::macro;
    statement.text = reader_.expect(JinjaToken::Kind::name, "the name of the macro").text;
    reader_.expect_sign("(");
    while (!reader_.take_sign(")")) {
      JinjaParameter parameter{reader_.expect(JinjaToken::Kind::name, "a parameter").text, nullptr};
      if (reader_.take_sign("=")) parameter.otherwise = parse_expression(reader_);
      statement.parameters.push_back(std::move(parameter));
      if (!reader_.is_sign(")")) reader_.expect_sign(",");
    }
    end_block();
    ++num_captures_;
    const int loops = std::exchange(num_loops_, 0);
    statement.body = read_body({"endmacro"});
    num_loops_ = loops;
    --num_captures_;
    reader_.next();
    reader_.next();
    if (reader_.is(JinjaToken::Kind::name)) reader_.next();  // {% endmacro name %}
    end_block();
  }

  void read_generation(JinjaStatement& statement) {
    statement.kind = StatementKind::generation;
    if (num_captures_ != 0)
      reader_.refuse(statement.place, "a generation block in a macro or a set is not supported");
    if (std::exchange(in_generation_, true))
      reader_.refuse(statement.place, "generation blocks cannot be nested");
    end_block();
    const int loops = std::exchange(num_loops_, 0);
    statement.body = read_body({"endgeneration"});
    num_loops_ = loops;
    in_generation_ = false;
    skip_block();
  }

  TokenReader reader_;
  int depth_ = 0;
  int num_loops_ = 0;
  int num_captures_ = 0;
  bool in_generation_ = false;
};

}  // namespace

JinjaBody parse_template(std::string_view source, std::string_view template_name) {
  return StatementParser(source, template_name).run();
}

}  // namespace trireme::text::jinja
