/* What a vendor's library without a GPU does first in each of its functions, as the environment says:
 *   STUB_FAIL      "hipMalloc=2": that function returns 2; "hipMalloc=2@3": its third call does, once
 *   STUB_RECORD    a file that gets the name of each call
 *   STUB_LEFT      a file that gets what nobody has freed when the process ends (stub_left)
 * C and C++; each library that includes it counts its own calls. */
#ifndef TESSERA_TESTS_FAILING_H
#define TESSERA_TESTS_FAILING_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void stub_append(const char* variable, const char* line) {
  const char* const path = getenv(variable);
  FILE* const file = path ? fopen(path, "a") : NULL;
  if (file == NULL) return;
  fprintf(file, "%s\n", line);
  fclose(file);
}

/* Counts a call; the error that it is told to return, or 0. `name` lives for ever. */
static inline int stub_told(const char* name) {
  enum {
    MOST = 128
  };
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static const char* names[MOST];
  static int calls[MOST];
  pthread_mutex_lock(&mutex);
  int i = 0;
  while (i < MOST - 1 && names[i] != NULL && strcmp(names[i], name) != 0) ++i;
  names[i] = name;
  const int call = ++calls[i];
  stub_append("STUB_RECORD", name);
  pthread_mutex_unlock(&mutex);
  const char* const wish = getenv("STUB_FAIL");
  const size_t length = strlen(name);
  if (wish == NULL || strncmp(wish, name, length) != 0 || wish[length] != '=') return 0;
  char* end = NULL;
  const long error = strtol(wish + length + 1, &end, 10);
  return *end == '@' && atoi(end + 1) != call ? 0 : (int)error;
}

/* One line of counts, so that two runs can be compared. */
static inline void stub_left(size_t blocks, int pools, size_t streams, size_t events, int graphs) {
  char line[120];
  snprintf(line, sizeof line, "%zu blocks, %d pools, %zu streams, %zu events, %d graphs", blocks, pools, streams,
           events, graphs);
  stub_append("STUB_LEFT", line);
}

#endif
