// The C API for Java: dev.satchel.Native. Texts cross as UTF-8 bytes: Java's own form of UTF-8 has
// other bytes for zero and for characters beyond U+FFFF.
#include <jni.h>

#include <cstdint>
#include <string>
#include <vector>

#include "../capi/satchel.h"

namespace {

// Throws dev.satchel.SatchelException with what the library says.
void raise(JNIEnv* env, satchel_status status) {
  const auto text = [&](const char* utf8) {
    const auto size = static_cast<jsize>(std::char_traits<char>::length(utf8));
    jbyteArray bytes = env->NewByteArray(size);
    if (bytes != nullptr)
      env->SetByteArrayRegion(bytes, 0, size, reinterpret_cast<const jbyte*>(utf8));
    return bytes;
  };
  jclass type = env->FindClass("dev/satchel/SatchelException");
  if (type == nullptr) return;  // an exception of Java's own is on its way
  jmethodID make = env->GetMethodID(type, "<init>", "(I[B[B)V");
  if (make == nullptr) return;
  jobject error = env->NewObject(type, make, static_cast<jint>(status),
                                 text(satchel_error_message()), text(satchel_error_advice()));
  if (error != nullptr) env->Throw(static_cast<jthrowable>(error));
}

// Whether it went well; if not, an exception is on its way.
bool well(JNIEnv* env, satchel_status status) {
  if (status == SATCHEL_OK) return true;
  raise(env, status);
  return false;
}

std::string string_of(JNIEnv* env, jbyteArray bytes) {
  if (bytes == nullptr) return {};
  std::string text(static_cast<size_t>(env->GetArrayLength(bytes)), '\0');
  env->GetByteArrayRegion(bytes, 0, static_cast<jsize>(text.size()),
                          reinterpret_cast<jbyte*>(text.data()));
  return text;
}

jbyteArray bytes_of(JNIEnv* env, const char* data, size_t size) {
  jbyteArray bytes = env->NewByteArray(static_cast<jsize>(size));
  if (bytes != nullptr)
    env->SetByteArrayRegion(bytes, 0, static_cast<jsize>(size),
                            reinterpret_cast<const jbyte*>(data));
  return bytes;
}

template <typename T>
T* handle(jlong number) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(number));
}

jlong number(const void* handle) { return static_cast<jlong>(reinterpret_cast<uintptr_t>(handle)); }

}  // namespace

#define SATCHEL_JNI(type, name) extern "C" JNIEXPORT type JNICALL Java_dev_satchel_Native_##name

SATCHEL_JNI(jlong, modelOpen)
(JNIEnv* env, jclass, jbyteArray path, jint threads, jlong cache_memory, jboolean verify,
 jbyteArray target) {
  const std::string where = string_of(env, target);
  satchel_model_options options{};
  if (target != nullptr) options.target = where.c_str();
  options.size = sizeof options;
  options.threads = static_cast<uint32_t>(threads);
  options.cache_memory = static_cast<uint64_t>(cache_memory);
  options.verify = verify ? 1 : 0;
  satchel_model* model = nullptr;
  well(env, satchel_model_open(string_of(env, path).c_str(), &options, &model));
  return number(model);
}

SATCHEL_JNI(void, modelClose)(JNIEnv*, jclass, jlong model) {
  satchel_model_close(handle<satchel_model>(model));
}

SATCHEL_JNI(jlongArray, modelInfo)(JNIEnv* env, jclass, jlong model) {
  satchel_model_info info{};
  info.size = sizeof info;
  if (!well(env, satchel_model_get_info(handle<satchel_model>(model), &info))) return nullptr;
  const jlong values[] = {info.context, info.vocabulary, info.has_chat_template, info.threads,
                          static_cast<jlong>(info.file_size)};
  jlongArray array = env->NewLongArray(5);
  if (array != nullptr) env->SetLongArrayRegion(array, 0, 5, values);
  return array;
}

SATCHEL_JNI(jbyteArray, modelMetadata)(JNIEnv* env, jclass, jlong model) {
  const char* json = nullptr;
  if (!well(env, satchel_model_metadata(handle<satchel_model>(model), &json))) return nullptr;
  return bytes_of(env, json, std::char_traits<char>::length(json));
}

SATCHEL_JNI(jintArray, tokenize)(JNIEnv* env, jclass, jlong model, jbyteArray text, jint flags) {
  const std::string given = string_of(env, text);
  std::vector<uint32_t> tokens(given.size() + 8);
  size_t count = 0;
  for (int turn = 0; turn < 2; ++turn) {  // a second time if there are more
    if (!well(env,
              satchel_tokenize(handle<satchel_model>(model), given.data(), given.size(),
                               static_cast<uint32_t>(flags), tokens.data(), tokens.size(), &count)))
      return nullptr;
    if (count <= tokens.size()) break;
    tokens.resize(count);
  }
  jintArray array = env->NewIntArray(static_cast<jsize>(count));
  if (array != nullptr)
    env->SetIntArrayRegion(array, 0, static_cast<jsize>(count),
                           reinterpret_cast<const jint*>(tokens.data()));
  return array;
}

