/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong arguments, misused handles, and ranks that disagree: each gives a status and a message, and
 * the session continues. The argument `left` or `killed`: the last rank leaves instead. */
#include <pthread.h>
#include <signal.h>

#include "check.h"

static int me, n;
static const int64_t one = 1;

static void test_nulls(void) {
  float value = 0.0f;
  int result = 0;
  const kolo_tensor tensor = vector_of(&value, KOLO_F32, &one);
  kolo_request* request = NULL;
  CHECK_ERROR(kolo_allreduce(NULL, NULL), KOLO_INVALID_ARGUMENT, "kolo_allreduce: `tensor`");
  CHECK_ERROR(kolo_allreduce_into(&tensor, NULL, NULL), KOLO_INVALID_ARGUMENT, "`output` is null");
  CHECK_ERROR(kolo_allreduce_async(&tensor, NULL, NULL), KOLO_INVALID_ARGUMENT,
              "`request` is null");
  CHECK_ERROR(kolo_grouped_allreduce(NULL, 2, NULL), KOLO_INVALID_ARGUMENT, "`tensors` is null");
  CHECK_ERROR(kolo_grouped_allreduce(NULL, 0, NULL), KOLO_INVALID_ARGUMENT, "at least one tensor");
  CHECK_FAILS(kolo_allgather(&tensor, NULL, NULL, NULL, NULL), KOLO_INVALID_ARGUMENT);
  CHECK_ERROR(kolo_allgather(&tensor, kolo_allocate, NULL, NULL, NULL), KOLO_INVALID_ARGUMENT,
              "`user` is null");
  CHECK_FAILS(kolo_alltoall(&tensor, NULL, 1, kolo_allocate, NULL, NULL, NULL),
              KOLO_INVALID_ARGUMENT);
  CHECK_FAILS(kolo_join_async(NULL, &request), KOLO_INVALID_ARGUMENT);
  CHECK_FAILS(kolo_rank(NULL), KOLO_INVALID_ARGUMENT);
  CHECK_FAILS(kolo_process_set_add(&result, 1, NULL), KOLO_INVALID_ARGUMENT);
  CHECK_FAILS(kolo_cpu_operations(NULL, 3, NULL), KOLO_INVALID_ARGUMENT);
  CHECK_FAILS(kolo_request_wait(NULL), KOLO_INVALID_ARGUMENT);
  CHECK_FAILS(kolo_request_wait_any(NULL, 0, NULL), KOLO_INVALID_ARGUMENT);
  CHECK_OK(kolo_process_set_free(NULL));
  CHECK(kolo_allocate(NULL, 0, 8, NULL) == NULL);
}

