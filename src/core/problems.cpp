#include "core/problems.hpp"

#include <algorithm>

#include "core/edit_distance.hpp"
#include "core/join.hpp"

namespace trireme {
namespace {

/// Returns "pretrain, sft or dpo" for an option of a few values, otherwise "one of adamw, muon".
std::string choice(const std::string& key, std::span<const std::string> allowed) {
  const bool few = key.starts_with("--") && allowed.size() > 1 && allowed.size() <= 4;
  if (!few) return "one of " + joined(allowed, ", ");
  return joined(allowed.first(allowed.size() - 1), ", ") + " or " + allowed.back();
}

}  // namespace

void Problems::one_of(const std::string& key, const std::string& value,
                      std::span<const std::string> allowed) {
  allowed_[key] = {allowed.begin(), allowed.end()};
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  add(key, value, formatted("must be {}{}", choice(key, allowed), did_you_mean(value, allowed)));
}

const std::vector<std::string>* Problems::allowed(const std::string& key) const {
  const auto found = allowed_.find(key);
  return found == allowed_.end() ? nullptr : &found->second;
}

std::string Problems::place_of(const std::string& key) const {
  const std::string place = place_ ? place_(key) : "";
  return place.empty() || place == "default" ? "" : formatted(" ({})", place);
}

void Problems::throw_if_any() const {
  if (lines_.empty()) return;
  std::string message = lines_.front();
  for (std::size_t i = 1; i < lines_.size(); ++i) message += '\n' + lines_[i];
  throw Error(ErrorKind::usage, message);
}

}  // namespace trireme
