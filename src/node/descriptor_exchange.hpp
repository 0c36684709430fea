// Gives the processes of one host each other's file descriptors.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "node/file_descriptor.hpp"

namespace kolo::node {

/// What came from one process.
struct Parcel {
  pid_t pid = 0;  // as seen here
  std::vector<FileDescriptor> descriptors{};
};

/// Where a process takes part: `name` is the same in all of them, and nobody else can guess it.
struct Party {
  std::string name;
  int index = 0;
  int size = 1;
};

/// All processes of the party call this at once; none of them is told of another's failure. Each
/// gets the others' parcels by index, its own being empty. The descriptors travel through sockets
/// that have no place in the file system, from processes of the same user only. `barrier` waits for
/// all and is called once, whatever goes wrong. Throws BackendError, also after `patience`.
[[nodiscard]] std::vector<Parcel> exchange_descriptors(const Party& party,
                                                       std::span<const int> descriptors,
                                                       const std::function<void()>& barrier,
                                                       std::chrono::nanoseconds patience);

}  // namespace kolo::node
