/* SPDX-License-Identifier: Apache-2.0 */
/* Every collective of the C interface, synchronous, asynchronous and grouped, with results that are
 * closed formulas of rank and size. */
#include "check.h"

static int me, n;

static void test_allreduce(void) {
  float values[3];
  double sums[3] = {0};
  double out[3] = {0};
  const int64_t three = 3;
  const kolo_tensor tensor = vector_of(values, KOLO_F32, &three);
  const kolo_tensor input = vector_of(sums, KOLO_F64, &three);
  const kolo_tensor output = vector_of(out, KOLO_F64, &three);
  kolo_reduce_options options = KOLO_REDUCE_OPTIONS;
  kolo_request* requests[2];
  for (int i = 0; i < 3; ++i) values[i] = (float)(2 * me + i);
  CHECK_OK(kolo_allreduce(&tensor, NULL)); /* the average */
  for (int i = 0; i < 3; ++i) CHECK(values[i] == (float)(n - 1 + i));

  options.op = KOLO_SUM;
  options.name = "sum";
  options.prescale = 2.0;
  options.postscale = 0.5;
  for (int i = 0; i < 3; ++i) sums[i] = me + i;
  CHECK_OK(kolo_allreduce_into(&input, &output, &options));
  for (int i = 0; i < 3; ++i) CHECK(out[i] == n * (n - 1) / 2.0 + n * i && sums[i] == me + i);

  options.op = KOLO_MAX;
  options.name = "max";
  options.prescale = options.postscale = 1.0;
  for (int i = 0; i < 3; ++i) values[i] = (float)(me - i);
  CHECK_OK(kolo_allreduce_async(&tensor, &options, &requests[0]));
  options.name = "min";
  options.op = KOLO_MIN;
  CHECK_OK(kolo_allreduce_into_async(&input, &output, &options, &requests[1]));
  size_t first = 2;
  CHECK_OK(kolo_request_wait_any(requests, 2, &first));
  CHECK(first < 2);
  for (int i = 0; i < 2; ++i) {
    int done = 0;
    CHECK_OK(kolo_request_wait(requests[i]));
    CHECK_OK(kolo_request_ready(requests[i], &done));
    CHECK(done == 1);
    CHECK_OK(kolo_request_finished(requests[i], &done));
    CHECK(done == 1);
    done = 0;
    CHECK_OK(kolo_request_wait_for(requests[i], 0.0, &done));
    CHECK(done == 1);
    CHECK_OK(kolo_request_synchronize(requests[i]));
    CHECK_OK(kolo_request_free(requests[i]));
  }
  for (int i = 0; i < 3; ++i) CHECK(values[i] == (float)(n - 1 - i) && out[i] == i);
}

static void test_grouped_allreduce(void) {
  int64_t whole = me + 1;
  float halves[2] = {(float)me, 1.0f};
  const int64_t two = 2;
  const kolo_tensor tensors[2] = {{&whole, KOLO_I64, {KOLO_CPU, 0}, 0, NULL},
                                  vector_of(halves, KOLO_F32, &two)};
  kolo_reduce_options options = KOLO_REDUCE_OPTIONS;
  kolo_request* request;
  options.op = KOLO_SUM;
  options.fuse_exactly = 1;
  CHECK_OK(kolo_grouped_allreduce(tensors, 2, &options));
  CHECK(whole == n * (n + 1) / 2 && halves[0] == n * (n - 1) / 2.0 && halves[1] == n);
  CHECK_OK(kolo_grouped_allreduce_async(tensors, 2, NULL, &request)); /* equal everywhere */
  CHECK_OK(kolo_request_wait(request));
  CHECK_OK(kolo_request_free(request));
  CHECK(whole == n * (n + 1) / 2 && halves[1] == n);
}

static void test_reducescatter(void) {
  enum { columns = 2, max_rows = 16 };
  int32_t from[max_rows * columns], to[max_rows * columns] = {0};
  const int64_t rows = n + 1; /* rank 0 gets two rows */
  const int64_t own = kolo_reducescatter_rows(rows, me, n);
  const int64_t begin = me == 0 ? 0 : me + 1;
  const int64_t input_shape[2] = {rows, columns}, output_shape[2] = {own, columns};
  const kolo_tensor input = {from, KOLO_I32, {KOLO_CPU, 0}, 2, input_shape};
  const kolo_tensor output = {to, KOLO_I32, {KOLO_CPU, 0}, 2, output_shape};
  kolo_reduce_options options = KOLO_REDUCE_OPTIONS;
  options.op = KOLO_SUM;
  CHECK(own == (me == 0 ? 2 : 1));
  CHECK(kolo_reducescatter_rows(1, 0, 0) == -1);
  for (int i = 0; i < rows * columns; ++i) from[i] = i * (me + 1);
  for (int round = 0; round < 4; ++round) {
    kolo_request* request = NULL;
    memset(to, 0, sizeof to);
    if (round == 0) CHECK_OK(kolo_reducescatter(&input, &output, &options));
    if (round == 1) CHECK_OK(kolo_reducescatter_async(&input, &output, &options, &request));
    if (round == 2) CHECK_OK(kolo_grouped_reducescatter(&input, &output, 1, &options));
    if (round == 3)
      CHECK_OK(kolo_grouped_reducescatter_async(&input, &output, 1, &options, &request));
    if (request != NULL) CHECK_OK(kolo_request_wait(request));
    CHECK_OK(kolo_request_free(request)); /* null has no effect */
    for (int i = 0; i < own * columns; ++i) CHECK(to[i] == (begin * columns + i) * n * (n + 1) / 2);
  }
}

