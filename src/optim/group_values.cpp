#include "optim/group_values.hpp"

#include <algorithm>
#include <array>

#include "core/join.hpp"
#include "core/number.hpp"
#include "optim/config.hpp"

namespace trireme::optim {
namespace {

struct GroupRow {
  std::string_view name;
  const char* rate_key;       // key of [optim] with the rate; null: GROUP.lr is allowed
  std::string_view of_names;  // part of the names of its parameters; "": any other name
};

constexpr std::array<GroupRow, 9> kGroups{{{"embed", "embed_lr", ""},
                                           {"head", "head_lr", ""},
                                           {"value", "value_lr", ""},
                                           {"residual_scalar", nullptr, "residual_scalar"},
                                           {"embedding_scalar", nullptr, "embedding_scalar"},
                                           {"skip_scalar", nullptr, "skip_scalar"},
                                           {"backout", nullptr, "backout_scalar"},
                                           {"smear", nullptr, "model.smear_"},
                                           {"scalar", "scalar_lr", ""}}};

struct SettingRow {
  std::string_view name;
  std::optional<double> GroupValues::*member;
  double below;  // values are in [0, below)
};

constexpr std::array<SettingRow, 4> kSettings{
    {{"lr", &GroupValues::lr, kMaxLr},
     {"beta1", &GroupValues::beta1, 1},
     {"beta2", &GroupValues::beta2, 1},
     {"weight_decay", &GroupValues::weight_decay, kMaxLr}}};

template <class Rows>
const auto* row_named(const Rows& rows, std::string_view name) {
  const auto* const found =
      std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.name == name; });
  return found == rows.end() ? nullptr : found;
}

template <class Rows>
std::string row_names(const Rows& rows) {
  return trireme::joined(rows, ", ", [](const auto& row) { return row.name; });
}

void add_group_entry(std::string_view entry, std::vector<GroupValues>& groups) {
  const std::size_t dot = entry.find('.');
  const std::size_t equal = entry.find('=');
  if (dot == std::string_view::npos || equal == std::string_view::npos || dot > equal)
    fail(ErrorKind::usage, "has the entry '{}'. An entry must be GROUP.SETTING=NUMBER", entry);
  const std::string_view name = entry.substr(0, dot);
  const GroupRow* row = row_named(kGroups, name);
  if (row == nullptr)
    fail(ErrorKind::usage, "has the group '{}' in '{}'. The groups are {}", name, entry,
         row_names(kGroups));
  const std::string_view setting_name = entry.substr(dot + 1, equal - dot - 1);
  const SettingRow* setting = row_named(kSettings, setting_name);
  if (setting == nullptr)
    fail(ErrorKind::usage, "has the setting '{}' in '{}'. The settings are {}", setting_name, entry,
         row_names(kSettings));
  if (setting->member == &GroupValues::lr && row->rate_key != nullptr)
    fail(ErrorKind::usage, "has the entry '{}'. Set optim.{} instead", entry, row->rate_key);
  const auto value = parse_number(entry.substr(equal + 1));
  if (!value || !(*value >= 0 && *value < setting->below))
    fail(ErrorKind::usage, "has the value of '{}'. It must be a number in [0, {})", entry,
         number_text(setting->below));
  auto group = std::find_if(groups.begin(), groups.end(),
                            [&](const GroupValues& one) { return one.group == name; });
  if (group == groups.end())
    group = groups.insert(group, GroupValues{std::string(name), {}, {}, {}, {}});
  std::optional<double>& target = (*group).*(setting->member);
  if (target) fail(ErrorKind::usage, "sets {}.{} twice", name, setting_name);
  target = value;
}

}  // namespace

std::vector<GroupValues> parse_group_values(std::string_view text) {
  std::vector<GroupValues> groups;
  if (text.empty()) return groups;
  for (const std::string& entry : trireme::split(text, ',')) add_group_entry(entry, groups);
  return groups;
}

void check_group_values(const std::string& text, Problems& problems) {
  try {
    parse_group_values(text);
  } catch (const Error& error) {
    problems.add("optim.groups", text, error.what());
  }
}

std::string_view group_of(const parallel::ParamSpec& spec) {
  using Table = parallel::ParamSpec::Table;
  if (spec.table == Table::embedding) return "embed";
  if (spec.table == Table::head) return "head";
  if (spec.table == Table::value) return "value";
  for (const GroupRow& row : kGroups)
    if (!row.of_names.empty() && spec.name.find(row.of_names) != std::string::npos) return row.name;
  return "scalar";
}

}  // namespace trireme::optim
