/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints and safetensors files of the C interface: what is saved is loaded, and mistakes.
 * Arguments: a directory, and optionally `left`: the last rank leaves before a save. */
#include "check.h"

static int me, n;
static float weight[40000]; /* large enough to be divided among the ranks */
static double moment[5];
static uint8_t bytes[3];
static int32_t own[2];
static const int64_t shape[2] = {200, 200};
static const int64_t five = 5, three = 3, two = 2;
static kolo_named_tensor model[2], raw, mine;

static void fill(double value) {
  for (int i = 0; i < 40000; ++i) weight[i] = (float)(value + i);
  for (int i = 0; i < 5; ++i) moment[i] = value * i;
  for (int i = 0; i < 3; ++i) bytes[i] = (uint8_t)(value + i);
  for (int i = 0; i < 2; ++i) own[i] = (int32_t)(value + 10 * me + i);
}

static void check_shared(double value) {
  for (int i = 0; i < 40000; ++i) CHECK(weight[i] == (float)(value + i));
  for (int i = 0; i < 5; ++i) CHECK(moment[i] == value * i);
  for (int i = 0; i < 3; ++i) CHECK(bytes[i] == (uint8_t)(value + i));
}

static kolo_state* part_of(kolo_checkpoint* checkpoint, int of_rank, const char* name) {
  kolo_state* state;
  CHECK_OK(kolo_checkpoint_part(checkpoint, of_rank, name, &state));
  return state;
}

static void load(kolo_state* state, const kolo_named_tensor* tensors, size_t count) {
  size_t unmatched = 9;
  CHECK_OK(kolo_state_load(state, tensors, count, NULL, &unmatched));
  CHECK(unmatched == 0);
  CHECK_OK(kolo_state_free(state));
}

/* Loads a checkpoint that was filled with `value`, and frees it. */
static void check_contents(kolo_checkpoint* checkpoint, int64_t wanted, double value) {
  char text[8];
  int64_t step = -1, lengths[2];
  int ranks = 0;
  int32_t dimensions = 0;
  size_t count = 0, length = 0;
  kolo_dtype dtype;
  CHECK(checkpoint != NULL);
  CHECK_OK(kolo_checkpoint_step(checkpoint, &step));
  CHECK_OK(kolo_checkpoint_ranks(checkpoint, &ranks));
  CHECK(step == wanted && ranks == n);
  CHECK_OK(kolo_checkpoint_path(checkpoint, NULL, 0, &length));
  CHECK(length > 0);
  kolo_state* const state = part_of(checkpoint, KOLO_SHARED_PART, "model");
  CHECK_OK(kolo_state_tensors(state, &count));
  CHECK(count == 2);
  CHECK_OK(kolo_state_tensor_name(state, 1, text, sizeof text, &length));
  CHECK(strcmp(text, "weight") == 0 && length == 6);
  CHECK_OK(kolo_state_tensor_shape(state, 1, &dtype, &dimensions, lengths, 2));
  CHECK(dtype == KOLO_F32 && dimensions == 2 && lengths[0] == 200 && lengths[1] == 200);
  CHECK_ERROR(kolo_state_tensor_shape(state, 1, &dtype, &dimensions, lengths, 1),
              KOLO_INVALID_ARGUMENT, "there is room for 1");
  CHECK_ERROR(kolo_state_tensor_name(state, 2, text, sizeof text, NULL), KOLO_INVALID_ARGUMENT,
              "tensor 2 of 2");
  CHECK_OK(kolo_state_text(state, "note", text, sizeof text, &length));
  CHECK(strcmp(text, "a longe") == 0 && length == 13);
  CHECK_ERROR(kolo_state_text(state, "nota", text, sizeof text, NULL), KOLO_INVALID_ARGUMENT,
              "no text 'nota'");
  fill(-1.0);
  load(state, model, 2);
  load(part_of(checkpoint, KOLO_SHARED_PART, "raw"), &raw, 1);
  check_shared(value);
  for (int rank = 0; rank < n; ++rank) {
    load(part_of(checkpoint, rank, "mine"), &mine, 1);
    for (int i = 0; i < 2; ++i) CHECK(own[i] == (int32_t)(value + 10 * rank + i));
  }
  CHECK_OK(kolo_checkpoint_free(checkpoint));
}

