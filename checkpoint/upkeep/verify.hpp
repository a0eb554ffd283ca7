#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/load/load.hpp"
#include "comm/communicator.hpp"

namespace trireme {

/// What is damaged in one checkpoint, a line for each file: present, regular, of the recorded size
/// and hash, every slice of the recorded sum, and nothing in the folder that the manifest does not
/// name. Plain reads. Empty: all good. Throws Error(resource) for trouble with the machine, which
/// is no damage.
using Damage = std::vector<std::string>;

Damage find_damage(const Checkpoint& checkpoint);

/// Collective: of each of several checkpoints, whose files the ranks share by bytes.
std::vector<Damage> find_damage(std::span<const Checkpoint> checkpoints, Communicator& world);

/// Throws Error(data) that lists all damage, if there is any.
void check_undamaged(const Checkpoint& checkpoint, const Damage& damage);

/// Opens and checks everything. Throws Error(data) listing all damage.
Checkpoint verify_checkpoint(const std::filesystem::path& folder);

/// "a\n  b": damage as the lines of one message.
std::string damage_text(const Damage& damage);

/// Returns what hash_tensor hashes before the elements of a tensor.
std::string tensor_head(const std::string& name, DType dtype,
                        const std::vector<std::int64_t>& shape);

/// SHA-256 of one logical tensor of a checkpoint that was verified before: name, dtype, shape and
/// row-major elements, so the same for every layout. Memory: a window of 64 MiB, whatever the size.
/// Throws Error(data) if there is no such tensor.
std::string hash_tensor(const Checkpoint& checkpoint, const std::string& name);

/// Collective: SHA-256 of the hashes of all tensors, a line each, in name order: equal for two
/// checkpoints of any layouts exactly when every tensor is. The ranks share the tensors by bytes.
/// Verifies everything first; throws Error(data). `prefix`: of those tensors alone ("param/").
std::string hash_tensors(const Checkpoint& checkpoint, Communicator& world,
                         std::string_view prefix = "");

/// The same of a checkpoint that was verified before (find_newest_good).
std::string hash_verified(const Checkpoint& checkpoint, Communicator& world,
                          std::string_view prefix = "");

}  // namespace trireme