SATCHEL_JNI(jbyteArray, detokenize)
(JNIEnv* env, jclass, jlong model, jintArray tokens, jint flags) {
  std::vector<uint32_t> given(static_cast<size_t>(env->GetArrayLength(tokens)));
  env->GetIntArrayRegion(tokens, 0, static_cast<jsize>(given.size()),
                         reinterpret_cast<jint*>(given.data()));
  std::string text(given.size() * 8 + 8, '\0');
  size_t length = 0;
  for (int turn = 0; turn < 2; ++turn) {
    if (!well(env,
              satchel_detokenize(handle<satchel_model>(model), given.data(), given.size(),
                                 static_cast<uint32_t>(flags), text.data(), text.size(), &length)))
      return nullptr;
    if (length <= text.size()) break;
    text.resize(length);
  }
  return bytes_of(env, text.data(), length);
}

SATCHEL_JNI(jlong, sessionOpen)(JNIEnv* env, jclass, jlong model, jbyteArray adapter) {
  satchel_session* session = nullptr;
  const std::string name = string_of(env, adapter);
  well(env, satchel_session_open(handle<satchel_model>(model),
                                 adapter == nullptr ? nullptr : name.c_str(), &session));
  return number(session);
}

SATCHEL_JNI(void, sessionClose)(JNIEnv*, jclass, jlong session) {
  satchel_session_close(handle<satchel_session>(session));
}

SATCHEL_JNI(void, sessionClear)(JNIEnv* env, jclass, jlong session) {
  well(env, satchel_session_clear(handle<satchel_session>(session)));
}

SATCHEL_JNI(void, addMessage)
(JNIEnv* env, jclass, jlong session, jbyteArray role, jbyteArray content) {
  well(env,
       satchel_session_add_message(handle<satchel_session>(session), string_of(env, role).c_str(),
                                   string_of(env, content).c_str()));
}

// `numbers`: temperature, top-p, min-p, penalties of repetition, frequency and presence.
SATCHEL_JNI(jlong, begin)
(JNIEnv* env, jclass, jlong session, jbyteArray text, jboolean chats, jint max_new_tokens,
 jint given, jdoubleArray numbers, jint top_k, jlong seed, jobjectArray stop, jboolean slide) {
  jdouble chosen[6] = {};
  env->GetDoubleArrayRegion(numbers, 0, 6, chosen);
  if (env->ExceptionCheck()) return 0;
  std::vector<std::string> texts;
  for (jsize i = 0; i < env->GetArrayLength(stop); ++i) {
    auto one = static_cast<jbyteArray>(env->GetObjectArrayElement(stop, i));
    texts.push_back(string_of(env, one));
    env->DeleteLocalRef(one);
  }
  std::vector<const char*> stops;
  for (const std::string& one : texts) stops.push_back(one.c_str());
  satchel_generation_options options{};
  options.size = sizeof options;
  options.max_new_tokens = static_cast<uint32_t>(max_new_tokens);
  options.given = static_cast<uint32_t>(given);
  options.temperature = chosen[0];
  options.top_k = static_cast<uint32_t>(top_k);
  options.top_p = chosen[1];
  options.min_p = chosen[2];
  options.repetition_penalty = chosen[3];
  options.frequency_penalty = chosen[4];
  options.presence_penalty = chosen[5];
  options.seed = static_cast<uint64_t>(seed);
  options.stop = stops.data();
  options.stop_count = stops.size();
  options.slide = slide ? 1 : 0;
  const std::string prompt = string_of(env, text);
  const auto start = chats ? satchel_chat : satchel_complete;
  satchel_generation* generation = nullptr;
  well(env, start(handle<satchel_session>(session), prompt.data(), prompt.size(), &options,
                  &generation));
  return number(generation);
}

// Null when there is no more.
SATCHEL_JNI(jbyteArray, next)(JNIEnv* env, jclass, jlong generation) {
  const char* piece = nullptr;
  size_t length = 0;
  const satchel_status status =
      satchel_next(handle<satchel_generation>(generation), &piece, &length);
  if (status == SATCHEL_END || !well(env, status)) return nullptr;
  return bytes_of(env, piece, length);
}

// `stop_reason` gets the reason. Tokens of the prompt, reused and new ones; seconds of prefill,
// decoding and to the first token.
SATCHEL_JNI(jdoubleArray, stats)
(JNIEnv* env, jclass, jlong generation, jobjectArray stop_reason) {
  satchel_generation_stats stats{};
  stats.size = sizeof stats;
  if (!well(env, satchel_generation_get_stats(handle<satchel_generation>(generation), &stats)))
    return nullptr;
  env->SetObjectArrayElement(
      stop_reason, 0,
      bytes_of(env, stats.stop_reason, std::char_traits<char>::length(stats.stop_reason)));
  const jdouble values[] = {static_cast<jdouble>(stats.prompt_tokens),
                            static_cast<jdouble>(stats.reused_tokens),
                            static_cast<jdouble>(stats.new_tokens),
                            stats.prefill_s,
                            stats.decode_s,
                            stats.ttft_s};
  jdoubleArray array = env->NewDoubleArray(6);
  if (array != nullptr) env->SetDoubleArrayRegion(array, 0, 6, values);
  return array;
}

SATCHEL_JNI(void, generationClose)(JNIEnv*, jclass, jlong generation) {
  satchel_generation_close(handle<satchel_generation>(generation));
}

SATCHEL_JNI(jbyteArray, version)(JNIEnv* env, jclass) {
  const char* text = satchel_version();
  return bytes_of(env, text, std::char_traits<char>::length(text));
}
