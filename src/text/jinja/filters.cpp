#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "core/error.hpp"
#include "text/jinja/library.hpp"
#include "text/jinja/text_methods.hpp"
#include "text/unicode/letters.hpp"
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
  const auto flag = [&](std::string_view name) {
    const JinjaValue* found = named_argument(given, name);
    return found != nullptr && found->is_true();
  };
  if (flag("ensure_ascii") || (given.positional.size() > 0 && given.positional[0].is_true()))
    jinja_fail("tojson(ensure_ascii=true) is not supported");
  const JinjaValue* indent = named_argument(given, "indent");
  const auto width = indent == nullptr ? std::nullopt : indent->integer();
  if (width && (*width < 0 || *width > 64)) jinja_fail("tojson: indent must be from 0 to 64");
  MarkedText out;
  value.append_json(out, static_cast<int>(width.value_or(-1)), flag("sort_keys"));
  return out;
}

/// Returns the value of an attribute path such as "function.name" or "parts.0".
JinjaValue dotted(JinjaValue value, std::string_view path) {
  while (!path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    const std::string_view part = path.substr(0, dot);
    std::size_t at = 0;
    const auto [rest, error] = std::from_chars(part.data(), part.data() + dot, at);
    const bool is_number = error == std::errc() && rest == part.data() + dot;
    if (is_number && (value.as_list() != nullptr || value.as_text() != nullptr)) {
      const JinjaList items = value.items();
      value = at < items.size() ? items[at] : JinjaValue::undefined(std::string(part));
    } else {
      value = attribute_of(value, part);
    }
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return value;
}

JinjaValue joined_items(const JinjaValue& value, const JinjaArguments& given) {
  const JinjaValue* separator = argument(given, 0, "d");
  const JinjaValue* attribute = argument(given, 1, "attribute");
  JinjaList items = value.items();
  if (attribute != nullptr)
    for (JinjaValue& item : items) item = dotted(item, attribute->str().bytes());
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

JinjaValue mapped(const JinjaValue& value, const JinjaArguments& given) {
  JinjaList items = value.items();
  const JinjaValue* otherwise = named_argument(given, "default");
  if (const JinjaValue* attribute = named_argument(given, "attribute")) {
    for (JinjaValue& item : items) {
      item = dotted(item, attribute->str().bytes());
      if (item.is_undefined() && otherwise != nullptr) item = *otherwise;
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

/// Throws JinjaFailure for an argument that the filter does not have.
void check_arguments(std::string_view filter, const JinjaArguments& given,
                     std::initializer_list<std::string_view> names) {
  if (given.positional.size() > names.size())
    jinja_fail(cat(filter, " has at most ", std::to_string(names.size()), " arguments"));
  for (const auto& [name, ignored] : given.named)
    if (std::ranges::find(names, name) == names.end())
      jinja_fail(cat(filter, "(", name, "=) is not supported"));
}

bool flag_argument(const JinjaArguments& given, std::size_t position, std::string_view name) {
  const JinjaValue* flag = argument(given, position, name);
  return flag != nullptr && flag->is_true();
}

/// Returns the key by which a filter sorts or compares a value. A text becomes lower case, unless
/// the filter is case sensitive.
JinjaValue comparable(const JinjaValue& value, bool case_sensitive) {
  const MarkedText* text = value.as_text();
  if (text == nullptr || case_sensitive) return value;
  // In Python, the lower case of this letter depends on its place in a word.
  if (text->bytes().find("\u03A3") != std::string::npos)
    jinja_fail("a text with a capital sigma can be sorted with case_sensitive=true only");
  return JinjaValue::text(lowercased(text->bytes()));
}

struct KeyedItem {
  JinjaList keys;
  JinjaValue item;
};

/// Returns the items in the order of their keys. Items with equal keys keep their order, also in
/// the reversed order.
JinjaList sorted_by_keys(std::vector<KeyedItem> items, bool reverse) {
  std::ranges::stable_sort(items, [reverse](const KeyedItem& a, const KeyedItem& b) {
    const auto [left, right] = std::ranges::mismatch(a.keys, b.keys);
    if (left == a.keys.end()) return false;
    return reverse ? jinja_order(*left, *right) > 0 : jinja_order(*left, *right) < 0;
  });
  JinjaList list;
  for (KeyedItem& one : items) list.push_back(std::move(one.item));
  return list;
}

JinjaValue sorted(const JinjaValue& value, const JinjaArguments& given) {
  check_arguments("sort", given, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = flag_argument(given, 1, "case_sensitive");
  const JinjaValue* attribute = argument(given, 2, "attribute");
  const bool is_whole = attribute == nullptr || attribute->is_none();
  // Several attributes are separated by commas.
  const JinjaList paths =
      is_whole ? JinjaList{JinjaValue::text("")} : text_split(attribute->str(), ",", -1, false);
  std::vector<KeyedItem> items;
  for (const JinjaValue& item : value.items()) {
    items.push_back({{}, item});
    for (const JinjaValue& path : paths)
      items.back().keys.push_back(comparable(dotted(item, path.str().bytes()), case_sensitive));
  }
  return sorted_by_keys(std::move(items), flag_argument(given, 0, "reverse"));
}

JinjaValue sorted_members(const JinjaValue& value, const JinjaArguments& given) {
  check_arguments("dictsort", given, {"case_sensitive", "by", "reverse"});
  if (value.as_dict() == nullptr)
    jinja_fail(cat("dictsort: ", value.type_name(), " is not a dict"));
  const JinjaValue* by = argument(given, 1, "by");
  const std::string order = by == nullptr ? "key" : by->str().bytes();
  if (order != "key" && order != "value") jinja_fail("dictsort: by must be 'key' or 'value'");
  const bool case_sensitive = flag_argument(given, 0, "case_sensitive");
  std::vector<KeyedItem> items;
  for (const auto& [name, member] : *value.as_dict())
    items.push_back(
        {{comparable(order == "key" ? name : member, case_sensitive)}, JinjaList{name, member}});
  return sorted_by_keys(std::move(items), flag_argument(given, 2, "reverse"));
}

JinjaValue reversed(const JinjaValue& value, const JinjaArguments& /*given*/) {
  JinjaList items = value.items();
  std::ranges::reverse(items);
  if (value.as_text() == nullptr) return items;
  return text_joined(items, {});
}

JinjaValue distinct(const JinjaValue& value, const JinjaArguments& given) {
  check_arguments("unique", given, {"case_sensitive", "attribute"});
  const bool case_sensitive = flag_argument(given, 0, "case_sensitive");
  const JinjaValue* attribute = argument(given, 1, "attribute");
  const std::string path =
      attribute == nullptr || attribute->is_none() ? std::string() : attribute->str().bytes();
  JinjaList keys;
  JinjaList items;
  for (const JinjaValue& item : value.items()) {
    JinjaValue key = comparable(dotted(item, path), case_sensitive);
    if (key.as_list() != nullptr || key.as_dict() != nullptr)
      jinja_fail(cat("unique does not compare ", key.type_name()));
    if (std::ranges::find(keys, key) != keys.end()) continue;
    keys.push_back(std::move(key));
    items.push_back(item);
  }
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
    FilterRow{"title", recased_filter<LetterCase::words>},
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
