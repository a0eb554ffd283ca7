#include "data/order/length_warning.hpp"

#include "core/error.hpp"
#include "data/sequences/length_loss.hpp"

namespace trireme::data {

std::string length_warning(const SampleSet& samples, std::string_view option) {
  const TokenSet& set = samples.set();
  const DocumentRange range = samples.documents();
  const auto loss = length_loss(set, samples.seq_len(), range);
  if (!loss || !loss->any()) return "";
  std::string part;
  if (range != DocumentRange{0, set.num_documents()})
    part = formatted(", documents {} to {} (data.split)", range.begin, range.end);
  std::string cut = "they lose their end";
  if (samples.samples_are_pairs()) {
    cut = formatted("{} lose the beginning of the prompt, in {} a side loses its end",
                    loss->cut_prompts, loss->cut_answers);
  }
  return formatted(
      "{}{}: {} {} is below the packed length {}. Of {} {}s, {} are dropped (too long, or no target "
      "is left) and {} are cut ({}). {} of {} target tokens are lost. A longer length keeps them.",
      set.directory().string(), part, option, samples.seq_len(), set.seq_len(), loss->documents,
      set.contents().document, loss->dropped, loss->truncated, cut, loss->lost_targets,
      loss->targets);
}

}  // namespace trireme::data