/* Rank r contributes r + 1 rows of two elements, each with the value r. */
static void check_gathered(const float* gathered, const int64_t* rows) {
  for (int rank = 0, i = 0; rank < n; ++rank) {
    CHECK(rows[rank] == rank + 1);
    for (int end = i + 2 * (rank + 1); i < end; ++i) CHECK(gathered[i] == rank);
  }
}

static void test_allgather(void) {
  float values[32];
  int64_t rows[2][16];
  void *memory[2] = {NULL, NULL}, *users[2];
  const int64_t shape[2] = {me + 1, 2};
  const kolo_tensor tensor = {values, KOLO_F32, {KOLO_CPU, 0}, 2, shape};
  kolo_tensor twice[2];
  kolo_request* request;
  int64_t all_rows[32];
  for (int i = 0; i < 32; ++i) values[i] = (float)me;
  twice[0] = twice[1] = tensor;
  CHECK_OK(kolo_allgather(&tensor, kolo_allocate, &memory[0], rows[0], NULL));
  check_gathered(memory[0], rows[0]);
  free(memory[0]);
  CHECK_OK(kolo_allgather_async(&tensor, kolo_allocate, &memory[1], rows[1], NULL, &request));
  CHECK_OK(kolo_request_wait(request));
  CHECK_OK(kolo_request_free(request));
  check_gathered(memory[1], rows[1]);
  free(memory[1]);
  users[0] = &memory[0];
  users[1] = &memory[1];
  for (int round = 0; round < 2; ++round) {
    if (round == 0)
      CHECK_OK(kolo_grouped_allgather(twice, 2, kolo_allocate, users, all_rows, NULL));
    if (round == 1) {
      CHECK_OK(
          kolo_grouped_allgather_async(twice, 2, kolo_allocate, users, all_rows, NULL, &request));
      CHECK_OK(kolo_request_wait(request));
      CHECK_OK(kolo_request_free(request));
    }
    for (int i = 0; i < 2; ++i) {
      check_gathered(memory[i], all_rows + i * n);
      free(memory[i]);
    }
  }
}

static void test_broadcast(void) {
  uint8_t in[5], out[5] = {0};
  const int64_t five = 5;
  const int root = n - 1;
  const kolo_tensor input = vector_of(in, KOLO_U8, &five), output = vector_of(out, KOLO_U8, &five);
  kolo_request* requests[2];
  for (int i = 0; i < 5; ++i) in[i] = (uint8_t)(10 * me + i);
  CHECK_OK(kolo_broadcast_into(&input, &output, root, NULL));
  for (int i = 0; i < 5; ++i) CHECK(out[i] == 10 * root + i && in[i] == 10 * me + i);
  memset(out, 0, sizeof out);
  CHECK_OK(kolo_broadcast_into_async(&input, &output, 0, NULL, &requests[0]));
  CHECK_OK(kolo_request_wait(requests[0]));
  CHECK_OK(kolo_broadcast_async(&input, root, NULL, &requests[1]));
  CHECK_OK(kolo_request_wait(requests[1]));
  for (int i = 0; i < 5; ++i) CHECK(out[i] == i && in[i] == 10 * root + i);
  CHECK_OK(kolo_broadcast(&output, root, NULL));
  for (int i = 0; i < 2; ++i) CHECK_OK(kolo_request_free(requests[i]));
}

static void test_alltoall(void) {
  int32_t values[32];
  int64_t counts[16], received[16], rows = 0;
  void* memory = NULL;
  kolo_request* request;
  for (int i = 0; i < n; ++i) rows += counts[i] = i + 1; /* rank i gets i + 1 rows from each */
  const kolo_tensor tensor = vector_of(values, KOLO_I32, &rows);
  for (int i = 0; i < rows; ++i) values[i] = me;
  CHECK_OK(kolo_alltoall(&tensor, counts, (size_t)n, kolo_allocate, &memory, received, NULL));
  for (int rank = 0, i = 0; rank < n; ++rank) {
    CHECK(received[rank] == me + 1);
    for (int end = i + me + 1; i < end; ++i) CHECK(((int32_t*)memory)[i] == rank);
  }
  free(memory);
  rows = n;
  CHECK_OK(kolo_alltoall_async(&tensor, NULL, 0, kolo_allocate, &memory, received, NULL, &request));
  CHECK_OK(kolo_request_wait(request));
  CHECK_OK(kolo_request_free(request));
  for (int rank = 0; rank < n; ++rank)
    CHECK(received[rank] == 1 && ((int32_t*)memory)[rank] == rank);
  free(memory);
}

