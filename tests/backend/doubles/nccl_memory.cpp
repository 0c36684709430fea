// SPDX-License-Identifier: Apache-2.0
#include "nccl_memory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace kolo::internal::backend {
namespace {

void require_call(bool holds, const char* call) {
  if (!holds) throw std::system_error(errno, std::generic_category(), call);
}

NcclMemory* map_memory(int file, int flags) {
  void* const mapped =
      ::mmap(nullptr, sizeof(NcclMemory), PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, file, 0);
  require_call(mapped != MAP_FAILED, "mmap");
  return static_cast<NcclMemory*>(mapped);
}

/// A file of shared memory, locked for this process.
class LockedFile {
 public:
  explicit LockedFile(const std::string& name)
      : descriptor_(::shm_open(name.c_str(), O_RDWR | O_CREAT, 0600)) {
    require_call(descriptor_ >= 0, "shm_open");
    require_call(::flock(descriptor_, LOCK_EX) == 0, "flock");
  }
  ~LockedFile() {
    ::flock(descriptor_, LOCK_UN);  // a mapping keeps the file open, and with it the lock
    ::close(descriptor_);
  }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;

  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] bool is_new() const {
    struct stat found {};
    require_call(::fstat(descriptor_, &found) == 0, "fstat");
    return found.st_size == 0;
  }

 private:
  int descriptor_;
};

}  // namespace

void SharedMutex::init() {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&mutex_, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

void SharedMutex::lock() {
  if (pthread_mutex_lock(&mutex_) == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
}

void SharedMutex::unlock() { pthread_mutex_unlock(&mutex_); }

bool SharedMutex::try_lock() {
  const int result = pthread_mutex_trylock(&mutex_);
  if (result == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
  return result == 0 || result == EOWNERDEAD;
}

NcclMapping::NcclMapping() : memory_(map_memory(-1, MAP_PRIVATE | MAP_ANONYMOUS)) {
  memory_->mutex.init();
}

NcclMapping::NcclMapping(const std::string& name, int processes) {
  const LockedFile file(name);
  const bool is_new = file.is_new();
  if (is_new) require_call(::ftruncate(file.descriptor(), sizeof(NcclMemory)) == 0, "ftruncate");
  memory_ = map_memory(file.descriptor(), MAP_SHARED);
  if (is_new) memory_->mutex.init();
  if (++memory_->processes == processes) ::shm_unlink(name.c_str());
}

NcclMapping::~NcclMapping() { ::munmap(memory_, sizeof(NcclMemory)); }

}  // namespace kolo::internal::backend
