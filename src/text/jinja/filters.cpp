#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "core/error.hpp"
#include "text/jinja/library.hpp"
#include "text/jinja/text_methods.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::text::jinja {
namespace {

using Filter = JinjaValue (*)(const JinjaValue& value, const JinjaArguments& given);

struct FilterRow {
  std::string_view name;
  Filter apply;
};

JinjaValue size_of_value(const JinjaValue& value, const JinjaArguments& /*given*/) {
  if (const JinjaDict* dict = value.as_dict()) return std::ssize(*dict);
  if (const MarkedText* text = value.as_text())
    return static_cast<std::int64_t>(utf8_length(text->bytes()));
  return std::ssize(value.items());
}

JinjaValue trimmed(const JinjaValue& value, const JinjaArguments& given) {
  const JinjaValue* characters = argument(given, 0, "chars");
  if (characters == nullptr) return text_stripped(value.str(), true, true);
  return value.str().stripped(characters->str().bytes(), true, true);
}

JinjaValue to_json(const JinjaValue& value, const JinjaArguments& given) {
  for (const auto& [name, ignored] : given.named) {
    if (name != "indent" && name != "ensure_ascii" && name != "sort_keys")
      jinja_fail(cat("tojson(", name, "=) is not supported"));
  }
  const auto flag = [&](const char* name) {
    const auto found = given.named.find(name);
    return found != given.named.end() && found->second.is_true();
  };
  if (flag("ensure_ascii") || (given.positional.size() > 0 && given.positional[0].is_true()))
    jinja_fail("tojson(ensure_ascii=true) is not supported");
  const auto indent = given.named.find("indent");
  const auto width = indent == given.named.end() ? std::nullopt : indent->second.integer();
  if (width && (*width < 0 || *width > 64)) jinja_fail("tojson: indent must be from 0 to 64");
  MarkedText out;
  value.append_json(out, static_cast<int>(width.value_or(-1)), flag("sort_keys"));
  return out;
}

JinjaValue joined_items(const JinjaValue& value, const JinjaArguments& given) {
  const JinjaValue* separator = argument(given, 0, "d");
  const JinjaValue* attribute = argument(given, 1, "attribute");
  JinjaList items = value.items();
  if (attribute != nullptr)
    for (JinjaValue& item : items) item = attribute_of(item, attribute->str().bytes());
  return text_joined(items, separator == nullptr ? MarkedText() : separator->str());
}

JinjaValue defaulted(const JinjaValue& value, const JinjaArguments& given) {
  const JinjaValue* otherwise = argument(given, 0, "default_value");
  const JinjaValue* also_false = argument(given, 1, "boolean");
  const bool replaces =
      value.is_undefined() || (also_false != nullptr && also_false->is_true() && !value.is_true());
  if (!replaces) return value;
  return otherwise == nullptr ? JinjaValue::text("") : *otherwise;
}

template <bool last>
JinjaValue edge_item(const JinjaValue& value, const JinjaArguments& /*given*/) {
  const JinjaList items = value.items();
  if (items.empty()) return JinjaValue::undefined("an item of an empty list");
  return last ? items.back() : items.front();
}

JinjaValue to_list(const JinjaValue& value, const JinjaArguments& /*given*/) {
  return value.items();
}

JinjaValue to_text(const JinjaValue& value, const JinjaArguments& /*given*/) {
  return value.str();
}

JinjaValue to_int(const JinjaValue& value, const JinjaArguments& given) {
  const JinjaValue* otherwise = argument(given, 0, "default");
  const JinjaValue fallback = otherwise == nullptr ? JinjaValue(std::int64_t{0}) : *otherwise;
  if (const auto whole = value.integer()) return *whole;
  if (const double* real = value.as_double())
    return std::abs(*real) < 9e18 ? JinjaValue(static_cast<std::int64_t>(*real)) : fallback;
  if (value.as_text() == nullptr) return fallback;
  const std::string text = text_stripped(*value.as_text(), true, true).bytes();
  const std::size_t begin = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  if (begin < text.size() && text.size() <= 18 &&
      text.find_first_not_of("0123456789", begin) == std::string::npos)
    return std::int64_t{std::stoll(text)};
  double real = 0;  // int() of Jinja2 also reads decimals
  const char* const end = text.data() + text.size();
  const auto [rest, error] =
      std::from_chars(text.data() + (text.starts_with('+') ? 1 : 0), end, real);
  const bool is_number = error == std::errc() && rest == end && std::abs(real) < 9e18;
  return is_number ? JinjaValue(static_cast<std::int64_t>(real)) : fallback;
}

JinjaValue replaced(const JinjaValue& value, const JinjaArguments& given) {
  const JinjaValue* from = argument(given, 0, "old");
  const JinjaValue* to = argument(given, 1, "new");
  const JinjaValue* most = argument(given, 2, "count");
  if (from == nullptr || to == nullptr) jinja_fail("replace takes two texts");
  return text_replaced(value.str(), from->str().bytes(), to->str(),
                       most != nullptr && most->integer() ? *most->integer() : -1);
}

template <LetterCase letters>
JinjaValue recased_filter(const JinjaValue& value, const JinjaArguments& /*given*/) {
  return text_recased(value.str(), letters);
}

JinjaValue members(const JinjaValue& value, const JinjaArguments& given) {
  if (value.is_undefined()) return JinjaList{};
  const auto method = method_of(value, "items");
  if (!method) jinja_fail(cat("items: ", value.type_name(), " is not a dict"));
  return (*method->as_function())(given);
}

JinjaValue sorted_members(const JinjaValue& value, const JinjaArguments& /*given*/) {
  JinjaList list = members(value, {}).items();
  std::ranges::stable_sort(list, [](const JinjaValue& a, const JinjaValue& b) {
    return jinja_order((*a.as_list())[0], (*b.as_list())[0]) < 0;
  });
  return list;
}

/// Returns the value of a dotted attribute such as "function.name".
JinjaValue dotted(JinjaValue value, std::string_view path) {
  while (!path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    value = attribute_of(value, path.substr(0, dot));
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return value;
}

JinjaValue mapped(const JinjaValue& value, const JinjaArguments& given) {
  JinjaList items = value.items();
  const auto attribute = given.named.find("attribute");
  const auto otherwise = given.named.find("default");
  if (attribute != given.named.end()) {
    for (JinjaValue& item : items) {
      item = dotted(item, attribute->second.str().bytes());
      if (item.is_undefined() && otherwise != given.named.end()) item = otherwise->second;
    }
    return items;
  }
  if (given.positional.empty()) jinja_fail("map takes the name of a filter or attribute=");
  const std::string name = given.positional[0].str().bytes();
  if (!has_filter(name)) jinja_fail(cat("the filter '", name, "' is not supported"));
  JinjaArguments rest = given;
  rest.positional.erase(rest.positional.begin());
  for (JinjaValue& item : items) item = apply_filter(name, item, rest);
  return items;
}

/// Implements select, reject (without attribute), selectattr and rejectattr.
template <bool with_attribute, bool keeps>
JinjaValue selected(const JinjaValue& value, const JinjaArguments& given) {
  JinjaList kept;
  JinjaArguments rest = given;
  std::string path;
  const auto take = [&] {
    const std::string text = rest.positional.front().str().bytes();
    rest.positional.erase(rest.positional.begin());
    return text;
  };
  if (with_attribute && rest.positional.empty()) jinja_fail("selectattr takes an attribute");
  if (with_attribute) path = take();
  const std::string test = rest.positional.empty() ? std::string() : take();
  if (!test.empty() && !has_test(test)) jinja_fail(cat("the test '", test, "' is not supported"));
  for (const JinjaValue& item : value.items()) {
    const JinjaValue tested = with_attribute ? dotted(item, path) : item;
    const bool holds = test.empty() ? tested.is_true() : apply_test(test, tested, rest);
    if (holds == keeps) kept.push_back(item);
  }
  return kept;
}

JinjaValue indented(const JinjaValue& value, const JinjaArguments& given) {
  const JinjaValue* width = argument(given, 0, "width");
  const JinjaValue* first = argument(given, 1, "first");
  const JinjaValue* blank = argument(given, 2, "blank");
  const std::int64_t blanks = width == nullptr ? 4 : width->integer().value_or(-1);
  if (blanks < 0 || blanks > 64) jinja_fail("indent: the width must be from 0 to 64");
  const MarkedText space =
      MarkedText::of_template(std::string(static_cast<std::size_t>(blanks), ' '));
  MarkedText result;
  const JinjaList lines = text_lines(value.str().append_template("\n"));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const MarkedText& line = *lines[i].as_text();
    const bool fills = !line.empty() || (blank != nullptr && blank->is_true());
    const bool is_first = i == 0;
    if (is_first ? first != nullptr && first->is_true() : fills) result.append(space);
    result.append(line);
    if (i + 1 < lines.size()) result.append_template("\n");
  }
  return result;
}

JinjaValue sorted(const JinjaValue& value, const JinjaArguments& given) {
  const auto attribute = given.named.find("attribute");
  const auto reverse = given.named.find("reverse");
  JinjaList items = value.items();
  const auto key = [&](const JinjaValue& item) {
    return attribute == given.named.end() ? item : dotted(item, attribute->second.str().bytes());
  };
  std::ranges::stable_sort(items, [&](const JinjaValue& a, const JinjaValue& b) {
    return jinja_order(key(a), key(b)) < 0;
  });
  if (reverse != given.named.end() && reverse->second.is_true()) std::ranges::reverse(items);
  return items;
}

JinjaValue reversed(const JinjaValue& value, const JinjaArguments& /*given*/) {
  JinjaList items = value.items();
  std::ranges::reverse(items);
  if (value.as_text() == nullptr) return items;
  return text_joined(items, {});
}

JinjaValue distinct(const JinjaValue& value, const JinjaArguments& /*given*/) {
  JinjaList items;
  for (const JinjaValue& item : value.items())
    if (std::ranges::find(items, item) == items.end()) items.push_back(item);
  return items;
}

constexpr std::array kFilters = {
    FilterRow{"capitalize", recased_filter<LetterCase::capitalized>},
    FilterRow{"count", size_of_value},
    FilterRow{"d", defaulted},
    FilterRow{"default", defaulted},
    FilterRow{"dictsort", sorted_members},
    FilterRow{"first", edge_item<false>},
    FilterRow{"indent", indented},
    FilterRow{"int", to_int},
    FilterRow{"items", members},
    FilterRow{"join", joined_items},
    FilterRow{"last", edge_item<true>},
    FilterRow{"length", size_of_value},
    FilterRow{"list", to_list},
    FilterRow{"lower", recased_filter<LetterCase::lower>},
    FilterRow{"map", mapped},
    FilterRow{"reject", selected<false, false>},
    FilterRow{"rejectattr", selected<true, false>},
    FilterRow{"replace", replaced},
    FilterRow{"reverse", reversed},
    FilterRow{"safe", to_text},
    FilterRow{"select", selected<false, true>},
    FilterRow{"selectattr", selected<true, true>},
    FilterRow{"sort", sorted},
    FilterRow{"string", to_text},
    FilterRow{"title", recased_filter<LetterCase::title>},
    FilterRow{"tojson", to_json},
    FilterRow{"trim", trimmed},
    FilterRow{"unique", distinct},
    FilterRow{"upper", recased_filter<LetterCase::upper>},
};

}  // namespace

bool has_filter(std::string_view name) {
  return std::ranges::find(kFilters, name, &FilterRow::name) != kFilters.end();
}

JinjaValue apply_filter(std::string_view name, const JinjaValue& value,
                        const JinjaArguments& arguments) {
  return std::ranges::find(kFilters, name, &FilterRow::name)->apply(value, arguments);
}

}  // namespace trireme::text::jinja
