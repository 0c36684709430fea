/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that call different functions of an elastic state or have parts of different sizes, texts
 * that are not UTF-8, and sizes that nothing has: each gives an error, and the session continues.
 * Then the last rank leaves. The arguments `gone R`: the process R of kolorun or Open MPI ends
 * before its session. */
#include <stdint.h>

#include "check.h"

static int me, n;
static const int64_t one = 1;
static const char* const not_utf8 = "weight\xff";

/* The ranks of the last error are rank 1 alone. */
static void check_rank_1(void) {
  const int* ranks = NULL;
  CHECK(kolo_last_error_ranks(&ranks) == 1 && ranks[0] == 1);
}

static void test_other_calls(void) {
  kolo_elastic_state* state;
  int step = 0;
  if (n == 1) return;
  CHECK_OK(kolo_elastic_create(&state));
  CHECK_OK(kolo_elastic_add_bytes(state, "step", &step, sizeof step));
  CHECK_ERROR(me == 1 ? kolo_elastic_commit(state) : kolo_elastic_sync(state), KOLO_MISMATCH,
              "commit on rank 1, sync on rank");
  check_rank_1();
  CHECK_ERROR(me == 1 ? kolo_elastic_sync(state) : kolo_elastic_check_membership(state),
              KOLO_MISMATCH, "sync on rank 1");
  CHECK_OK(kolo_elastic_sync(state));
  CHECK_OK(kolo_elastic_free(state));
}

static void test_other_sizes(void) {
  kolo_elastic_state* state;
  char bytes[8] = {0};
  const int64_t shape[2] = {me == 1 ? 1 : 2, me == 1 ? 2 : 1};
  const kolo_named_tensor tensor = {"w", {bytes, KOLO_U8, {KOLO_CPU, 0}, 2, shape}};
  if (n == 1) return;
  CHECK_OK(kolo_elastic_create(&state));
  CHECK_OK(kolo_elastic_add_bytes(state, "step", bytes, me == 1 ? 8 : 4));
  CHECK_ERROR(kolo_elastic_sync(state), KOLO_MISMATCH,
              "'step' is u8 [4] on rank 0 and u8 [8] on rank 1. Differing from rank 0: 1.");
  check_rank_1();
  CHECK_OK(kolo_elastic_free(state));
  CHECK_OK(kolo_elastic_create(&state));
  CHECK_OK(kolo_elastic_add_tensors(state, "model", &tensor, 1));
  CHECK_ERROR(kolo_elastic_sync(state), KOLO_MISMATCH, "'model.w' is u8 [2, 1] on rank 0");
  CHECK_OK(kolo_elastic_free(state));
}

static void test_texts(void) {
  float value = 1.0f;
  const kolo_named_tensor tensor = {not_utf8, vector_of(&value, KOLO_F32, &one)};
  const kolo_named_tensor named = {"w\xc3\xa4rme", tensor.tensor};
  const kolo_text text = {"text", not_utf8};
  const kolo_part parts[2] = {{not_utf8, &named, 1, NULL, 0}, {"part", &named, 1, &text, 1}};
  kolo_reduce_options reduction = KOLO_REDUCE_OPTIONS;
  kolo_collective_options collective = KOLO_COLLECTIVE_OPTIONS;
  kolo_checkpointer_options options = KOLO_CHECKPOINTER_OPTIONS;
  kolo_checkpointer* checkpointer;
  kolo_optimizer* optimizer;
  kolo_elastic_state* state;
  reduction.name = collective.name = not_utf8;
  CHECK_ERROR(kolo_allreduce(&tensor.tensor, &reduction), KOLO_INVALID_ARGUMENT,
              "kolo_allreduce: `name` is not UTF-8");
  CHECK_ERROR(kolo_barrier(&collective), KOLO_INVALID_ARGUMENT, "not UTF-8");
  CHECK_ERROR(kolo_broadcast_parameters(&tensor, 1, 0, NULL), KOLO_INVALID_ARGUMENT, "not UTF-8");
  CHECK_ERROR(kolo_optimizer_create(&tensor, 1, NULL, 0, NULL, &optimizer), KOLO_INVALID_ARGUMENT,
              "not UTF-8");
  CHECK_OK(kolo_elastic_create(&state));
  CHECK_ERROR(kolo_elastic_add_bytes(state, not_utf8, &value, 1), KOLO_INVALID_ARGUMENT,
              "not UTF-8");
  CHECK_ERROR(kolo_elastic_add_tensors(state, "part", &tensor, 1), KOLO_INVALID_ARGUMENT,
              "not UTF-8");
  CHECK_OK(kolo_elastic_free(state));
  options.directory = "unused";
  CHECK_OK(kolo_checkpointer_create(&options, &checkpointer));
  for (int i = 0; i < 2; ++i)
    CHECK_ERROR(kolo_checkpointer_save(checkpointer, 1, parts + i, 1, NULL), KOLO_INVALID_ARGUMENT,
                "not UTF-8");
  CHECK_OK(kolo_checkpointer_free(checkpointer));
  reduction.name = named.name;
  CHECK_OK(kolo_allreduce(&named.tensor, &reduction));
}

