// SPDX-License-Identifier: Apache-2.0
// A libnccl.so.2 with the functions of an older or newer version, for nccl_versions_test.cpp. Its
// communicators can only be created and destroyed.
#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>

struct ncclComm {
  int rank;
};

namespace {

std::mutex mutex;
std::condition_variable changed;
std::set<ncclComm*> alive;
std::set<ncclComm*> aborting;
std::string calls;
bool grouping = false;
ncclComm_t* unwritten_child = nullptr;

void note(const std::string& call) {
  const std::lock_guard lock(mutex);
  calls += call + ' ';
}

/// As much of the configuration as this version knows.
ncclResult_t check(const ncclConfig_t* config, int blocking) {
  const bool as_initialized = config->magic == 0xcafebeef && config->size >= 48;
  return as_initialized && config->blocking == blocking ? ncclSuccess : ncclInvalidArgument;
}

}  // namespace

extern "C" {

const char* stub_calls() { return calls.c_str(); }

ncclResult_t ncclGetVersion(int* version) {
  *version = STUB_VERSION;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) { return "a failure"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int, ncclUniqueId, int rank,
                                    ncclConfig_t* config) {
  const std::lock_guard lock(mutex);
  *comm = new ncclComm{rank};
  alive.insert(*comm);
  return check(config, 0);
}
ncclResult_t ncclCommSplit(ncclComm_t, int color, int, ncclComm_t* made, ncclConfig_t* config) {
  note("split");
  const std::lock_guard lock(mutex);
  unwritten_child = made;
  return color >= 0 ? check(config, 1) : ncclInvalidArgument;
}
/// Writes the handle of a child of the communicator, as a thread of NCCL's does.
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  const std::lock_guard lock(mutex);
  if (unwritten_child != nullptr) {
    *unwritten_child = new ncclComm{0};
    alive.insert(*unwritten_child);
    unwritten_child = nullptr;
  }
  *error = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const std::lock_guard lock(mutex);
  alive.erase(comm);
  delete comm;
  return ncclSuccess;
}
/// Outside of a group, and before NCCL can defer it, it waits for the kernels of the others.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  std::unique_lock lock(mutex);
  calls += grouping ? "grouped-abort " : "abort ";
  aborting.insert(comm);
  changed.notify_all();
  if (!grouping && !changed.wait_for(lock, std::chrono::seconds(20),
                                     [] { return aborting.size() == alive.size(); }))
    calls += "deadlock ";
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  grouping = true;
  note("group");
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  note("end-of-group");
  grouping = false;
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                           cudaStream_t) {
  return ncclSuccess;
}
ncclResult_t ncclReduceScatter(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                               cudaStream_t) {
  return ncclSuccess;
}
ncclResult_t ncclAllGather(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t) {
  return ncclSuccess;
}
ncclResult_t ncclBroadcast(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t,
                           cudaStream_t) {
  return ncclSuccess;
}
ncclResult_t ncclSend(const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return ncclSuccess;
}
ncclResult_t ncclRecv(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return ncclSuccess;
}

#if STUB_VERSION >= 21900
ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  note("allocate");
  *memory = ::operator new(bytes);
  return ncclSuccess;
}
ncclResult_t ncclMemFree(void* memory) {
  note("release");
  ::operator delete(memory);
  return ncclSuccess;
}
ncclResult_t ncclCommRegister(ncclComm_t, void* memory, size_t, void** registration) {
  note("register");
  *registration = memory;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(ncclComm_t, void*) {
  note("deregister");
  return ncclSuccess;
}
#endif

#if STUB_VERSION >= 22700
ncclResult_t ncclCommShrink(ncclComm_t, int*, int excluded, ncclComm_t* made, ncclConfig_t* config,
                            int flags) {
  note("shrink");
  const std::lock_guard lock(mutex);
  unwritten_child = made;
  return excluded == 1 && flags == NCCL_SHRINK_DEFAULT ? check(config, 0) : ncclInvalidArgument;
}
/// There are windows if KOLO_TEST_NCCL_WINDOWS is set.
ncclResult_t ncclCommWindowRegister(ncclComm_t, void* memory, size_t, ncclWindow_t* window,
                                    int flags) {
  note("window");
  const bool has = std::getenv("KOLO_TEST_NCCL_WINDOWS") != nullptr;
  *window = has ? reinterpret_cast<ncclWindow_t>(memory) : nullptr;
  return flags == NCCL_WIN_COLL_SYMMETRIC ? ncclSuccess : ncclInvalidArgument;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) {
  note("close");
  return ncclSuccess;
}
#endif

}  // extern "C"
