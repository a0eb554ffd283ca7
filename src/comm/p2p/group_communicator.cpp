#include "comm/p2p/group_communicator.hpp"

#include <algorithm>
#include <array>

#include "comm/self/self_communicator.hpp"
#include "core/error.hpp"
#include "core/hash/xxh3.hpp"

namespace trireme::comm {
namespace {

/// The ranks of this rank's color in a split, ordered by (key, rank); empty for a negative color.
struct SplitGroup {
  std::vector<int> ranks;  // ranks in the parent
  int rank = -1;           // this rank's index in `ranks`
};

SplitGroup agree_on_split(Communicator& parent, int color, int key) {
  struct Choice {
    int color;
    int key;
  };

  const auto n = static_cast<std::size_t>(parent.size());
  const std::array<std::int32_t, 2> mine{color, key};
  std::vector<Choice> all(n);
  static_assert(sizeof(Choice) == 2 * sizeof(std::int32_t));
  parent
      .all_gather({.input = mine.data(),
                   .output = all.data(),
                   .count = 2,
                   .dtype = DType::i32,
                   .tag = "split"})
      ->wait();
  SplitGroup group;
  if (color < 0) return group;
  for (int r = 0; r < parent.size(); ++r) {
    if (all[static_cast<std::size_t>(r)].color == color) group.ranks.push_back(r);
  }
  std::stable_sort(group.ranks.begin(), group.ranks.end(), [&](int a, int b) {
    return all[static_cast<std::size_t>(a)].key < all[static_cast<std::size_t>(b)].key;
  });
  const auto at = std::find(group.ranks.begin(), group.ranks.end(), parent.rank());
  group.rank = static_cast<int>(at - group.ranks.begin());
  return group;
}

class GroupCommunicator final : public P2PCommunicator {
 public:
  GroupCommunicator(std::string name, const std::shared_ptr<GroupTransport>& transport,
                    std::shared_ptr<Engine> engine, CommOptions options)
      : P2PCommunicator(std::move(name), transport, std::move(engine), std::move(options)),
        members_(transport) {}

  [[nodiscard]] const char* backend() const override { return members_->backend(); }

  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override {
    const SplitGroup group = agree_on_split(*this, color, key);
    const std::uint64_t index = splits_++;
    if (group.rank < 0) return nullptr;
    std::vector<int> world_ranks;
    for (const int r : group.ranks) world_ranks.push_back(members_->world_rank(r));
    // All members compute the same number without communication; the hash distinguishes groups.
    const std::uint64_t number = xxh3_64(formatted("{} {} {}", members_->group(), index, color));
    return make_group(name, members_->another(number, std::move(world_ranks), group.rank), engine_,
                      options());
  }

 private:
  const std::shared_ptr<GroupTransport> members_;
  std::uint64_t splits_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_group(std::string name,
                                         const std::shared_ptr<GroupTransport>& transport,
                                         std::shared_ptr<Engine> engine,
                                         const CommOptions& options) {
  if (transport->size() == 1) return std::make_unique<SelfCommunicator>(std::move(name), options);
  return std::make_unique<GroupCommunicator>(std::move(name), transport, std::move(engine),
                                             options);
}

}  // namespace trireme::comm
