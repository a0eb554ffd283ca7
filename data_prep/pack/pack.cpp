#include "data_prep/pack/pack.hpp"

#include <utility>

#include "comm/agree.hpp"
#include "comm/scalars.hpp"
#include "comm/self/self_communicator.hpp"
#include "config/check_options.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/number.hpp"
#include "data_prep/documents/document_maker.hpp"
#include "data_prep/documents/input_forms.hpp"
#include "data_prep/pack/make_shards.hpp"
#include "data_prep/pack/publish.hpp"

namespace trireme::data_prep {
namespace {

void log_kept_shards(const PackReport& report) {
  if (report.kept + report.interrupted == 0) return;
  log::info(formatted(
      "{} of {} shards are kept; {}{} unfinished when the last pack ended and will be made again",
      report.kept, report.partitions, report.interrupted,
      report.interrupted == 1 ? " shard was" : " shards were"));
}

std::uint64_t sum_over_ranks(comm::Communicator& world, std::uint64_t mine) {
  return comm::all_reduce_value(world, mine, comm::ReduceOp::sum, "shards made");
}

/// Makes and publishes the planned set.
PackReport run_plan(const PackWork& work, PackDirectory& directory) {
  const Timer timer;
  const bool is_first = work.world.rank() == 0;
  PackReport report{.partitions = work.plan.partitions.size()};
  if (is_first) warn_of_unknown_markers(work.rules, work.tokenizer);
  report.interrupted = directory.prepare(&work.tokenizer, work.world);
  const PackDirectoryState state = directory.look(work.world);
  report.kept = state.kept.size();
  if (is_first && !state.is_finished) log_kept_shards(report);

  report.left = sum_over_ranks(work.world, compare_kept(work, state.kept));
  const bool may_make = report.left == 0;  // no stop signal yet
  report.left += state.missing.size();
  if (may_make && !state.is_finished)
    report.left -= sum_over_ranks(work.world, make_shards(work, state.missing));

  comm::all_or_none(work.world, [&] {
    if (!is_first || report.left != 0) return;
    if (!state.is_finished) report.missing_of_others = directory.missing_of_others();
    if (report.missing_of_others == 0)
      report.losses =
          publish(work.config, work.plan, work.rules.ignore_fields, state.is_finished, directory);
  });
  report.seconds = timer.seconds();
  return report;
}

}  // namespace

std::optional<PackPart> parse_part(std::string_view text) {
  constexpr std::int64_t kMost = 100'000;
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto number = parse_integer(text.substr(0, slash));
  const auto count = parse_integer(text.substr(slash + 1));
  if (!number || !count || *number < 1 || *number > *count || *count > kMost) return std::nullopt;
  return PackPart{static_cast<std::size_t>(*number - 1), static_cast<std::size_t>(*count)};
}

void check(const PackConfig& config, Problems& problems) {
  check(config.documents, problems);
  if (!parse_part(config.part))
    problems.add("part", config.part, "must be K/N with K in [1, N] (2/4: the second of four)");
}

PackReport pack(const PackConfig& config, comm::Communicator* world) {
  comm::SelfCommunicator alone;
  comm::Communicator& ranks = world == nullptr ? alone : *world;
  auto [tokenizer, rules] = comm::all_or_none(ranks, [&] {
    config::throw_if_wrong(config);
    std::pair loaded{load_tokenizer(config.tokenizer),
                     read_rules(config.documents, config.seq_len)};
    use_jinja_template(loaded.second, loaded.first);
    return loaded;
  });
  PackPlan plan = plan_pack(config, rules, tokenizer, ranks);
  rules.forms = find_record_forms(plan.inputs, rules, ranks);
  plan.manifest.record_format = record_format(rules);
  PackDirectory directory(config.output, plan.manifest, plan.partitions.size(),
                          parse_part(config.part).value(), plan.part());
  try {
    return run_plan({config, rules, tokenizer, plan, directory, ranks}, directory);
  } catch (const Error&) {
    directory.remove_without_shards();
    throw;
  }
}

}  // namespace trireme::data_prep
