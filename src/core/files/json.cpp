#include "core/files/json.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <vector>

#include "core/error.hpp"
#include "core/files/file.hpp"

namespace trireme {
namespace {

/// Returns line and column (both from 1) of a byte position.
std::string line_column(std::string_view text, std::size_t byte) {
  std::size_t line = 1;
  std::size_t column = 1;
  for (std::size_t i = 0; i + 1 < byte && i < text.size(); ++i) {
    if (text[i] == '\n') {
      ++line;
      column = 1;
    } else {
      ++column;
    }
  }
  return formatted("{}:{}", line, column);
}

/// Returns the library's description of an error without its number and position.
std::string_view description(std::string_view what) {
  if (what.starts_with("[json.exception.")) what.remove_prefix(what.find("] ") + 2);
  if (what.starts_with("parse error at ")) what.remove_prefix(what.find(": ") + 2);
  return what;
}

/// Builds a tree from the parser's events in linear time. The library's own callback parser
/// searches the parent at the end of every object.
template <class Tree>
class TreeBuilder : public nlohmann::json_sax<Tree> {
 public:
  TreeBuilder(std::string_view text, std::string_view where, const JsonLimits& limits)
      : text_(text), where_(where), limits_(limits) {}

  Tree take() { return std::move(root_); }

  bool null() override { return put(nullptr); }

  bool boolean(bool value) override { return put(value); }

  bool number_integer(std::int64_t value) override { return put(value); }

  bool number_unsigned(std::uint64_t value) override { return put(value); }

  bool number_float(double value, const std::string&) override { return put(value); }

  bool string(std::string& value) override { return put(std::move(value)); }

  bool binary(nlohmann::byte_container_with_subtype<std::vector<std::uint8_t>>&) override {
    return false;  // JSON text has no binary values
  }

  bool start_object(std::size_t) override { return open(Tree::object()); }

  bool start_array(std::size_t) override { return open(Tree::array()); }

  bool end_object() override { return close(); }

  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    auto& keys = open_.back().keys;
    const auto [found, is_new] = keys.try_emplace(name, keys.size());
    if (!is_new && !limits_.last_key_counts)
      fail(ErrorKind::data, "{}: key '{}' appears twice in one object", where_, name);
    index_ = found->second;
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t byte, const std::string&,
                   const nlohmann::detail::exception& error) override {
    const bool is_syntax = dynamic_cast<const typename Tree::parse_error*>(&error) != nullptr;
    const std::string_view wrong = text_.substr(std::min(text_.size(), byte - 1));
    const bool is_special = is_syntax && (wrong.starts_with("NaN") || wrong.starts_with("Inf"));
    fail(ErrorKind::data, "{}{}{}{}{}", where_,
         // otherwise a number too large for a double
         is_syntax ? ":" + line_column(text_, byte) : "",
         ": not valid JSON: ", description(error.what()),
         is_special ? "; JSON has no NaN and no Infinity: write a number or null" : "");
  }

 private:
  struct Open {
    Tree* value;  // stable, because the parent does not grow before this value is closed
    std::unordered_map<std::string, std::size_t> keys;  // value: index of the member
  };

  template <class Value>
  bool put(Value&& value) {
    add(Tree(std::forward<Value>(value)));
    return true;
  }

  bool open(Tree&& empty) {
    if (open_.size() >= static_cast<std::size_t>(limits_.max_depth))
      fail(ErrorKind::data, "{}: JSON nested deeper than {}", where_, limits_.max_depth);
    Tree* const value = add(std::move(empty));
    open_.push_back({value, {}});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  Tree* add(Tree&& value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Tree& parent = *open_.back().value;
    if (parent.is_array()) {
      auto& items = parent.template get_ref<typename Tree::array_t&>();
      items.push_back(std::move(value));
      return &items.back();
    }
    return &add_member(parent.template get_ref<typename Tree::object_t&>(), std::move(value));
  }

  Json& add_member(Json::object_t& members, Json&& value) {
    // Use the vector: a search for the key makes large objects slow.
    auto& list = static_cast<Json::object_t::Container&>(members);
    if (index_ < list.size()) return list[index_].second = std::move(value);
    return list.emplace_back(std::move(key_), std::move(value)).second;
  }

  SortedJson& add_member(SortedJson::object_t& members, SortedJson&& value) {
    return members.insert_or_assign(std::move(key_), std::move(value)).first->second;
  }

  std::string_view text_;
  std::string_view where_;
  const JsonLimits& limits_;
  Tree root_;
  std::vector<Open> open_;
  std::string key_;
  std::size_t index_ = 0;  // index of the member `key_` in its object
};

template <class Tree>
Tree parse_tree(std::string_view text, std::string_view where, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes)
    fail(ErrorKind::data, "{}: JSON text has {} bytes; the limit is {} bytes", where, text.size(),
         limits.max_bytes);
  TreeBuilder<Tree> builder(text, where, limits);
  Tree::sax_parse(text, &builder);
  return builder.take();
}

}  // namespace

Json parse_json(std::string_view text, std::string_view where, const JsonLimits& limits) {
  return parse_tree<Json>(text, where, limits);
}

SortedJson parse_sorted_json(std::string_view text, std::string_view where,
                             const JsonLimits& limits) {
  return parse_tree<SortedJson>(text, where, limits);
}

Json read_json(const std::filesystem::path& path, const JsonLimits& limits) {
  return parse_json(read_file(path, limits.max_bytes), path.string(), limits);
}

template <class T>
T json_get(const Json& object, std::string_view key, std::string_view where) {
  const auto found = object.is_object() ? object.find(std::string(key)) : object.end();
  if (!object.is_object() || found == object.end())
    fail(ErrorKind::data, "{}: key '{}' is missing", where, key);
  const Json& value = *found;
  bool matches = false;
  if constexpr (std::is_same_v<T, bool>) {
    matches = value.is_boolean();
  } else if constexpr (std::is_same_v<T, std::string>) {
    matches = value.is_string();
  } else if constexpr (std::is_same_v<T, double>) {
    matches = value.is_number();
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    matches = value.is_number_unsigned();
  } else {
    const bool too_large =
        value.is_number_unsigned() &&
        value.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<T>::max());
    if (too_large)
      fail(ErrorKind::data, "{}: key '{}' = {} is too large", where, key,
           value.get<std::uint64_t>());
    matches = value.is_number_integer();
  }
  if (!matches)
    fail(ErrorKind::data, "{}: key '{}' has the wrong type: {}", where, key, value.type_name());
  return value.get<T>();
}

template bool json_get<bool>(const Json&, std::string_view, std::string_view);
template std::int64_t json_get<std::int64_t>(const Json&, std::string_view, std::string_view);
template std::uint64_t json_get<std::uint64_t>(const Json&, std::string_view, std::string_view);
template double json_get<double>(const Json&, std::string_view, std::string_view);
template std::string json_get<std::string>(const Json&, std::string_view, std::string_view);

}  // namespace trireme