static kolo_checkpointer* checkpointer_in(const char* directory) {
  kolo_checkpointer_options options = KOLO_CHECKPOINTER_OPTIONS;
  kolo_checkpointer* checkpointer;
  options.directory = directory;
  options.prefix = "c";
  options.best = KOLO_MAXIMUM;
  CHECK_OK(kolo_checkpointer_create(&options, &checkpointer));
  return checkpointer;
}

static void test_saves(const char* directory, const kolo_part* parts) {
  const kolo_part rest = {"mine", &mine, 1, NULL, 0};
  kolo_checkpointer* const checkpointer = checkpointer_in(directory);
  kolo_save_options options = KOLO_SAVE_OPTIONS;
  kolo_checkpoint* checkpoint = (kolo_checkpoint*)&options;
  double metric = 0.0;
  int saves = -1;
  CHECK_OK(kolo_checkpointer_load_latest(checkpointer, &checkpoint));
  CHECK(checkpoint == NULL);
  options.per_rank = &rest;
  options.per_rank_count = 1;
  fill(1.0);
  CHECK_OK(kolo_checkpointer_save(checkpointer, 1, parts, 2, &options));
  CHECK_OK(kolo_checkpointer_load_best(checkpointer, &checkpoint));
  CHECK(checkpoint == NULL);
  options.has_metric = 1;
  for (int step = 2; step <= 4; ++step) {
    fill(step);
    options.metric = step == 2 ? 0.75 : 0.5;
    CHECK_OK(kolo_checkpointer_save_async(checkpointer, step, parts, 2, &options, &saves));
    CHECK(saves == 1);
    fill(-7.0); /* the copy is made */
  }
  CHECK_OK(kolo_checkpointer_wait(checkpointer));
  CHECK_OK(kolo_checkpointer_wait(checkpointer));
  CHECK_OK(kolo_checkpointer_load_latest(checkpointer, &checkpoint));
  check_contents(checkpoint, 4, 4.0);
  CHECK_OK(kolo_checkpointer_load_best(checkpointer, &checkpoint));
  CHECK_OK(kolo_checkpoint_metric(checkpoint, &metric));
  CHECK(metric == 0.75);
  check_contents(checkpoint, 2, 2.0);
  CHECK_OK(kolo_checkpointer_save(checkpointer, 5, parts, 2, NULL));
  CHECK_OK(kolo_checkpointer_load_latest(checkpointer, &checkpoint));
  CHECK_ERROR(kolo_checkpoint_metric(checkpoint, &metric), KOLO_INVALID_ARGUMENT,
              "without a metric");
  CHECK_OK(kolo_checkpoint_free(checkpoint));
  CHECK_OK(kolo_checkpointer_free(checkpointer));
}

static void test_files(const char* directory) {
  const kolo_text note = {"format", "pt"};
  const kolo_named_tensor half = {"m.weight", model[0].tensor};
  kolo_load_options options = KOLO_LOAD_OPTIONS;
  char path[1000], merged[1000], text[8];
  size_t unmatched = 0, count = 0;
  kolo_state* state;
  kolo_checkpoint* checkpoint;
  snprintf(path, sizeof path, "%s/%d.safetensors", directory, me);
  fill(3.0);
  CHECK_OK(kolo_save_safetensors(path, &half, 1, &note, 1));
  fill(0.0);
  CHECK_OK(kolo_load_safetensors(path, &state));
  CHECK_OK(kolo_state_text(state, "format", text, sizeof text, NULL));
  CHECK(strcmp(text, "pt") == 0);
  CHECK_ERROR(kolo_state_load(state, model, 2, NULL, NULL), KOLO_INVALID_ARGUMENT, "weight");
  options.prefix = "m.";
  options.allow_unmatched = 1;
  CHECK_OK(kolo_state_load(state, model, 2, &options, &unmatched));
  CHECK(unmatched == 1 && weight[1] == 4.0f && moment[1] == 0.0);
  CHECK_OK(kolo_state_free(state));

  snprintf(path, sizeof path, "%s/c-0000000004", directory);
  snprintf(merged, sizeof merged, "%s/merged.safetensors", directory);
  if (me == 0) CHECK_OK(kolo_merge_checkpoint(path, merged, NULL));
  CHECK_OK(kolo_barrier(NULL));
  CHECK_OK(kolo_checkpoint_load(merged, &checkpoint));
  check_contents(checkpoint, 4, 4.0);
  snprintf(merged, sizeof merged, "%s/model-%d.safetensors", directory, me);
  CHECK_OK(kolo_merge_checkpoint(path, merged, "model"));
  CHECK_OK(kolo_load_safetensors(merged, &state));
  CHECK_OK(kolo_state_tensors(state, &count));
  CHECK(count == 2);
  load(state, model, 2);
}

