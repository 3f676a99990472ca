/* llama.cpp's tokenizer, for tools/tokenizer_golden.py:
 *     cc -O2 tools/llama_tokenize.c -lllama -o llama_tokenize
 *     llama_tokenize model.gguf < LINES
 * Each line comes as its length (32 bits, the machine's order) and its bytes. Prints the seconds
 * that it took to encode all of them, and how many tokens they have. */
#include <llama.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void quiet(enum ggml_log_level level, const char *text, void *data) {
  (void)level, (void)text, (void)data;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  llama_log_set(quiet, NULL);
  struct llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  struct llama_model *model = llama_model_load_from_file(argv[1], params);
  if (model == NULL) return 1;
  const struct llama_vocab *vocab = llama_model_get_vocab(model);
  double seconds = 0;
  long tokens = 0;
  uint32_t length;
  while (fread(&length, sizeof length, 1, stdin) == 1) {
    char *line = malloc(length + 1);
    llama_token *found = malloc((length + 16) * sizeof *found);
    if (fread(line, 1, length, stdin) != length) return 1;
    const double began = now();
    const int32_t count =
        llama_tokenize(vocab, line, (int32_t)length, found, (int32_t)length + 16, false, true);
    seconds += now() - began;
    if (count < 0) return 1;
    tokens += count;
    free(line);
    free(found);
  }
  printf("%.6f %ld\n", seconds, tokens);
  return 0;
}