static void test_values(void) {
  float value = 0.0f;
  kolo_tensor tensor = vector_of(&value, KOLO_F32, &one);
  struct {
    kolo_reduce_options known;
    double unknown;
  } newer = {KOLO_REDUCE_OPTIONS, 0.0};
  kolo_reduce_options options = KOLO_REDUCE_OPTIONS;
  const int64_t negative = -1;
  options.op = (kolo_reduce_op)17;
  CHECK_ERROR(kolo_allreduce(&tensor, &options), KOLO_INVALID_ARGUMENT,
              "no operator with the number 17");
  options.op = KOLO_SUM;
  options.compression = (kolo_compression)-1;
  CHECK_ERROR(kolo_allreduce(&tensor, &options), KOLO_INVALID_ARGUMENT, "compression");
  tensor.dtype = (kolo_dtype)99;
  CHECK_ERROR(kolo_allreduce(&tensor, NULL), KOLO_INVALID_ARGUMENT, "no dtype with the number 99");
  tensor = vector_of(&value, KOLO_F32, &one);
  tensor.device.type = (kolo_device_type)7;
  CHECK_ERROR(kolo_allreduce(&tensor, NULL), KOLO_INVALID_ARGUMENT, "device");
  tensor = vector_of(&value, KOLO_F32, &negative);
  CHECK_FAILS(kolo_allreduce(&tensor, NULL), KOLO_INVALID_ARGUMENT);
  tensor.dimensions = -2;
  CHECK_ERROR(kolo_allreduce(&tensor, NULL), KOLO_INVALID_ARGUMENT, "-2 dimensions");
  tensor.dimensions = 1 << 30;
  CHECK_ERROR(kolo_allreduce(&tensor, NULL), KOLO_INVALID_ARGUMENT, "but a tensor has 0 to 64");
  tensor = vector_of(&value, KOLO_F32, NULL);
  CHECK_ERROR(kolo_allreduce(&tensor, NULL), KOLO_INVALID_ARGUMENT, "`shape` is null");
  tensor = vector_of(NULL, KOLO_F32, &one);
  CHECK_FAILS(kolo_allreduce(&tensor, NULL), KOLO_INVALID_ARGUMENT);
  tensor = vector_of(&value, KOLO_F32, &one);
  CHECK_FAILS(kolo_broadcast(&tensor, n, NULL), KOLO_INVALID_ARGUMENT);
  /* Options of a newer library end after the last member. */
  options = newer.known;
  options.size = sizeof(kolo_reduce_options*); /* a usual slip */
  CHECK_ERROR(kolo_allreduce(&tensor, &options), KOLO_INVALID_ARGUMENT, "the options have");
  newer.known.size = sizeof newer;
  CHECK_OK(kolo_allreduce(&tensor, &newer.known));
  newer.unknown = 1.0;
  CHECK_ERROR(kolo_allreduce(&tensor, &newer.known), KOLO_INVALID_ARGUMENT, "the options have");
  options.size = 0;
  CHECK_ERROR(kolo_allreduce(&tensor, &options), KOLO_INVALID_ARGUMENT, "the options have");
}

static void* wait_elsewhere(void* request) {
  kolo_status* status = malloc(sizeof *status);
  do *status = kolo_request_wait(request); /* again while the main thread uses the request */
  while (*status == KOLO_INVALID_ARGUMENT);
  return status;
}

static void test_handles(void) {
  int32_t value = 1;
  int result;
  const kolo_tensor tensor = vector_of(&value, KOLO_I32, &one);
  kolo_request *request, *another;
  kolo_process_set* set;
  kolo_collective_options options = KOLO_COLLECTIVE_OPTIONS;
  void* elsewhere;
  pthread_t thread;
  CHECK_OK(kolo_allreduce_async(&tensor, NULL, &request));
  CHECK_OK(kolo_request_wait(request));
  CHECK(pthread_create(&thread, NULL, wait_elsewhere, request) == 0); /* one after the other */
  CHECK(pthread_join(thread, &elsewhere) == 0);
  CHECK(*(kolo_status*)elsewhere == KOLO_OK);
  free(elsewhere);
  CHECK_OK(kolo_request_free(request));
  CHECK_ERROR(kolo_request_free(request), KOLO_INVALID_ARGUMENT, "no request, or one that was");
  CHECK_FAILS(kolo_request_wait(request), KOLO_INVALID_ARGUMENT);
  CHECK_FAILS(kolo_request_ready(request, &result), KOLO_INVALID_ARGUMENT);
  CHECK_OK(kolo_barrier_async(NULL, &another)); /* its place, another handle */
  CHECK(another != request);
  CHECK_FAILS(kolo_request_wait(request), KOLO_INVALID_ARGUMENT);
  CHECK_OK(kolo_request_free(another)); /* waits */
  CHECK_FAILS(kolo_request_wait((kolo_request*)&value), KOLO_INVALID_ARGUMENT);
  CHECK_FAILS(kolo_process_set_free((kolo_process_set*)another), KOLO_INVALID_ARGUMENT);
  CHECK_OK(kolo_process_set_add(&(int){0}, 1, &set));
  CHECK_FAILS(kolo_request_free((kolo_request*)set), KOLO_INVALID_ARGUMENT);
  CHECK_OK(kolo_process_set_free(set));
  options.process_set = set;
  CHECK_ERROR(kolo_barrier(&options), KOLO_INVALID_ARGUMENT, "no process set, or one that was");
  CHECK_FAILS(kolo_process_set_remove(set), KOLO_INVALID_ARGUMENT);
}

