/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic training through the C interface. Rank 1 of the first session fails in the way that the
 * argument names: `none`, `killed`, `failed` (the training returns an error) or `left` (for a job
 * that is not elastic). The results do not depend on the number of ranks. */
#include <signal.h>

#include "check.h"

enum { steps = 12, fault_step = 5 };

struct training {
  kolo_elastic_state* state;
  kolo_optimizer* optimizer;
  const char* fault;
  int first_rank;   /* of this process in its first session */
  int resets, size; /* set by `reset` */
  int step;
  char history[steps]; /* the first `step` bytes */
  double parameter, gradient;
};

static size_t save_history(void* to, size_t capacity, void* user) {
  const struct training* const training = user;
  const size_t needed = (size_t)training->step;
  if (needed <= capacity && needed > 0) memcpy(to, training->history, needed);
  return needed;
}

static kolo_status load_history(const void* bytes, size_t count, void* user) {
  struct training* const training = user;
  CHECK(count <= sizeof training->history);
  /* These would free the bytes, or the session. */
  CHECK_FAILS(kolo_elastic_commit(training->state), KOLO_INVALID_ARGUMENT);
  CHECK_FAILS(kolo_elastic_restore(training->state), KOLO_INVALID_ARGUMENT);
  CHECK_FAILS(kolo_shutdown(), KOLO_INVALID_ARGUMENT);
  memset(training->history, 0, sizeof training->history);
  if (count > 0) memcpy(training->history, bytes, count);
  return KOLO_OK;
}

static kolo_status reset(void* user) {
  struct training* const training = user;
  ++training->resets;
  return kolo_size(&training->size);
}

static kolo_status fail(const struct training* training) {
  if (strcmp(training->fault, "killed") == 0) raise(SIGKILL);
  fprintf(stderr, "rank %d fails\n", training->first_rank);
  return kolo_allreduce(NULL, NULL);
}

static kolo_status train(void* user) {
  struct training* const training = user;
  int size = 0;
  CHECK_OK(kolo_size(&size));
  CHECK(size == training->size);
  while (training->step < steps) {
    if (training->resets == 1 && training->first_rank == 1 && training->step == fault_step &&
        strcmp(training->fault, "none") != 0)
      return fail(training);
    training->gradient = training->step + 1.0;
    kolo_status status = kolo_optimizer_begin_step(training->optimizer);
    if (status != KOLO_OK) return status;
    training->parameter -= training->gradient;
    CHECK_OK(kolo_optimizer_end_step(training->optimizer));
    training->history[training->step] = (char)('a' + training->step);
    ++training->step;
    status = training->step % 3 == 0 ? kolo_elastic_commit(training->state)
                                     : kolo_elastic_check_membership(training->state);
    if (status != KOLO_OK) return status;
  }
  return KOLO_OK;
}

static void test_result(const struct training* training) {
  CHECK(training->step == steps && training->parameter == -steps * (steps + 1) / 2.0);
  for (int i = 0; i < steps; ++i) CHECK(training->history[i] == 'a' + i);
}

static void add_parts(struct training* training) {
  static const int64_t one = 1;
  kolo_elastic_state* const state = training->state;
  const kolo_named_tensor parameter = {"p", vector_of(&training->parameter, KOLO_F64, &one)};
  const kolo_named_tensor gradient = {"p", vector_of(&training->gradient, KOLO_F64, &one)};
  uint64_t commits = 9;
  CHECK_OK(kolo_optimizer_create(&gradient, 1, NULL, 0, NULL, &training->optimizer));
  CHECK_OK(kolo_elastic_add_tensors(state, "model", &parameter, 1));
  CHECK_OK(kolo_elastic_add_bytes(state, "step", &training->step, sizeof training->step));
  CHECK_OK(kolo_elastic_add_object(state, "history", save_history, load_history, training));
  CHECK_OK(kolo_elastic_add_optimizer(state, "optimizer", training->optimizer));
  CHECK_OK(kolo_elastic_on_reset(state, reset, training));
  CHECK_OK(kolo_elastic_commits(state, &commits));
  CHECK(commits == 0);
  CHECK_FAILS(kolo_elastic_restore(state), KOLO_INVALID_ARGUMENT);
}

