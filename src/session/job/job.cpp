// SPDX-License-Identifier: Apache-2.0
#include "session/job/job.hpp"

#include <pthread.h>

#include "kolo/error.hpp"
#include "session/job/launcher.hpp"

namespace kolo::internal::session {

Job& this_job() {
  static Job& job = *new Job;
  return job;
}

void Job::choose_kind(bool over_mpi) {
  const bool served = !over_mpi && (started_by_kolorun() ||
                                    (find_serverless_job() && !MpiEnvironment::has_company()));
  kind = served                             ? JobKind::served
         : over_mpi || !is_single_process() ? JobKind::mpi
                                            : JobKind::single_process;
}

void Job::watch_forks() {
  std::call_once(watches_forks,
                 [] { ::pthread_atfork(nullptr, nullptr, [] { this_job().is_forked = true; }); });
}

void Job::require_not_forked() const {
  if (is_forked)
    throw InvalidArgument(
        "this process was forked from one that had started Kolo, whose connections do not survive "
        "that: fork before kolo::init, or leave Kolo to the parent");
}

}  // namespace kolo::internal::session