/* A thread waits for an operation that the other ranks submit later. Meanwhile another thread
 * cannot use the request. */
static void test_two_threads(void) {
  kolo_request* request;
  kolo_status status;
  pthread_t thread;
  void* elsewhere;
  int ready, value = 0;
  const kolo_tensor tensor = vector_of(&value, KOLO_I32, &one);
  if (n == 1) return;
  if (me == 0) {
    CHECK_OK(kolo_barrier_async(
        &(kolo_collective_options){sizeof(kolo_collective_options), "both", NULL}, &request));
    CHECK(pthread_create(&thread, NULL, wait_elsewhere, request) == 0);
    do status = kolo_request_ready(request, &ready);
    while (status == KOLO_OK);
    CHECK(status == KOLO_INVALID_ARGUMENT);
    check_message(__FILE__, __LINE__, "in use by another call");
    CHECK_OK(kolo_broadcast(&tensor, 0, NULL)); /* now the others submit it */
    CHECK(pthread_join(thread, &elsewhere) == 0);
    CHECK(*(kolo_status*)elsewhere == KOLO_OK);
    free(elsewhere);
    CHECK_OK(kolo_request_free(request));
  } else {
    CHECK_OK(kolo_broadcast(&tensor, 0, NULL));
    CHECK_OK(
        kolo_barrier(&(kolo_collective_options){sizeof(kolo_collective_options), "both", NULL}));
  }
}

static void test_disagreement(void) {
  float values[4] = {1.0f, 1.0f, 1.0f, 1.0f};
  const int64_t count = me == 0 ? 4 : 2;
  const kolo_tensor tensor = vector_of(values, KOLO_F32, &count);
  kolo_reduce_options options = KOLO_REDUCE_OPTIONS;
  const int* ranks = NULL;
  kolo_request *request, *second;
  options.name = "gradient";
  options.op = KOLO_SUM;
  if (n > 1) {
    CHECK_ERROR(kolo_allreduce(&tensor, &options), KOLO_MISMATCH, "gradient");
    CHECK(kolo_last_error() == KOLO_MISMATCH);
    CHECK(strcmp(kolo_last_error_tensor(), "gradient") == 0);
    for (size_t i = 0, known = kolo_last_error_ranks(&ranks); i < known; ++i)
      CHECK(ranks[i] >= 0 && ranks[i] < n);
    CHECK_OK(kolo_allreduce_async(&tensor, &options, &request));
    CHECK_FAILS(kolo_request_wait(request), KOLO_MISMATCH);
    CHECK_FAILS(kolo_request_wait(request), KOLO_MISMATCH);
    CHECK_OK(kolo_request_free(request));
    for (int i = 0; i < 4; ++i) CHECK(values[i] == 1.0f);
  }
  /* The first one is pending on this rank until the other ranks submit it. */
  if (n > 1 && me == 0) {
    options.name = "twice";
    CHECK_OK(kolo_allreduce_async(&tensor, &options, &request));
    CHECK_ERROR(kolo_allreduce_async(&tensor, &options, &second), KOLO_DUPLICATE_NAME, "twice");
    CHECK(kolo_last_error_ranks(&ranks) == 1 && ranks[0] == 0);
  }
  CHECK_OK(kolo_barrier(NULL));
  if (n > 1) {
    const int64_t all = 4;
    kolo_tensor same = tensor;
    same.shape = &all;
    options.name = "twice";
    if (me != 0) CHECK_OK(kolo_allreduce(&same, &options));
    if (me == 0) CHECK_OK(kolo_request_free(request));
    CHECK(values[3] == n);
  }
}