static void test_wrong_arguments(struct training* training) {
  kolo_elastic_state* const state = training->state;
  int value = 0;
  CHECK_ERROR(kolo_elastic_create(NULL), KOLO_INVALID_ARGUMENT, "`state` is null");
  CHECK_FAILS(kolo_elastic_add_bytes(NULL, "a", &value, sizeof value), KOLO_INVALID_ARGUMENT);
  CHECK_ERROR(kolo_elastic_add_bytes(state, NULL, &value, 1), KOLO_INVALID_ARGUMENT, "`name`");
  CHECK_ERROR(kolo_elastic_add_bytes(state, "a", NULL, 1), KOLO_INVALID_ARGUMENT, "`memory`");
  CHECK_ERROR(
      kolo_elastic_add_tensors(
          state, "a", &(kolo_named_tensor){"x", {NULL, KOLO_F32, {KOLO_CPU, 0}, 0, NULL}}, 1),
      KOLO_INVALID_ARGUMENT, "the memory of 'x' is null");
  CHECK_FAILS(kolo_elastic_add_bytes(state, "", &value, 1), KOLO_INVALID_ARGUMENT);
  CHECK_FAILS(kolo_elastic_add_bytes(state, "step", &value, 1), KOLO_INVALID_ARGUMENT);
  CHECK_ERROR(kolo_elastic_add_object(state, "a", NULL, load_history, NULL), KOLO_INVALID_ARGUMENT,
              "`save` is null");
  CHECK_ERROR(kolo_elastic_add_object(state, "a", save_history, NULL, NULL), KOLO_INVALID_ARGUMENT,
              "`load` is null");
  CHECK_FAILS(kolo_elastic_add_optimizer(state, "a", (kolo_optimizer*)state),
              KOLO_INVALID_ARGUMENT);
  CHECK_ERROR(kolo_elastic_on_reset(state, NULL, NULL), KOLO_INVALID_ARGUMENT, "`call` is null");
  CHECK_ERROR(kolo_elastic_run(state, NULL, NULL), KOLO_INVALID_ARGUMENT, "`train` is null");
  CHECK_ERROR(kolo_elastic_run(NULL, train, NULL), KOLO_INVALID_ARGUMENT, "no elastic state");
  CHECK_FAILS(kolo_elastic_commits(state, NULL), KOLO_INVALID_ARGUMENT);
}

static kolo_status wrong_train(void* user) {
  struct training* const training = user;
  kolo_elastic_state* const state = training->state;
  int value = 0;
  CHECK_FAILS(kolo_elastic_add_bytes(state, "late", &value, sizeof value), KOLO_INVALID_ARGUMENT);
  CHECK_FAILS(kolo_elastic_run(state, train, training), KOLO_INVALID_ARGUMENT);
  training->step = 7; /* more than was committed */
  CHECK_OK(kolo_elastic_restore(state));
  CHECK(training->step == 0);
  return KOLO_HOOK_FAILED; /* its own, no call has failed so */
}

static kolo_status failing_train(void* user) {
  (void)user;
  return kolo_allreduce(NULL, NULL);
}

/* Not in an elastic job, which runs once. */
static void test_failing_functions(struct training* training) {
  CHECK_ERROR(kolo_elastic_run(training->state, wrong_train, training), KOLO_HOOK_FAILED,
              "the function of kolo_elastic_run returned KOLO_HOOK_FAILED");
  CHECK_ERROR(kolo_elastic_run(training->state, failing_train, NULL), KOLO_INVALID_ARGUMENT,
              "kolo_allreduce: `tensor` is null");
  training->resets = 0;
}

int main(int argc, char** argv) {
  struct training training = {.fault = argc > 1 ? argv[1] : "none"};
  int rank = 0;
  uint64_t commits = 0;
  CHECK_OK(kolo_elastic_create(&training.state));
  CHECK_FAILS(kolo_elastic_run(training.state, train, &training), KOLO_NOT_INITIALIZED);
  CHECK_OK(kolo_init(argc, argv, NULL, 0));
  CHECK_OK(kolo_rank(&training.first_rank));
  add_parts(&training);
  test_wrong_arguments(&training);
  if (kolo_is_elastic() == 0) test_failing_functions(&training);
  const kolo_status status = kolo_elastic_run(training.state, train, &training);
  if (training.first_rank == 1 && strcmp(training.fault, "none") != 0) {
    CHECK(status == KOLO_INVALID_ARGUMENT);
    check_message(__FILE__, __LINE__, "kolo_allreduce: `tensor` is null");
    exit(3);
  }
  if (strcmp(training.fault, "left") == 0) {
    CHECK(status == KOLO_PEER_LEFT);
    fprintf(stderr, "rank %d goes on alone\n", training.first_rank);
    return 0;
  }
  CHECK_OK(status);
  test_result(&training);
  CHECK(training.resets == (strcmp(training.fault, "none") == 0 ? 1 : 2));
  CHECK_OK(kolo_elastic_commits(training.state, &commits));
  CHECK(commits > 0);
  CHECK_OK(kolo_optimizer_free(training.optimizer)); /* the state keeps it alive */
  CHECK_OK(kolo_elastic_sync(training.state));
  CHECK_OK(kolo_rank(&rank));
  CHECK_OK(kolo_elastic_free(training.state));
  CHECK_FAILS(kolo_elastic_commit(training.state), KOLO_INVALID_ARGUMENT);
  CHECK_OK(kolo_elastic_free(NULL));
  CHECK_OK(kolo_shutdown());
  if (rank == 0) printf("trained in %d sessions\n", training.resets);
  return 0;
}
