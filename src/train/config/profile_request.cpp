#include "train/config/profile_request.hpp"

#include <algorithm>
#include <cctype>
#include <optional>
#include <tuple>

#include "core/error.hpp"
#include "core/number.hpp"

namespace trireme::train {
namespace {

using Range = std::pair<std::int64_t, std::int64_t>;

[[noreturn]] void refuse(std::string_view what) {
  fail(ErrorKind::usage,
       "{}; it must have the form steps=FIRST:LAST,ranks=LIST, such as steps=10:13,ranks=0 or "
       "steps=5,ranks=0,4:7 or steps=10:13,ranks=all",
       what);
}

/// Reads "7" or "4:7".
Range parse_range(std::string_view text, std::string_view key, std::int64_t least) {
  const std::size_t colon = text.find(':');
  const std::string_view first_text = text.substr(0, colon);
  const auto first = parse_integer(first_text);
  const auto last = colon == std::string_view::npos ? first : parse_integer(text.substr(colon + 1));
  if (!first || !last || *first < least || *last < *first)
    refuse(formatted("{}={} is not a number or a range FIRST:LAST of numbers from {} on", key, text,
                     least));
  return {*first, *last};
}

}  // namespace

bool ProfileRequest::has_rank(std::int64_t rank) const {
  return all_ranks || std::any_of(ranks.begin(), ranks.end(), [rank](const Range& range) {
           return range.first <= rank && rank <= range.second;
         });
}

ProfileRequest parse_profile(std::string_view text) {
  ProfileRequest request;
  std::string_view key;
  bool has_ranks = false;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t comma = rest.find(',');
    std::string_view item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    if (const std::size_t equals = item.find('='); equals != std::string_view::npos) {
      key = item.substr(0, equals);
      item = item.substr(equals + 1);
    }
    if (key == "steps" && request.first_step == 0) {
      std::tie(request.first_step, request.last_step) = parse_range(item, key, 1);
    } else if (key == "ranks") {
      if (!has_ranks) request.ranks.clear();
      has_ranks = true;
      if (item == "all") {
        request.all_ranks = true;
      } else {
        request.ranks.push_back(parse_range(item, key, 0));
      }
    } else {
      refuse(formatted("{} is not a profile", text));
    }
  }
  if (request.last_step - request.first_step >= kMostProfiledSteps)
    refuse(formatted("steps={}:{} are more than {} steps", request.first_step, request.last_step,
                     kMostProfiledSteps));
  return request;
}

ProfileRequest live_profile(std::string_view text, std::int64_t done_step) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0)
    text.remove_suffix(1);
  ProfileRequest request = parse_profile(text);
  if (request.first_step == 0) {
    request.first_step = done_step + 2;
    request.last_step = done_step + 1 + kLiveProfileSteps;
  }
  if (request.first_step < done_step + 2)
    fail(ErrorKind::usage, "step {} is too early: the run has reached step {}", request.first_step,
         done_step + 1);
  return request;
}

void check_profile_ranks(const ProfileRequest& request, std::int64_t num_ranks) {
  for (const Range& range : request.ranks) {
    if (range.second >= num_ranks)
      fail(ErrorKind::usage,
           "rank {} of the profile does not exist. The run has {}; the last rank is {}",
           range.second, num_ranks == 1 ? "1 rank" : formatted("{} ranks", num_ranks),
           num_ranks - 1);
  }
}

}  // namespace trireme::train
