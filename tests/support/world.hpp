// SPDX-License-Identifier: Apache-2.0
// The processes of a test, inside and outside of sessions. KOLO_TEST_MPI is defined unless Kolo is
// built without MPI.
#pragma once

#ifdef KOLO_TEST_MPI
#include <mpi.h>
#endif

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>

namespace kolo::internal {

/// False if kolorun has started the test: then MPI is not initialized.
inline bool with_mpi() {
#ifdef KOLO_TEST_MPI
  return std::getenv("KOLO_RENDEZVOUS") == nullptr;
#else
  return false;
#endif
}

/// The number in a variable set by kolorun; `otherwise` if it is not set.
inline int number_of_kolorun(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

inline int world_rank() {
#ifdef KOLO_TEST_MPI
  if (with_mpi()) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
  }
#endif
  return number_of_kolorun("RANK", 0);
}

inline int world_size() {
#ifdef KOLO_TEST_MPI
  if (with_mpi()) {
    int size = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
  }
#endif
  return number_of_kolorun("WORLD_SIZE", 1);
}

/// Under kolorun, a path that the ranks of this job share. No file exists there.
inline std::string path_of_job(const std::string& name) {
  const char* const secret = std::getenv("KOLO_RENDEZVOUS_SECRET");
  const std::string job = secret == nullptr ? std::to_string(::getpid()) : secret;
  return (std::filesystem::temp_directory_path() / ("kolo-" + name + '-' + job)).string();
}

/// Under kolorun, a file to which each rank appends a byte at each meeting, and then waits for the
/// bytes of all ranks.
class Meetings {
 public:
  Meetings()
      : path_(path_of_job("meetings")),
        file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {}
  Meetings& operator=(Meetings&&) = delete;
  ~Meetings() { ::close(file_); }

  void meet() {
    if (::write(file_, "x", 1) != 1) throw std::runtime_error("cannot write " + path_);
    expected_ += world_size();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    struct stat now {};
    while (::fstat(file_, &now) == 0 && now.st_size < expected_) {
      if (std::chrono::steady_clock::now() > deadline)
        throw std::runtime_error("a rank has not come to a meeting of all within 60 s");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ::unlink(path_.c_str());  // all ranks have opened it
  }

 private:
  std::string path_;
  int file_;
  off_t expected_ = 0;
};

/// Returns when all ranks have called it. Does not use Kolo, and works inside and outside of
/// sessions.
inline void wait_for_all() {
#ifdef KOLO_TEST_MPI
  if (with_mpi()) {
    MPI_Barrier(MPI_COMM_WORLD);
    return;
  }
#endif
  static Meetings meetings;
  meetings.meet();
}

}  // namespace kolo::internal
