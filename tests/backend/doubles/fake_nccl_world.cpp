// SPDX-License-Identifier: Apache-2.0
#include "fake_nccl_world.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "kolo/error.hpp"

namespace kolo::internal::backend {
namespace {

std::uint64_t number_in(const nccl::UniqueId& id) {
  std::uint64_t number = 0;
  std::memcpy(&number, id.data(), sizeof(number));
  return number;
}

nccl::UniqueId id_with(std::uint64_t number) {
  nccl::UniqueId id{};
  std::memcpy(id.data(), &number, sizeof(number));
  return id;
}

/// But for the chunks, which are written before they are read.
void clear(NcclClique& clique) {
  clique.number = 0;
  clique.size = clique.joined = clique.aborted = clique.ended = 0;
  clique.connected = clique.registered = 0;
  clique.processes.fill(0);
  clique.children.fill({});
  for (NcclSlot& slot : clique.slots) slot.collectives = slot.deposited = slot.taken = 0;
  for (auto& channels : clique.channels)
    for (NcclChannel& channel : channels)
      channel.sends = channel.receives = channel.deposited = channel.taken = 0;
}

/// A name that the processes of a job share, and their number; none without mpirun and kolorun.
std::optional<std::pair<std::string, int>> find_job() {
  const char* const job = std::getenv("PMIX_NAMESPACE");
  const char* const open_mpi = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (job != nullptr && open_mpi != nullptr) return std::pair(job, std::atoi(open_mpi));
  // MPICH and kolorun give a job no name, but one process starts all ranks of a host: the parent,
  // or the parent of tests/support/status_of.sh.
  const char* const starter = std::getenv("KOLO_TEST_STARTER");
  for (const char* const variable : {"PMI_SIZE", "WORLD_SIZE"})
    if (const char* const size = std::getenv(variable))
      return std::pair(starter != nullptr ? starter : std::to_string(::getppid()), std::atoi(size));
  return std::nullopt;
}

}  // namespace

std::shared_ptr<FakeNcclWorld> FakeNcclWorld::of_job() {
  static std::atomic<int> made{0};
  const auto job = find_job();
  if (!job) return std::make_shared<FakeNcclWorld>();
  return std::make_shared<FakeNcclWorld>(fmt::format("/kolo-fake-nccl-{}-{}", job->first, made++),
                                         job->second);
}

nccl::UniqueId FakeNcclWorld::make_id() { return id_with(++mapping_.memory().ids); }

NcclClique* FakeNcclWorld::find(std::uint64_t number) const {
  for (NcclClique& clique : mapping_.memory().cliques)
    if (clique.number == number) return &clique;
  return nullptr;
}

NcclClique& FakeNcclWorld::join(const nccl::UniqueId& id, int size) {
  const std::uint64_t number = number_in(id);
  if (number == 0 || number > mapping_.memory().ids)
    complain("a communicator is made with an id that nobody has made");
  NcclClique* found = find(number);
  if (found == nullptr) {
    found = find(0);
    if (found == nullptr) throw BackendError("the double of NCCL has no more communicators");
    found->number = number;
  }
  if (found->joined > 0 && found->size != size) complain("ranks give other sizes");
  found->size = size;
  ++found->joined;
  return *found;
}

void FakeNcclWorld::leave(NcclClique& clique) {
  if (++clique.ended == clique.size) clear(clique);
}

nccl::UniqueId FakeNcclWorld::child(NcclClique& parent, std::uint32_t excluded, int turn) {
  NcclClique::Child* unused = nullptr;
  for (NcclClique::Child& child : parent.children) {
    if (child.number != 0 && child.excluded == excluded && child.turn == turn)
      return id_with(child.number);
    const NcclClique* const made = child.number == 0 ? nullptr : find(child.number);
    // The slot of a child that all ranks have joined can be reused, because no rank asks for it
    // again.
    if (child.number == 0 || made == nullptr || made->joined == made->size) unused = &child;
  }
  if (unused == nullptr) throw BackendError("the double of NCCL has no more children");
  *unused = {++mapping_.memory().ids, excluded, turn};
  return id_with(unused->number);
}

}  // namespace kolo::internal::backend