static void test_without_session(kolo_request* pending, kolo_process_set* set) {
  float value = 0.0f;
  int result;
  int64_t id;
  const kolo_tensor tensor = vector_of(&value, KOLO_F32, &one);
  kolo_request* request;
  kolo_reduce_options options = KOLO_REDUCE_OPTIONS;
  CHECK_FAILS(kolo_rank(&result), KOLO_NOT_INITIALIZED);
  CHECK_FAILS(kolo_allreduce(&tensor, NULL), KOLO_NOT_INITIALIZED);
  CHECK_FAILS(kolo_allreduce_async(&tensor, NULL, &request), KOLO_NOT_INITIALIZED);
  CHECK_FAILS(kolo_barrier(NULL), KOLO_NOT_INITIALIZED);
  CHECK_FAILS(kolo_join(NULL), KOLO_NOT_INITIALIZED);
  CHECK_FAILS(kolo_process_set_size(NULL, &result), KOLO_NOT_INITIALIZED);
  CHECK_FAILS(kolo_process_set_id(NULL, &id), KOLO_NOT_INITIALIZED);
  CHECK_FAILS(kolo_stop_requested(&result), KOLO_NOT_INITIALIZED);
  options.process_set = set;
  if (set != NULL) {
    CHECK_FAILS(kolo_allreduce(&tensor, &options), KOLO_NOT_INITIALIZED);
    CHECK_OK(kolo_process_set_id(set, &id));
    CHECK_OK(kolo_process_set_free(set));
  }
  if (pending != NULL) {
    const kolo_status status = kolo_request_wait(pending); /* which comes first may differ */
    CHECK(status == KOLO_SHUT_DOWN || status == KOLO_PEER_LEFT);
    CHECK_OK(kolo_request_free(pending));
  }
}

/* The last rank leaves while the others need it. */
static void test_departure(int killed) {
  float value = 1.0f;
  const kolo_tensor tensor = vector_of(&value, KOLO_F32, &one);
  const int* ranks = NULL;
  if (me == n - 1) {
    if (killed) raise(SIGKILL);
    return;
  }
  CHECK_FAILS(kolo_allreduce(&tensor, NULL), KOLO_PEER_LEFT);
  CHECK(kolo_last_error_ranks(&ranks) == 1 && ranks[0] == n - 1);
  fprintf(stderr, "rank %d misses rank %d: %s\n", me, ranks[0], kolo_last_error_message());
}

int main(int argc, char** argv) {
  const kolo_setting wrong[1] = {{"stall_shutdwon", "60"}};
  kolo_request* pending = NULL;
  kolo_process_set* set = NULL;
  test_without_session(NULL, NULL);
  CHECK_ERROR(kolo_init(argc, argv, wrong, 1), KOLO_INVALID_ARGUMENT,
              "did you mean stall_shutdown");
  CHECK_ERROR(kolo_init(argc, argv, NULL, 1), KOLO_INVALID_ARGUMENT, "`settings` is null");
  CHECK_OK(kolo_init(argc, argv, NULL, 0));
  CHECK_ERROR(kolo_init(argc, argv, NULL, 0), KOLO_INVALID_ARGUMENT, "session");
  CHECK_OK(kolo_rank(&me));
  CHECK_OK(kolo_size(&n));
  const int killed = argc > 1 && strcmp(argv[1], "killed") == 0;
  if (killed || (argc > 1 && strcmp(argv[1], "left") == 0)) {
    test_departure(killed);
  } else {
    test_nulls();
    test_values();
    test_handles();
    test_two_threads();
    test_disagreement();
    CHECK_OK(kolo_process_set_add(&(int){0}, 1, &set));
    if (n > 1 && me == 0)
      CHECK_OK(kolo_barrier_async(
          &(kolo_collective_options){sizeof(kolo_collective_options), "pending", NULL}, &pending));
  }
  CHECK_OK(kolo_shutdown());
  test_without_session(pending, set);
  if (me == 0) printf("all mistakes have errors\n");
  return 0;
}
