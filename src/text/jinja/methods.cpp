#include <algorithm>
#include <array>
#include <cctype>

#include "core/error.hpp"
#include "text/jinja/library.hpp"
#include "text/jinja/text_methods.hpp"

namespace trireme::text::jinja {
namespace {

using Method = JinjaValue (*)(const JinjaValue& self, const JinjaArguments& given);

struct MethodRow {
  std::string_view name;
  Method call;
};

const MarkedText& self_text(const JinjaValue& self) {
  return *self.as_text();
}

/// Returns an argument that must be a text.
const MarkedText& text_argument(const JinjaArguments& given, std::size_t position,
                                std::string_view name) {
  const JinjaValue* value = argument(given, position, name);
  if (value == nullptr || value->as_text() == nullptr)
    jinja_fail(cat("the argument '", name, "' must be a text"));
  return *value->as_text();
}

std::string characters(const JinjaArguments& given) {
  const JinjaValue* value = argument(given, 0, "chars");
  if (value == nullptr || value->is_none()) return std::string(kTextBlanks);
  const MarkedText& text = text_argument(given, 0, "chars");
  if (std::ranges::any_of(text.bytes(), [](char c) { return static_cast<unsigned char>(c) > 127; }))
    jinja_fail("strip() takes ASCII characters only");
  return text.bytes();
}

template <bool left, bool right>
JinjaValue strip(const JinjaValue& self, const JinjaArguments& given) {
  const std::string given_characters = characters(given);
  if (given_characters == kTextBlanks) return text_stripped(self_text(self), left, right);
  return self_text(self).stripped(given_characters, left, right);
}

template <bool from_right>
JinjaValue split(const JinjaValue& self, const JinjaArguments& given) {
  const JinjaValue* separator = argument(given, 0, "sep");
  const JinjaValue* most = argument(given, 1, "maxsplit");
  const std::int64_t limit = most != nullptr && most->integer() ? *most->integer() : -1;
  if (separator == nullptr || separator->is_none()) {
    if (limit >= 0) jinja_fail("split() with maxsplit needs a separator");
    return text_words(self_text(self));
  }
  return text_split(self_text(self), text_argument(given, 0, "sep").bytes(), limit, from_right);
}

/// Returns the prefixes or suffixes of an argument: a text or a list of texts.
template <bool at_start>
JinjaValue has_edge(const JinjaValue& self, const JinjaArguments& given) {
  const JinjaValue* edges = argument(given, 0, "prefix");
  if (edges == nullptr) jinja_fail("startswith() and endswith() take a text or a list of texts");
  const JinjaList list = edges->as_list() != nullptr ? *edges->as_list() : JinjaList{*edges};
  return std::ranges::any_of(list, [&](const JinjaValue& edge) {
    if (edge.as_text() == nullptr) jinja_fail("startswith() and endswith() take texts");
    const std::string& bytes = self_text(self).bytes();
    return at_start ? bytes.starts_with(edge.as_text()->bytes())
                    : bytes.ends_with(edge.as_text()->bytes());
  });
}

template <bool at_start>
JinjaValue remove_edge(const JinjaValue& self, const JinjaArguments& given) {
  const MarkedText& text = self_text(self);
  const std::string& edge = text_argument(given, 0, "prefix").bytes();
  const bool has = at_start ? text.bytes().starts_with(edge) : text.bytes().ends_with(edge);
  if (!has) return text;
  return at_start ? text.part(edge.size(), text.size()) : text.part(0, text.size() - edge.size());
}

template <LetterCase letters>
JinjaValue recased(const JinjaValue& self, const JinjaArguments& /*given*/) {
  return text_recased(self_text(self), letters);
}

JinjaValue replace(const JinjaValue& self, const JinjaArguments& given) {
  const JinjaValue* most = argument(given, 2, "count");
  return text_replaced(self_text(self), text_argument(given, 0, "old").bytes(),
                       text_argument(given, 1, "new"),
                       most != nullptr && most->integer() ? *most->integer() : -1);
}

JinjaValue join(const JinjaValue& self, const JinjaArguments& given) {
  const JinjaValue* list = argument(given, 0, "iterable");
  if (list == nullptr) jinja_fail("join() takes a list");
  return text_joined(list->items(), self_text(self));
}

template <bool from_right>
JinjaValue find(const JinjaValue& self, const JinjaArguments& given) {
  return text_position(self_text(self), text_argument(given, 0, "sub").bytes(), from_right);
}

JinjaValue count(const JinjaValue& self, const JinjaArguments& given) {
  if (const JinjaList* list = self.as_list()) {
    const JinjaValue* wanted = argument(given, 0, "value");
    if (wanted == nullptr) jinja_fail("count() takes a value");
    return std::int64_t{std::ranges::count(*list, *wanted)};
  }
  const std::string& part = text_argument(given, 0, "sub").bytes();
  if (part.empty()) jinja_fail("count() takes a text that is not empty");
  return std::ssize(text_split(self_text(self), part, -1, false)) - 1;
}

template <int (*is_kind)(int)>
JinjaValue is_all(const JinjaValue& self, const JinjaArguments& /*given*/) {
  const std::string& bytes = self_text(self).bytes();
  return !bytes.empty() && std::ranges::all_of(bytes, [](char c) {
    if (static_cast<unsigned char>(c) > 127) jinja_fail("only ASCII characters can be classified");
    return is_kind(static_cast<unsigned char>(c)) != 0;
  });
}

JinjaValue dict_items(const JinjaValue& self, const JinjaArguments& /*given*/) {
  JinjaList list;
  for (const auto& [key, value] : *self.as_dict()) list.emplace_back(JinjaList{key, value});
  return list;
}

JinjaValue dict_keys(const JinjaValue& self, const JinjaArguments& /*given*/) {
  return self.items();
}

JinjaValue dict_values(const JinjaValue& self, const JinjaArguments& /*given*/) {
  JinjaList list;
  for (const auto& member : *self.as_dict()) list.push_back(member.second);
  return list;
}

JinjaValue dict_get(const JinjaValue& self, const JinjaArguments& given) {
  const JinjaValue* key = argument(given, 0, "key");
  if (key == nullptr) jinja_fail("get() takes a key");
  for (const auto& [name, value] : *self.as_dict())
    if (name == *key) return value;
  const JinjaValue* otherwise = argument(given, 1, "default");
  return otherwise == nullptr ? JinjaValue(nullptr) : *otherwise;
}

JinjaValue list_index(const JinjaValue& self, const JinjaArguments& given) {
  const JinjaValue* wanted = argument(given, 0, "value");
  const JinjaList& list = *self.as_list();
  const auto found = wanted == nullptr ? list.end() : std::ranges::find(list, *wanted);
  if (found == list.end()) jinja_fail("index(): the list does not have the value");
  return std::int64_t{found - list.begin()};
}

constexpr std::array kTextMethods = {
    MethodRow{"capitalize", recased<LetterCase::capitalized>},
    MethodRow{"count", count},
    MethodRow{"endswith", has_edge<false>},
    MethodRow{"find", find<false>},
    MethodRow{"isalnum", is_all<std::isalnum>},
    MethodRow{"isalpha", is_all<std::isalpha>},
    MethodRow{"isdigit", is_all<std::isdigit>},
    MethodRow{"isspace", is_all<std::isspace>},
    MethodRow{"join", join},
    MethodRow{"lower", recased<LetterCase::lower>},
    MethodRow{"lstrip", strip<true, false>},
    MethodRow{"removeprefix", remove_edge<true>},
    MethodRow{"removesuffix", remove_edge<false>},
    MethodRow{"replace", replace},
    MethodRow{"rfind", find<true>},
    MethodRow{"rsplit", split<true>},
    MethodRow{"rstrip", strip<false, true>},
    MethodRow{"split", split<false>},
    MethodRow{"startswith", has_edge<true>},
    MethodRow{"strip", strip<true, true>},
    MethodRow{"title", recased<LetterCase::title>},
    MethodRow{"upper", recased<LetterCase::upper>},
};
constexpr std::array kDictMethods = {MethodRow{"get", dict_get}, MethodRow{"items", dict_items},
                                     MethodRow{"keys", dict_keys},
                                     MethodRow{"values", dict_values}};
constexpr std::array kListMethods = {MethodRow{"count", count}, MethodRow{"index", list_index}};

template <class Table>
const MethodRow* find_row(const Table& table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &MethodRow::name);
  return found == table.end() ? nullptr : &*found;
}

}  // namespace

