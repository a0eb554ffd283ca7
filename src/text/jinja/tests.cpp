#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "text/jinja/library.hpp"

namespace trireme::text::jinja {
namespace {

struct TestRow {
  std::string_view name;
  bool (*holds)(const JinjaValue& value, const JinjaValue& other);
  bool takes_argument = false;
};

std::int64_t whole(const JinjaValue& value) {
  if (!value.integer()) jinja_fail("the test takes integers");
  return *value.integer();
}

bool is_equal(const JinjaValue& value, const JinjaValue& other) {
  return value == other;
}

bool is_different(const JinjaValue& value, const JinjaValue& other) {
  return !(value == other);
}

bool is_less(const JinjaValue& value, const JinjaValue& other) {
  return jinja_order(value, other) < 0;
}

bool is_at_most(const JinjaValue& value, const JinjaValue& other) {
  return jinja_order(value, other) <= 0;
}

bool is_greater(const JinjaValue& value, const JinjaValue& other) {
  return jinja_order(value, other) > 0;
}

bool is_at_least(const JinjaValue& value, const JinjaValue& other) {
  return jinja_order(value, other) >= 0;
}

bool is_in(const JinjaValue& value, const JinjaValue& other) {
  return jinja_contains(other, value);
}

bool is_divisible(const JinjaValue& value, const JinjaValue& other) {
  if (whole(other) == 0) jinja_fail("division by zero");
  return whole(value) % whole(other) == 0;
}

using V = JinjaValue;
constexpr std::array kTests = {
    TestRow{"==", is_equal, true},
    TestRow{"boolean", [](const V& v, const V&) { return v.as_bool() != nullptr; }},
    TestRow{"callable", [](const V& v, const V&) { return v.as_function() != nullptr; }},
    TestRow{"defined", [](const V& v, const V&) { return !v.is_undefined(); }},
    TestRow{"divisibleby", is_divisible, true},
    TestRow{"eq", is_equal, true},
    TestRow{"equalto", is_equal, true},
    TestRow{"even", [](const V& v, const V&) { return whole(v) % 2 == 0; }},
    TestRow{"false", [](const V& v, const V&) { return v.as_bool() != nullptr && !*v.as_bool(); }},
    TestRow{"float", [](const V& v, const V&) { return v.as_double() != nullptr; }},
    TestRow{"ge", is_at_least, true},
    TestRow{"greaterthan", is_greater, true},
    TestRow{"gt", is_greater, true},
    TestRow{"in", is_in, true},
    TestRow{"integer", [](const V& v, const V&) { return v.as_int() != nullptr; }},
    TestRow{"iterable",
            [](const V& v, const V&) {
              return v.is_undefined() || v.as_list() != nullptr || v.as_dict() != nullptr ||
                     v.as_text() != nullptr;
            }},
    TestRow{"le", is_at_most, true},
    TestRow{"lessthan", is_less, true},
    TestRow{"lt", is_less, true},
    TestRow{"mapping", [](const V& v, const V&) { return v.as_dict() != nullptr; }},
    TestRow{"ne", is_different, true},
    TestRow{"none", [](const V& v, const V&) { return v.is_none(); }},
    TestRow{"number", [](const V& v, const V&) { return v.number().has_value(); }},
    TestRow{"odd", [](const V& v, const V&) { return whole(v) % 2 != 0; }},
    TestRow{"sequence",
            [](const V& v, const V&) {
              return v.is_undefined() || v.as_list() != nullptr || v.as_dict() != nullptr ||
                     v.as_text() != nullptr;
            }},
    TestRow{"string", [](const V& v, const V&) { return v.as_text() != nullptr; }},
    TestRow{"true", [](const V& v, const V&) { return v.as_bool() != nullptr && *v.as_bool(); }},
    TestRow{"undefined", [](const V& v, const V&) { return v.is_undefined(); }},
};

}  // namespace

bool has_test(std::string_view name) {
  return std::ranges::find(kTests, name, &TestRow::name) != kTests.end();
}

bool apply_test(std::string_view name, const JinjaValue& value, const JinjaArguments& arguments) {
  const TestRow& row = *std::ranges::find(kTests, name, &TestRow::name);
  if (arguments.positional.size() != (row.takes_argument ? 1U : 0U))
    jinja_fail(cat("the test '", name, row.takes_argument ? "' takes" : "' does not take",
                   " an argument"));
  return row.holds(value, row.takes_argument ? arguments.positional[0] : JinjaValue());
}

}  // namespace trireme::text::jinja
