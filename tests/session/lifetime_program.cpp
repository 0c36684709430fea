// SPDX-License-Identifier: Apache-2.0
// A program that starts and ends sessions in the way that its first argument names, and checks what
// Kolo makes of it.
#include <mpi.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kolo/kolo.hpp"
#include "kolo/mpi.hpp"

namespace {

void check(bool fine, const std::string& what) {
  if (!fine) throw std::runtime_error("not so: " + what);
}

template <typename E, typename Function>
void check_throws(Function function, const std::string& text) {
  try {
    function();
  } catch (const E& error) {
    check(std::string(error.what()).find(text) != std::string::npos,
          "\"" + std::string(error.what()) + "\" has \"" + text + '"');
    return;
  }
  throw std::runtime_error("nothing was thrown that has \"" + text + '"');
}

/// Fails unless the session works.
void work(int expected_rank, int expected_size) {
  check(kolo::rank() == expected_rank, "the rank");
  check(kolo::size() == expected_size, "the size");
  std::vector<double> tensor(100, expected_rank + 1);
  kolo::allreduce(tensor, {.name = "tensor", .op = kolo::ReduceOp::sum});
  check(tensor.back() == expected_size * (expected_size + 1) / 2, "the sum");
}

int rank_in(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

int size_of(MPI_Comm comm) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  return size;
}

/// The program's own MPI, of which it makes use after the session too.
void with_mpi_at(int level) {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, level, &provided);
  const int rank = rank_in(MPI_COMM_WORLD);
  const int size = size_of(MPI_COMM_WORLD);
  if (provided < MPI_THREAD_SERIALIZED) {
    check_throws<kolo::InvalidArgument>([] { kolo::init(); }, "MPI_THREAD_SERIALIZED");
    check_throws<kolo::InvalidArgument>([] { kolo::init(MPI_COMM_WORLD); }, "MPI_Init_thread");
    check(!kolo::initialized(), "nothing was started");
  } else {
    for (int round = 0; round < 2; ++round) {
      const kolo::Session session;
      work(rank, size);
    }
  }
  int sum = 1;
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  check(sum == size, "MPI works after the session");
  MPI_Finalize();
}

/// Sessions of their own among the ranks of each parity, then in reverse order, then of all.
void on_communicators() {
  check_throws<kolo::InvalidArgument>([] { kolo::init(MPI_COMM_NULL); }, "MPI_COMM_NULL");
  check_throws<kolo::InvalidArgument>([] { kolo::init(MPI_COMM_WORLD); }, "not initialized");
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  const int rank = rank_in(MPI_COMM_WORLD);
  const int size = size_of(MPI_COMM_WORLD);
  for (const bool reversed : {false, true}) {
    MPI_Comm half = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, reversed ? -rank : rank, &half);
    if (size > 1 && !reversed) {
      MPI_Comm halves = MPI_COMM_NULL;
      MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 0, &halves);
      check_throws<kolo::InvalidArgument>([&] { kolo::init(halves); }, "intercommunicator");
      MPI_Comm_free(&halves);
    }
    kolo::init(half);
    work(rank_in(half), size_of(half));
    int sum = 1;  // the program's own traffic, on the same communicator
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, half);
    check(sum == kolo::size(), "the communicator is the program's own");
    kolo::shutdown();
    MPI_Comm_free(&half);
  }
  kolo::init(MPI_COMM_WORLD);
  work(rank, size);
  kolo::shutdown();
  MPI_Finalize();
  check_throws<kolo::InvalidArgument>([] { kolo::init(); }, "finalized");
}

/// With the session open, which ends by that.
void finalized_early() {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  kolo::init();
  work(kolo::rank(), kolo::size());
  MPI_Finalize();
  check(!kolo::initialized(), "the session is over");
  check_throws<kolo::NotInitialized>([] { (void)kolo::rank(); }, "no session");
  kolo::shutdown();  // does nothing
}

void again() {
  for (int round = 0; round < 10; ++round) {
    kolo::init();
    check(kolo::initialized(), "initialized");
    work(kolo::rank(), kolo::size());
    kolo::shutdown();
    check(!kolo::initialized(), "not initialized");
    check_throws<kolo::NotInitialized>([] { (void)kolo::rank(); }, "no session");
  }
}

struct Thrown {};

