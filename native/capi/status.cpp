#include "status.h"

#include <new>

#include "../llm/errors.h"
#include "../vision/image.h"

namespace satchel::capi {

LastError& last_error() {
  thread_local LastError error;
  return error;
}

namespace {

satchel_status failed(satchel_status code, const char* message, const std::string& advice) {
  LastError& error = last_error();
  error.code = code;
  try {
    error.message = message;
    error.advice = advice;
  } catch (...) {  // no memory for the message
    error.message.clear();
    error.advice.clear();
  }
  return code;
}

}  // namespace

satchel_status remember_failure() noexcept {
  try {
    throw;
  } catch (const Misuse& e) {
    return failed(SATCHEL_MISUSE, e.what(), "Check the order of the calls.");
  } catch (const ChecksumError& e) {
    return failed(SATCHEL_WRONG_CHECKSUM, e.what(), e.advice);
  } catch (const FormatError& e) {
    return failed(SATCHEL_INVALID_FILE, e.what(), e.advice);
  } catch (const ContextFullError& e) {
    return failed(SATCHEL_CONTEXT_FULL, e.what(), e.advice);
  } catch (const TemplateError& e) {
    return failed(SATCHEL_TEMPLATE, e.what(), e.advice);
  } catch (const TokenizerError& e) {
    return failed(SATCHEL_TOKENIZER, e.what(), e.advice);
  } catch (const vision::ImageError& e) {
    return failed(SATCHEL_INVALID_IMAGE, e.what(), e.advice);
  } catch (const AdvisedError& e) {
    return failed(SATCHEL_IMPOSSIBLE, e.what(), e.advice);
  } catch (const CacheFullError& e) {
    return failed(SATCHEL_CACHE_FULL, e.what(), "Close sessions that are not needed.");
  } catch (const ExecutionError& e) {
    return failed(SATCHEL_EXECUTION, e.what(), "Check the program with satchel-run verify.");
  } catch (const std::bad_alloc&) {
    return failed(SATCHEL_OUT_OF_MEMORY, "there is not enough memory", "Use a smaller model.");
  } catch (const std::exception& e) {
    return failed(SATCHEL_INTERNAL, e.what(), "Please report this.");
  } catch (...) {
    return failed(SATCHEL_INTERNAL, "an unknown error", "Please report this.");
  }
}

}  // namespace satchel::capi