static void test_wrong_arguments(const char* directory, const kolo_part* parts) {
  const kolo_part twice[2] = {parts[0], parts[0]};
  const kolo_part nulls = {"model", NULL, 1, NULL, 0};
  kolo_checkpointer_options options = KOLO_CHECKPOINTER_OPTIONS;
  kolo_checkpointer* checkpointer = NULL;
  kolo_checkpoint* checkpoint = NULL;
  CHECK_ERROR(kolo_checkpointer_create(NULL, &checkpointer), KOLO_INVALID_ARGUMENT,
              "`directory` is null");
  options.directory = directory;
  options.prefix = "a/b";
  CHECK_FAILS(kolo_checkpointer_create(&options, &checkpointer), KOLO_INVALID_ARGUMENT);
  options.prefix = "c";
  options.keep_last = 0;
  CHECK_FAILS(kolo_checkpointer_create(&options, &checkpointer), KOLO_INVALID_ARGUMENT);
  options.keep_last = 1;
  options.best = (kolo_goal)2;
  CHECK_ERROR(kolo_checkpointer_create(&options, &checkpointer), KOLO_INVALID_ARGUMENT, "no goal");
  CHECK(checkpointer == NULL);
  checkpointer = checkpointer_in(directory);
  CHECK_FAILS(kolo_checkpointer_save(checkpointer, -1, parts, 2, NULL), KOLO_INVALID_ARGUMENT);
  CHECK_ERROR(kolo_checkpointer_save(checkpointer, 1, NULL, 2, NULL), KOLO_INVALID_ARGUMENT,
              "`parts` is null");
  /* A mistake of one rank is an error on all. */
  CHECK_ERROR(kolo_checkpointer_save(checkpointer, 1, me == n - 1 ? twice : parts, 2, NULL),
              KOLO_INVALID_ARGUMENT, "two of `parts` are named 'model'");
  CHECK_ERROR(kolo_checkpointer_save_async(checkpointer, 1, me == 0 ? twice : parts, 2, NULL, NULL),
              KOLO_INVALID_ARGUMENT, "two of `parts` are named 'model'");
  CHECK_ERROR(kolo_checkpointer_save(checkpointer, 1, &nulls, 1, NULL), KOLO_INVALID_ARGUMENT,
              "`tensors` is null");
  CHECK_FAILS(kolo_checkpointer_load_latest(checkpointer, NULL), KOLO_INVALID_ARGUMENT);
  CHECK_FAILS(kolo_checkpointer_load_latest(NULL, &checkpoint), KOLO_INVALID_ARGUMENT);
  CHECK_FAILS(kolo_checkpoint_load(NULL, &checkpoint), KOLO_INVALID_ARGUMENT);
  CHECK_OK(kolo_checkpointer_free(checkpointer));
  CHECK_FAILS(kolo_checkpointer_wait(checkpointer), KOLO_INVALID_ARGUMENT);
}

static void test_wrong_tensors(void) {
  const kolo_named_tensor same[2] = {model[0], model[0]};
  const kolo_text nameless = {NULL, "x"};
  kolo_named_tensor wrong = model[0];
  CHECK_ERROR(kolo_save_safetensors("x", same, 2, NULL, 0), KOLO_INVALID_ARGUMENT, "is repeated");
  wrong.tensor.data = NULL;
  CHECK_ERROR(kolo_save_safetensors("x", &wrong, 1, NULL, 0), KOLO_INVALID_ARGUMENT,
              "the memory of 'weight' is null");
  wrong.tensor = vector_of(moment, KOLO_F64, &(int64_t){-1});
  CHECK_ERROR(kolo_save_safetensors("x", &wrong, 1, NULL, 0), KOLO_INVALID_ARGUMENT,
              "'weight' has a negative length");
  wrong.tensor =
      (kolo_tensor){moment, KOLO_F64, {KOLO_CPU, 0}, 2, (int64_t[]){1LL << 40, 1LL << 40}};
  CHECK_ERROR(kolo_save_safetensors("x", &wrong, 1, NULL, 0), KOLO_INVALID_ARGUMENT,
              "too many elements");
  wrong.tensor = (kolo_tensor){moment, KOLO_F64, {KOLO_CUDA, 0}, 1, &five};
  CHECK_ERROR(kolo_save_safetensors("x", &wrong, 1, NULL, 0), KOLO_INVALID_ARGUMENT, "GPU");
  CHECK_ERROR(kolo_save_safetensors("x", NULL, 0, &nameless, 1), KOLO_INVALID_ARGUMENT,
              "`name` is null");
  CHECK(kolo_last_checkpoint_fault() == KOLO_FAULT_NONE);
}