/// An allocator throws, while another thread waits. All processes stay, so the job does not fail.
void broken() {
  {
    const kolo::Session session;
    work(kolo::rank(), kolo::size());
  }
  const kolo::Session session;
  const int rank = kolo::rank();
  std::exception_ptr error;
  std::thread other([&] {
    if (kolo::size() == 1) return;  // nobody to wait for
    try {
      const std::string name = "only rank " + std::to_string(rank);
      check_throws<kolo::Error>([&] { kolo::barrier({.name = name}); }, name);
    } catch (...) {
      error = std::current_exception();
    }
  });
  std::vector<float> mine(std::size_t{1} << 20, 1.0F);
  std::vector<float> all(mine.size() * static_cast<std::size_t>(kolo::size()));
  const auto gather = [&] {
    for (int i = 0; i < 2; ++i)  // other ranks may have all of the first
      (void)kolo::allgather(kolo::ConstTensorView(mine), [&](auto) -> void* {
        if (rank == 0) throw Thrown();
        return all.data();
      });
  };
  if (rank == 0) {
    check_throws<kolo::BackendError>(gather, "an exception of type (anonymous namespace)::Thrown");
  } else {
    check_throws<kolo::PeerLeft>(gather, "rank 0 cannot go on");
  }
  other.join();
  if (error) std::rethrow_exception(error);
}

/// A rank hangs until the others have given up; then all of them start anew.
void stalled() {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  const int rank = rank_in(MPI_COMM_WORLD);
  const int size = size_of(MPI_COMM_WORLD);
  if (size > 1) {
    const kolo::Session session({.stall_shutdown = std::chrono::milliseconds(200)});
    std::vector<float> mine(std::size_t{2} << 20, 1.0F);
    std::vector<float> all(mine.size() * static_cast<std::size_t>(size));
    kolo::barrier();
    check_throws<kolo::Error>(
        [&] {
          (void)kolo::allgather(kolo::ConstTensorView(mine), [&](auto) -> void* {
            if (rank == 1) MPI_Recv(nullptr, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            return all.data();
          });
        },
        "rank 1");
    if (rank == 0) MPI_Send(nullptr, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
  }
  kolo::init();
  work(rank, size);
  kolo::shutdown();
  MPI_Finalize();
}

/// Prints `text` if `body` does not throw, and ends the process otherwise.
void say_if_fine(const char* text, const std::function<void()>& body) {
  try {
    body();
    std::puts(text);
    std::fflush(stdout);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", text, error.what());
    _exit(1);
  }
}

struct Model {
  std::vector<double> gradient = std::vector<double>(5, 1.0);

  std::vector<kolo::NamedTensor> gradients() { return {{"gradient", gradient}}; }
  void step() { gradient.assign(gradient.size(), kolo::rank()); }
};

/// Trains for the last time when it is destroyed, and before.
struct Trainer {
  Model model{};
  kolo::DistributedOptimizer<Model> optimizer{model};

  Trainer() { optimizer.step(); }
  ~Trainer() {
    say_if_fine("a static object has trained", [this] {
      work(kolo::rank(), kolo::size());
      optimizer.step();
      optimizer.synchronize();
      check(model.gradient.back() == (kolo::size() - 1) / 2.0, "the average");
    });
  }
  Trainer& operator=(Trainer&&) = delete;
};

/// What Kolo does after `main`: the session is open until its own exit handler.
void after_main() {
  kolo::init();
  static const Trainer trainer;
  std::atexit([] {
    say_if_fine("an exit handler has trained", [] {
      work(kolo::rank(), kolo::size());
      check(kolo::average(kolo::rank()) == (kolo::size() - 1) / 2.0, "the average");
    });
  });
}

int rank_of_kolorun() { return std::atoi(std::getenv("RANK")); }

bool mpi_is_used() {
  int used = 0;
  MPI_Initialized(&used);
  return used != 0;
}

/// Under kolorun: what needs MPI is refused on all ranks, and a session starts afterwards.
void without_mpi() {
  const int me = rank_of_kolorun();
  const int size = std::atoi(std::getenv("WORLD_SIZE"));
  const bool is_last = me == size - 1;
  check_throws<kolo::InvalidArgument>([] { kolo::init({.cpu_operations = "mpi"}); }, "mpirun");
  check_throws<kolo::InvalidArgument>(
      [&] { kolo::init({.cpu_operations = is_last ? "mpi" : "auto"}); },
      "rank " + std::to_string(size - 1) + ": cpu_operations is mpi");
  check_throws<kolo::InvalidArgument>([&] { kolo::init({.log_level = is_last ? "loud" : "info"}); },
                                      "rank " + std::to_string(size - 1) + ": log_level=loud");
  check_throws<kolo::InvalidArgument>([] { kolo::init({.network = "mpi"}); }, "mpirun");
  const kolo::Session session;
  work(me, size);
  check(kolo::cpu_operations() == "shm", "data goes through shared memory");
  std::vector<double> tensor(100, 1.0);
  check_throws<kolo::InvalidArgument>(
      [&] { kolo::allreduce(tensor, {.op = kolo::ReduceOp::adasum}); }, "mpirun");
  work(me, size);
  check(!mpi_is_used(), "MPI is not initialized");
}

/// Under kolorun: MPI, which the program has started, has one rank, on which a session works too.
void beside_mpi() {
  const int me = rank_of_kolorun();
  const int size = std::atoi(std::getenv("WORLD_SIZE"));
  for (int round = 0; round < 2; ++round) {
    const kolo::Session session;
    work(me, size);
  }
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  {
    kolo::init(MPI_COMM_WORLD);
    work(0, 1);
    kolo::shutdown();
  }
  const kolo::Session session;
  work(me, size);
  MPI_Finalize();
  work(me, size);
}

/// Under kolorun: rank 1 ends as it says, before a session that the others start or, if `before`
/// has sessions, between two.
void lost_at_start(int sessions, const std::function<void()>& end) {
  for (int round = 0; round < sessions; ++round) {
    const kolo::Session session;
    work(rank_of_kolorun(), kolo::size());
  }
  if (rank_of_kolorun() == 1) end();
  try {
    kolo::init();
  } catch (const kolo::Error& error) {
    std::printf("rank %d was told: %s\n", rank_of_kolorun(), error.what());
    std::fflush(stdout);
    throw;
  }
}

/// The exit status of a child that runs `body`; 0 if that returns true.
int status_of_child(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    bool fine = false;
    try {
      fine = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "in the child: %s\n", error.what());
    }
    _exit(fine ? 0 : 1);
  }
  int status = -1;
  check(waitpid(child, &status, 0) == child, "the child ended");
  return status;
}

