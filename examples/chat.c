/* A conversation in the terminal: cc chat.c $(pkg-config --cflags --libs satchel) -o chat */
#include <satchel.h>
#include <stdio.h>
#include <string.h>

static int failed(void) {
  fprintf(stderr, "%s. %s\n", satchel_error_message(), satchel_error_advice());
  return 1;
}

int main(int argc, char **argv) {
  satchel_model *model = NULL;
  satchel_session *session = NULL;
  satchel_generation_options options = {sizeof options};
  char line[4096];
  options.max_new_tokens = 200;
  if (satchel_model_open(argc > 1 ? argv[1] : NULL, NULL, &model)) return failed();
  if (satchel_session_open(model, NULL, &session)) return failed();

  while (fgets(line, sizeof line, stdin)) {
    satchel_generation *answer = NULL;
    satchel_status status;
    const char *piece;
    size_t length;
    line[strcspn(line, "\n")] = 0;
    if (satchel_chat(session, line, strlen(line), &options, &answer)) return failed();
    while ((status = satchel_next(answer, &piece, &length)) == SATCHEL_OK) {
      fwrite(piece, 1, length, stdout);
      fflush(stdout);
    }
    if (status != SATCHEL_END) return failed();
    putchar('\n');
    satchel_generation_close(answer);
  }
  satchel_session_close(session);
  satchel_model_close(model);
  return 0;
}