static void test_unusable_checkpoints(const char* directory, const kolo_part* parts) {
  kolo_checkpointer* const checkpointer = checkpointer_in(directory);
  kolo_checkpoint* checkpoint = NULL;
  kolo_state* state = NULL;
  CHECK_FAILS(kolo_load_safetensors("/no/such/file", &state), KOLO_CHECKPOINT_ERROR);
  CHECK(kolo_last_checkpoint_fault() == KOLO_FAULT_MISSING && state == NULL);
  CHECK_FAILS(kolo_checkpoint_load("/no/such/file", &checkpoint), KOLO_CHECKPOINT_ERROR);
  CHECK_FAILS(kolo_checkpointer_save(checkpointer, 10 + (me == 0 && n > 1), parts, 2, NULL),
              n > 1 ? KOLO_INVALID_ARGUMENT : KOLO_OK);
  CHECK_OK(kolo_checkpointer_load_latest(checkpointer, &checkpoint));
  CHECK_FAILS(kolo_checkpoint_part(checkpoint, KOLO_SHARED_PART, "medel", &state),
              KOLO_CHECKPOINT_ERROR);
  CHECK(kolo_last_checkpoint_fault() == KOLO_FAULT_INCOMPLETE);
  CHECK_ERROR(kolo_checkpoint_part(checkpoint, 0, "model", &state), KOLO_CHECKPOINT_ERROR,
              "no part 'model' of rank 0");
  CHECK_ERROR(kolo_checkpoint_part(checkpoint, n, "mine", &state), KOLO_INVALID_ARGUMENT,
              "has no rank");
  CHECK_FAILS(kolo_checkpoint_part(checkpoint, -2, "mine", &state), KOLO_INVALID_ARGUMENT);
  CHECK_OK(kolo_checkpoint_free(checkpoint));
  CHECK_FAILS(kolo_checkpoint_free(checkpoint), KOLO_INVALID_ARGUMENT);
  CHECK_ERROR(kolo_state_free((kolo_state*)checkpointer), KOLO_INVALID_ARGUMENT, "no state");
  CHECK_OK(kolo_checkpointer_free(checkpointer));
}

int main(int argc, char** argv) {
  const kolo_text note = {"note", "a longer note"};
  const kolo_named_tensor tensors[4] = {
      {"weight", {weight, KOLO_F32, {KOLO_CPU, 0}, 2, shape}},
      {"moment", vector_of(moment, KOLO_F64, &five)},
      {"", vector_of(bytes, KOLO_U8, &three)},
      {"own", vector_of(own, KOLO_I32, &two)},
  };
  const kolo_part parts[2] = {{"model", model, 2, &note, 1}, {"raw", &raw, 1, NULL, 0}};
  kolo_checkpoint* checkpoint;
  CHECK(argc > 1);
  memcpy(model, tensors, sizeof model);
  raw = tensors[2];
  mine = tensors[3];
  CHECK_OK(kolo_init(argc, argv, NULL, 0));
  CHECK_OK(kolo_rank(&me));
  CHECK_OK(kolo_size(&n));
  if (argc > 2) {
    kolo_checkpointer* const checkpointer = checkpointer_in(argv[1]);
    if (me < n - 1) {
      CHECK_FAILS(kolo_checkpointer_save(checkpointer, 1, parts, 2, NULL), KOLO_PEER_LEFT);
      fprintf(stderr, "rank %d cannot save\n", me);
    }
    CHECK_OK(kolo_checkpointer_free(checkpointer));
    return kolo_shutdown() != KOLO_OK;
  }
  test_saves(argv[1], parts);
  test_files(argv[1]);
  test_wrong_arguments(argv[1], parts);
  test_wrong_tensors();
  test_unusable_checkpoints(argv[1], parts);
  CHECK_OK(kolo_shutdown());
  CHECK_FAILS(kolo_checkpoint_load(argv[1], &checkpoint), KOLO_NOT_INITIALIZED);
  if (me == 0) printf("all checkpoints are right\n");
  return 0;
}