void fork_before() {
  check(status_of_child([] { return !kolo::initialized(); }) == 0, "the child is fine");
  const kolo::Session session;
  work(kolo::rank(), kolo::size());
}

void fork_after() {
  const kolo::Session session;
  work(kolo::rank(), kolo::size());
  std::vector<float> given(100, 1.0F);
  kolo::Future<void> pending = kolo::allreduce_async(given, {.name = "across the fork"});
  const int status = status_of_child([&] {
    check(!kolo::initialized(), "the child has no session");
    float value = 1.0F;
    check_throws<kolo::InvalidArgument>([&] { kolo::allreduce(value); }, "fork");
    check_throws<kolo::InvalidArgument>([&] { (void)kolo::rank(); }, "fork");
    check_throws<kolo::InvalidArgument>([] { kolo::init(); }, "fork");
    check_throws<kolo::InvalidArgument>([&] { pending.wait(); }, "fork");
    kolo::shutdown();  // does nothing
    return true;
  });
  check(status == 0, "the child is fine");
  pending.wait();
  work(kolo::rank(), kolo::size());
}

}  // namespace

int main(int, char** argv) {
  const std::map<std::string, std::function<void()>> ways{
      {"single", [] { with_mpi_at(MPI_THREAD_SINGLE); }},
      {"funneled", [] { with_mpi_at(MPI_THREAD_FUNNELED); }},
      {"serialized", [] { with_mpi_at(MPI_THREAD_SERIALIZED); }},
      {"multiple", [] { with_mpi_at(MPI_THREAD_MULTIPLE); }},
      {"communicators", on_communicators},
      {"again", again},
      {"broken", broken},
      {"stalled", stalled},
      {"finalized", finalized_early},
      {"after_main", after_main},
      {"fork_before", fork_before},
      {"fork_after", fork_after},
      {"without_mpi", without_mpi},
      {"beside_mpi", beside_mpi},
      {"killed_before_init", [] { lost_at_start(0, [] { std::raise(SIGKILL); }); }},
      {"exits_before_init", [] { lost_at_start(0, [] { std::exit(3); }); }},
      {"killed_between", [] { lost_at_start(2, [] { std::raise(SIGKILL); }); }},
      {"fails_between", [] { lost_at_start(2, [] { std::exit(3); }); }},
  };
  try {
    ways.at(argv[1])();
    std::puts("as it should be");
    std::fflush(stdout);  // an abort at exit would lose it
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[1], error.what());
    return 1;
  }
}
