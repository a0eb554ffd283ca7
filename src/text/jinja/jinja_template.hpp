#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/syntax.hpp"
#include "text/jinja/value.hpp"

namespace trireme::text::jinja {

/// The result of a template.
struct JinjaOutput {
  MarkedText text;
  /// The bytes [begin, end) that each {% generation %} block wrote, in order.
  std::vector<std::pair<std::size_t, std::size_t>> generations;
};

/// A parsed Jinja template with the options of `transformers`: trim_blocks, lstrip_blocks, loop
/// controls, generation blocks, `tojson` without HTML escapes, `raise_exception`. Templates cannot
/// change their arguments. Immutable and thread-safe; copies share the syntax tree.
class JinjaTemplate {
 public:
  /// Parses `source`. `name` names the template in errors. Throws Error(data) with line and column
  /// for a construct that is not supported.
  JinjaTemplate(std::string_view source, std::string_view name);

  /// Renders the template. Throws Error(data) with line and column if an expression fails, if the
  /// template calls raise_exception, or if it exceeds the limits on steps and output.
  [[nodiscard]] JinjaOutput render(std::map<std::string, JinjaValue> variables) const;

  /// Returns true if the template marks answers by {% generation %}.
  [[nodiscard]] bool has_generation() const noexcept { return has_generation_; }

 private:
  std::string name_;
  std::shared_ptr<const JinjaBody> body_;  // shared by copies
  bool has_generation_ = false;
};

}  // namespace trireme::text::jinja
