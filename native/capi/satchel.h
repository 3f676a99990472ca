/* Satchel's C API: language models and classifiers from .satchel programs, without Python.
 *
 * Handles are made by *_open and given back by *_close. A handle that was
 * closed, or is of another kind, is SATCHEL_MISUSE and never a crash. Any
 * thread may call anything; calls with one session wait for each other. Texts
 * are UTF-8. Strings that a call returns belong to the library.
 *
 * Every call that can fail returns a status. What happened last in this thread,
 * and what to do about it, is told by satchel_error_message() and
 * satchel_error_advice().
 *
 * Functions and fields are added at the end and never changed within a version
 * of the API: set `size` of a struct to its sizeof, and what you do not know of
 * is as if it were zero.
 */
#ifndef SATCHEL_H
#define SATCHEL_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32) && defined(SATCHEL_SHARED)
#define SATCHEL_API __declspec(dllexport)
#elif defined(__GNUC__)
#define SATCHEL_API __attribute__((visibility("default")))
#else
#define SATCHEL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define SATCHEL_API_VERSION 1

typedef enum satchel_status {
  SATCHEL_OK = 0,
  SATCHEL_END = 1,            /* a generation has no more text */
  SATCHEL_INVALID_FILE = 2,   /* the file is not a valid program */
  SATCHEL_WRONG_CHECKSUM = 3, /* its bytes are not those that were written */
  SATCHEL_IMPOSSIBLE = 4,     /* the program or the options do not allow it */
  SATCHEL_CONTEXT_FULL = 5,   /* the text is too long for the program */
  SATCHEL_CACHE_FULL = 6,     /* the conversations take all memory that caches may have */
  SATCHEL_EXECUTION = 7,      /* the model could not be run */
  SATCHEL_TOKENIZER = 8,      /* a text or tokens that the tokenizer cannot take */
  SATCHEL_TEMPLATE = 9,       /* the chat template does not take these messages */
  SATCHEL_MISUSE = 10,        /* a null pointer, or a handle that is not (or no longer) one */
  SATCHEL_OUT_OF_MEMORY = 11,
  SATCHEL_INTERNAL = 12,     /* a mistake of Satchel's own */
  SATCHEL_INVALID_IMAGE = 13 /* a picture is none, or is damaged */
} satchel_status;

typedef struct satchel_model satchel_model;
typedef struct satchel_session satchel_session;
typedef struct satchel_generation satchel_generation;

/* Of the library that is linked: SATCHEL_API_VERSION when it was built, and
 * Satchel's version. */
SATCHEL_API uint32_t satchel_api_version(void);
SATCHEL_API const char* satchel_version(void);

/* Of the last call in this thread that failed; empty if none did. */
SATCHEL_API satchel_status satchel_error_code(void);
SATCHEL_API const char* satchel_error_message(void);
SATCHEL_API const char* satchel_error_advice(void);

/* ---- Models ---- */

typedef struct satchel_model_options {
  size_t size;
  uint32_t threads;      /* 0: one for each core */
  uint64_t cache_memory; /* bytes for the caches of all conversations; 0: half
                            of the machine's */
  uint32_t verify;       /* 1: check every checksum, the weights' too, before use */
  const char* target;    /* NULL or cpu: the CPU. vulkan, vulkan:DEVICE or vulkan:DEVICE:LAYERS: a
                            GPU, and the CPU for what it cannot do or has no memory for. A Qualcomm
                            NPU that the file is for, as qnn:SM8750: its libraries are loaded into
                            this process, so open files that you trust */
} satchel_model_options;

typedef struct satchel_model_info {
  size_t size;
  uint32_t context;    /* the most tokens of a text */
  uint32_t vocabulary; /* how many tokens the tokenizer has */
  uint32_t has_chat_template;
  uint32_t threads;
  uint64_t file_size;
} satchel_model_info;

/* `options` may be NULL. */
SATCHEL_API satchel_status satchel_model_open(const char* path,
                                              const satchel_model_options* options,
                                              satchel_model** model);
SATCHEL_API void satchel_model_close(satchel_model* model);
SATCHEL_API satchel_status satchel_model_get_info(satchel_model* model, satchel_model_info* info);
/* What the program says of itself, a JSON document; valid until the model is
 * closed. */
SATCHEL_API satchel_status satchel_model_metadata(satchel_model* model, const char** json);

/* ---- Tokens ---- */

#define SATCHEL_ADD_SURROUNDINGS 1u /* tokenize: BOS and the like, as the tokenizer does */
#define SATCHEL_PLAIN_TEXT 2u       /* tokenize: names of special tokens are just text */
#define SATCHEL_SHOW_SPECIAL 4u     /* detokenize: special tokens too */

/* Writes at most `capacity` tokens or bytes and tells how many there are; call
 * it with 0 first if you do not know. A text's length is in bytes, and it does
 * not end with a zero. */
