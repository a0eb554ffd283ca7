#include <algorithm>
#include <array>
#include <utility>

#include "core/error.hpp"
#include "core/join.hpp"
#include "serve/grammar/pattern_rules.hpp"
#include "serve/grammar/schema_values.hpp"

namespace trireme::serve {
namespace {

// Sources: RFC 3339 (dates, times and, in appendix A, durations), RFC 1123 (hostnames), RFC 5321
// (email), RFC 4291 (IPv6), RFC 3986 (URI), RFC 9562 (UUID). Years have the range of the types that
// programs usually parse them to, and February has 28 days.
const std::string kDate =
    "[1-9][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|"
    "30)|02-(?:0[1-9]|1[0-9]|2[0-8]))";
const std::string kHourMinute = "(?:[01][0-9]|2[0-3]):[0-5][0-9]";
const std::string kTime =
    kHourMinute + ":[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+-]" + kHourMinute + ")";
const std::string kDaysAndMore =
    "(?:[0-9]{1,4}Y(?:[0-9]{1,4}M(?:[0-9]{1,4}D)?)?|[0-9]{1,4}M(?:[0-9]{1,4}D)?|[0-9]{1,4}D)";
const std::string kHoursAndLess =
    "T(?:[0-9]{1,4}H(?:[0-9]{1,4}M(?:[0-9]{1,4}S)?)?|[0-9]{1,4}M(?:[0-9]{1,4}S)?|[0-9]{1,4}S)";
const std::string kLabel = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
const std::string kDomain = kLabel + "(?:\\." + kLabel + "){0,2}";
const std::string kMailWord = "[A-Za-z0-9_%+-]{1,20}";
const std::string kOctet = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";

const std::array<std::pair<std::string_view, std::string>, 10> kFormats{
    {{"date", kDate},
     {"time", kTime},
     {"date-time", kDate + "T" + kTime},
     {"duration",
      "P(?:" + kDaysAndMore + "(?:" + kHoursAndLess + ")?|" + kHoursAndLess + "|[0-9]{1,4}W)"},
     {"email", kMailWord + "(?:\\." + kMailWord + "){0,2}@" + kDomain + "\\.[A-Za-z]{2,10}"},
     {"hostname", kDomain},
     {"ipv4", kOctet + "(?:\\." + kOctet + "){3}"},
     {"ipv6", "[0-9A-Fa-f]{1,4}(?::[0-9A-Fa-f]{1,4}){7}"},
     {"uri", "[a-z][a-z0-9+.-]{0,15}://" + kDomain +
                 "(?::[1-9][0-9]{0,3})?(?:/[A-Za-z0-9._~-]*)*(?:\\?[A-Za-z0-9._~&=-]*)?"},
     {"uuid", "[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"}}};

}  // namespace

bool is_format(std::string_view format) {
  return std::any_of(kFormats.begin(), kFormats.end(),
                     [&](const auto& each) { return each.first == format; });
}

GrammarSequence strings_of_format(ByteGrammar& grammar, JsonRules& json, std::string_view format,
                                  const std::string& path) {
  for (const auto& [name, pattern] : kFormats)
    if (name == format) return strings_matching(grammar, json, "^(?:" + pattern + ")$", path);
  throw SchemaProblem{
      path, formatted("'{}' is not supported; it must be {}", format,
                      joined(kFormats, ", ", [](const auto& each) { return each.first; }))};
}

}  // namespace trireme::serve
