// KVLIFT_SANITIZED is defined in builds with AddressSanitizer or ThreadSanitizer, which bring their
// own malloc and their own shadow memory.
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define KVLIFT_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KVLIFT_SANITIZED 1
#endif