static void test_sizes(void) {
  float value = 1.0f;
  int64_t lengths[2] = {INT64_MAX / 4 + 1, INT64_MAX};
  kolo_named_tensor tensor = {"w", {&value, KOLO_F32, {KOLO_CPU, 0}, 1, lengths}};
  void* result = NULL;
  kolo_process_set* set;
  kolo_request* none = NULL;
  kolo_optimizer* optimizer;
  kolo_elastic_state* state;
  size_t index;
  for (int dimensions = 1; dimensions <= 2; ++dimensions) {
    tensor.tensor.dimensions = dimensions;
    CHECK_FAILS(kolo_allreduce(&tensor.tensor, NULL), KOLO_INVALID_ARGUMENT);
    CHECK_FAILS(kolo_allgather(&tensor.tensor, kolo_allocate, &result, NULL, NULL),
                KOLO_INVALID_ARGUMENT);
    CHECK_FAILS(kolo_broadcast_parameters(&tensor, 1, 0, NULL), KOLO_INVALID_ARGUMENT);
    CHECK_FAILS(kolo_save_safetensors("unused", &tensor, 1, NULL, 0), KOLO_INVALID_ARGUMENT);
    lengths[0] = 0; /* no elements, but no such shape either */
  }
  tensor.tensor = vector_of(&value, KOLO_F32, &one);
  const size_t counts[2] = {SIZE_MAX, SIZE_MAX / sizeof(kolo_tensor) + 2};
  for (int i = 0; i < 2; ++i)
    CHECK_ERROR(kolo_grouped_allreduce(&tensor.tensor, counts[i], NULL), KOLO_INVALID_ARGUMENT,
                "`tensors` cannot have");
  CHECK_FAILS(kolo_optimizer_create(&tensor, SIZE_MAX, NULL, 0, NULL, &optimizer),
              KOLO_INVALID_ARGUMENT);
  CHECK_FAILS(kolo_alltoall(&tensor.tensor, &one, SIZE_MAX, kolo_allocate, &result, NULL, NULL),
              KOLO_INVALID_ARGUMENT);
  CHECK_FAILS(kolo_process_set_add(&me, SIZE_MAX / sizeof me + 2, &set), KOLO_INVALID_ARGUMENT);
  CHECK_FAILS(kolo_request_wait_any(&none, SIZE_MAX, &index), KOLO_INVALID_ARGUMENT);
  CHECK_OK(kolo_elastic_create(&state));
  const size_t bytes[3] = {SIZE_MAX, SIZE_MAX / 2 + 1, SIZE_MAX / 4};
  for (int i = 0; i < 3; ++i)
    CHECK_FAILS(kolo_elastic_add_bytes(state, "a", &value, bytes[i]), KOLO_INVALID_ARGUMENT);
  CHECK_OK(kolo_elastic_free(state));
}

/* The last rank leaves. Errors have the names that the program has given, and no others. */
static void test_names(void) {
  float value = 1.0f;
  const kolo_named_tensor gradient = {"0.weight", vector_of(&value, KOLO_F32, &one)};
  kolo_reduce_options options = KOLO_REDUCE_OPTIONS;
  kolo_elastic_state* state;
  kolo_optimizer* optimizer;
  int stops;
  CHECK_OK(kolo_optimizer_create(&gradient, 1, NULL, 0, NULL, &optimizer));
  CHECK_OK(kolo_elastic_create(&state));
  CHECK_OK(kolo_elastic_add_optimizer(state, "optimizer", optimizer));
  if (me == n - 1) return;
  CHECK_FAILS(kolo_optimizer_begin_step(optimizer), KOLO_PEER_LEFT);
  CHECK(strcmp(kolo_last_error_tensor(), "0.weight") == 0);
  options.name = "0.weight";
  CHECK_FAILS(kolo_allreduce(&gradient.tensor, &options), KOLO_PEER_LEFT);
  CHECK(strcmp(kolo_last_error_tensor(), "0.weight") == 0);
  CHECK_FAILS(kolo_elastic_sync(state), KOLO_PEER_LEFT);
  CHECK(strcmp(kolo_last_error_tensor(), "") == 0);
  CHECK_FAILS(kolo_broadcast_parameters(&gradient, 1, 0, NULL), KOLO_PEER_LEFT);
  CHECK(strcmp(kolo_last_error_tensor(), "") == 0);
  CHECK_FAILS(kolo_stop_requested(&stops), KOLO_PEER_LEFT);
  CHECK(strcmp(kolo_last_error_tensor(), "") == 0);
}

/* Ends one process; the others get an error instead of waiting for it. */
static int run_without_one(int argc, char** argv) {
  const char* rank = getenv("RANK");
  if (rank == NULL) rank = getenv("OMPI_COMM_WORLD_RANK");
  CHECK(rank != NULL && argc > 2);
  if (atoi(rank) == atoi(argv[2])) return 0;
  CHECK_ERROR(kolo_init(argc, argv, NULL, 0), KOLO_SHUT_DOWN, "have ended without a session");
  return 0;
}

int main(int argc, char** argv) {
  const kolo_setting quiet[1] = {{"flight_recorder_dir", "off"}};
  if (argc > 1 && strcmp(argv[1], "gone") == 0) return run_without_one(argc, argv);
  CHECK_OK(kolo_init(argc, argv, quiet, 1));
  CHECK_OK(kolo_rank(&me));
  CHECK_OK(kolo_size(&n));
  test_other_calls();
  test_other_sizes();
  test_texts();
  test_sizes();
  test_names();
  CHECK_OK(kolo_shutdown());
  if (me == 0) printf("all extremes have errors\n");
  return 0;
}
