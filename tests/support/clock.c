// A machine's clock for single processes: wall time is the machine's plus an offset read from a mapped file.
// Monotonic time is left alone. Waits until a wall time are turned back into the machine's, as a kernel whose clock
// was stepped would end them at the stepped time. (libfaketime fails sleeps on the monotonic clock with EINVAL.)
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static volatile long long *offset_s;
static const time_t WALL = 1000000000;  // a time since boot is smaller

__attribute__((constructor)) static void open_clock(void) {
    const char *path = getenv("TEST_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof *offset_s, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) offset_s = page;
}

static time_t offset(void) { return offset_s ? (time_t)*offset_s : 0; }

int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, at);
    if (!result && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec += offset();
    return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    if (at) { at->tv_sec = now.tv_sec; at->tv_usec = now.tv_nsec / 1000; }
    return result;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *at, int base) {
    return base == TIME_UTC && !clock_gettime(CLOCK_REALTIME, at) ? base : 0;
}

static const struct timespec *machines(const struct timespec *until, struct timespec *copy) {
    *copy = *until;
    if (copy->tv_sec > WALL) copy->tv_sec -= offset();
    return copy;
}

int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *until) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    struct timespec copy;
    if (!real) real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    return real(c, m, machines(until, &copy));
}

int pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t id, const struct timespec *until) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
    struct timespec copy;
    if (!real) real = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    return real(c, m, id, machines(until, &copy));
}

int cnd_timedwait(cnd_t *c, mtx_t *m, const struct timespec *until) {  // librdkafka's
    static int (*real)(cnd_t *, mtx_t *, const struct timespec *);
    struct timespec copy;
    if (!real) real = dlsym(RTLD_NEXT, "cnd_timedwait");
    return real(c, m, machines(until, &copy));
}

int sem_timedwait(sem_t *s, const struct timespec *until) {
    static int (*real)(sem_t *, const struct timespec *);
    struct timespec copy;
    if (!real) real = dlsym(RTLD_NEXT, "sem_timedwait");
    return real(s, machines(until, &copy));
}