SATCHEL_API satchel_status satchel_tokenize(satchel_model* model, const char* text, size_t length,
                                            uint32_t flags, uint32_t* tokens, size_t capacity,
                                            size_t* count);
SATCHEL_API satchel_status satchel_detokenize(satchel_model* model, const uint32_t* tokens,
                                              size_t count, uint32_t flags, char* text,
                                              size_t capacity, size_t* length);

/* ---- Conversations ---- */

/* `adapter` is one of the program's, or NULL. What texts of a session have in
 * common is not read again. */
SATCHEL_API satchel_status satchel_session_open(satchel_model* model, const char* adapter,
                                                satchel_session** session);
SATCHEL_API void satchel_session_close(satchel_session* session);
/* Adds a message ("system", "user" or "assistant") to the conversation without
 * answering it. */
SATCHEL_API satchel_status satchel_session_add_message(satchel_session* session, const char* role,
                                                       const char* content);
/* Begins a new conversation; the cache of what it has in common with the old
 * one is kept. */
SATCHEL_API satchel_status satchel_session_clear(satchel_session* session);

typedef struct satchel_generation_options {
  size_t size;
  uint32_t max_new_tokens;   /* 0: where the answer or the context ends */
  uint32_t given;            /* which of the next are given, SATCHEL_GIVEN_*; others are
                                the model's */
  double temperature;        /* 0 is greedy */
  uint32_t top_k;            /* 0: all */
  double top_p;              /* 1: all */
  double min_p;              /* 0: all */
  double repetition_penalty; /* 1: none */
  double frequency_penalty;  /* 0: none, as the next */
  double presence_penalty;
  uint64_t seed;
  const char* const* stop; /* texts that end the answer */
  size_t stop_count;
  uint32_t slide; /* 1: when the context is full, forget the oldest half and go on */
} satchel_generation_options;

#define SATCHEL_GIVEN_TEMPERATURE 1u
#define SATCHEL_GIVEN_TOP_K 2u
#define SATCHEL_GIVEN_TOP_P 4u
#define SATCHEL_GIVEN_MIN_P 8u
#define SATCHEL_GIVEN_REPETITION_PENALTY 16u
#define SATCHEL_GIVEN_SEED 32u

typedef struct satchel_generation_stats {
  size_t size;
  uint32_t prompt_tokens, reused_tokens, new_tokens, slides;
  double prefill_s, decode_s, ttft_s;
  const char* stop_reason; /* end_token, stop_string, max_new_tokens,
                              context_full, or empty */
} satchel_generation_stats;

/* Continues a text as it is. `options` may be NULL. Nothing is computed before
 * satchel_next. */
SATCHEL_API satchel_status satchel_complete(satchel_session* session, const char* text,
                                            size_t length,
                                            const satchel_generation_options* options,
                                            satchel_generation** generation);
/* Answers a message of the user, after all that was said before; the answer
 * joins the conversation when the next thing is said. */
SATCHEL_API satchel_status satchel_chat(satchel_session* session, const char* text, size_t length,
                                        const satchel_generation_options* options,
                                        satchel_generation** generation);
/* The next piece of text, valid until the next call with this generation, and
 * ended by a zero; SATCHEL_END when there is none. A session makes one text at
 * a time: one that is begun later ends those before it. */
SATCHEL_API satchel_status satchel_next(satchel_generation* generation, const char** piece,
                                        size_t* length);
SATCHEL_API satchel_status satchel_generation_get_stats(satchel_generation* generation,
                                                        satchel_generation_stats* stats);
SATCHEL_API void satchel_generation_close(satchel_generation* generation);

/* ---- Classes of pictures ---- */

typedef struct satchel_classifier satchel_classifier;

typedef struct satchel_class {
  const char* label; /* valid until the classifier is closed */
  uint32_t index;
  double probability;
} satchel_class;

/* A program that sorts pictures, as those of `satchel export torchvision:NAME` do. `options` may be
 * NULL; cache_memory is of no use here. */
SATCHEL_API satchel_status satchel_classifier_open(const char* path,
                                                   const satchel_model_options* options,
                                                   satchel_classifier** classifier);
SATCHEL_API void satchel_classifier_close(satchel_classifier* classifier);
/* The likeliest classes of a PNG or a JPEG, the file's bytes: at most `capacity` of them, and how
 * many these are. */
SATCHEL_API satchel_status satchel_classify(satchel_classifier* classifier, const void* file,
                                            size_t size, satchel_class* classes, size_t capacity,
                                            size_t* count);
/* The same of pixels, such as a camera's: red, green and blue, row by row without gaps. */
SATCHEL_API satchel_status satchel_classify_pixels(satchel_classifier* classifier,
                                                   const uint8_t* rgb, uint32_t width,
                                                   uint32_t height, satchel_class* classes,
                                                   size_t capacity, size_t* count);

#ifdef __cplusplus
}
#endif

#endif /* SATCHEL_H */