const JinjaValue* argument(const JinjaArguments& given, std::size_t position,
                           std::string_view name) {
  if (position < given.positional.size()) return &given.positional[position];
  return named_argument(given, name);
}

const JinjaValue* named_argument(const JinjaArguments& given, std::string_view name) {
  for (const auto& [given_name, value] : given.named)
    if (given_name == name) return &value;
  return nullptr;
}

bool has_method(std::string_view name) {
  return find_row(kTextMethods, name) != nullptr || find_row(kDictMethods, name) != nullptr ||
         find_row(kListMethods, name) != nullptr;
}

std::optional<JinjaValue> method_of(const JinjaValue& value, std::string_view name) {
  const MethodRow* row = nullptr;
  if (value.as_text() != nullptr) row = find_row(kTextMethods, name);
  if (value.as_dict() != nullptr) row = find_row(kDictMethods, name);
  if (value.as_list() != nullptr) row = find_row(kListMethods, name);
  if (row == nullptr) return std::nullopt;
  return JinjaFunction(
      [value, call = row->call](const JinjaArguments& given) { return call(value, given); });
}

JinjaValue attribute_of(const JinjaValue& object, std::string_view name) {
  if (object.is_undefined()) jinja_fail(cat("an undefined value has no attribute '", name, "'"));
  if (const JinjaNamespace* space = object.as_namespace()) {
    const auto found = space->attributes.find(std::string(name));
    if (found != space->attributes.end()) return found->second;
  }
  if (const JinjaValue* found = object.find(name)) return *found;
  return JinjaValue::undefined(std::string(name));
}

}  // namespace trireme::text::jinja