static void test_process_sets(void) {
  kolo_process_set* evens = NULL;
  int ranks[16], members[16] = {0}, count = 0, size = 0, place = -2;
  int64_t id = -1, value = me;
  const kolo_tensor tensor = {&value, KOLO_I64, {KOLO_CPU, 0}, 0, NULL};
  kolo_reduce_options options = KOLO_REDUCE_OPTIONS;
  for (int rank = 0; rank < n; rank += 2) ranks[count++] = rank;
  CHECK_OK(kolo_process_set_add(ranks, (size_t)count, &evens));
  CHECK_OK(kolo_process_set_id(evens, &id));
  CHECK_OK(kolo_process_set_size(evens, &size));
  CHECK_OK(kolo_process_set_rank(evens, &place));
  CHECK_OK(kolo_process_set_ranks(evens, members, 16));
  CHECK(id > 0 && size == count && place == (me % 2 == 0 ? me / 2 : -1));
  CHECK(memcmp(members, ranks, (size_t)count * sizeof *ranks) == 0);
  CHECK_ERROR(kolo_process_set_ranks(evens, members, (size_t)count - 1), KOLO_INVALID_ARGUMENT,
              "there is room for");
  options.op = KOLO_SUM;
  options.process_set = evens;
  if (me % 2 == 0) {
    CHECK_OK(kolo_allreduce(&tensor, &options));
    CHECK(value == count * (count - 1));
  } else {
    CHECK_FAILS(kolo_allreduce(&tensor, &options), KOLO_INVALID_ARGUMENT);
  }
  CHECK_OK(kolo_process_set_remove(evens));
  CHECK_FAILS(kolo_process_set_remove(evens), KOLO_INVALID_ARGUMENT);
  CHECK_OK(kolo_process_set_free(evens));
  CHECK_OK(kolo_process_set_size(NULL, &size)); /* the world */
  CHECK(size == n);
}

/* Rank r has r + 1 batches. */
static void test_join(void) {
  int last = -1;
  kolo_request* request;
  for (int round = 0; round < 2; ++round) {
    for (int batch = 0; batch <= me; ++batch) {
      int32_t present = 1;
      const kolo_tensor tensor = {&present, KOLO_I32, {KOLO_CPU, 0}, 0, NULL};
      kolo_reduce_options options = KOLO_REDUCE_OPTIONS;
      options.op = KOLO_SUM;
      CHECK_OK(kolo_allreduce(&tensor, &options));
      CHECK(present == n - batch);
    }
    if (round == 0) CHECK_OK(kolo_join(&last));
    if (round == 1) {
      CHECK_OK(kolo_join_async(&last, &request));
      CHECK_OK(kolo_request_wait(request));
      CHECK_OK(kolo_request_free(request));
    }
    CHECK(last >= 0 && last < n);
  }
}

int main(int argc, char** argv) {
  const kolo_setting settings[1] = {{"stall_shutdown", "60"}};
  int value = -1;
  char text[4];
  size_t length = 0;
  kolo_request* request;
  CHECK(kolo_initialized() == 0 && kolo_last_error() == KOLO_OK);
  CHECK_OK(kolo_init(argc, argv, settings, 1));
  CHECK(kolo_initialized() == 1);
  CHECK_OK(kolo_rank(&me));
  CHECK_OK(kolo_size(&n));
  CHECK_OK(kolo_local_rank(&value));
  CHECK(value >= 0 && value <= me);
  CHECK_OK(kolo_local_size(&value));
  CHECK(value >= 1 && value <= n);
  CHECK_OK(kolo_cross_rank(&value));
  CHECK_OK(kolo_cross_size(&value));
  CHECK_OK(kolo_homogeneous(&value));
  CHECK_OK(kolo_cpu_operations(text, sizeof text, &length));
  CHECK(strlen(text) == (length < 3 ? length : 3) && length > 0);
  test_allreduce();
  test_grouped_allreduce();
  test_reducescatter();
  test_allgather();
  test_broadcast();
  test_alltoall();
  test_process_sets();
  test_join();
  CHECK_OK(kolo_barrier(NULL));
  CHECK_OK(kolo_barrier_async(NULL, &request));
  CHECK_OK(kolo_request_wait(request));
  CHECK_OK(kolo_request_free(request));
  CHECK_OK(kolo_stop_requested(&value));
  CHECK(value == 0);
  kolo_request_stop();
  while (value == 0) CHECK_OK(kolo_stop_requested(&value));
  CHECK(kolo_last_error() == KOLO_INVALID_ARGUMENT); /* of test_process_sets */
  CHECK_OK(kolo_shutdown());
  CHECK_OK(kolo_shutdown());
  CHECK(kolo_initialized() == 0);
  if (me == 0) printf("all results are right\n");
  return 0;
}
