/* Preloaded into a process, it lets writing to files whose path holds $FAULT_PATH fail with errno $FAULT_ERRNO, in
   write or, where $FAULT_CALL is "fsync", not before fsync: as a quota or a dying disk does. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fails(int file, const char *call) {
    char link[64], path[4096];
    const char *wanted = getenv("FAULT_CALL"), *place = getenv("FAULT_PATH");
    if (!place || !wanted || strcmp(wanted, call)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    if (!strstr(path, place)) return 0;
    errno = atoi(getenv("FAULT_ERRNO"));
    return 1;
}

ssize_t write(int file, const void *data, size_t size) {
    static ssize_t (*next)(int, const void *, size_t);
    if (!next) next = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    return fails(file, "write") ? -1 : next(file, data, size);
}

int fsync(int file) {
    static int (*next)(int);
    if (!next) next = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return fails(file, "fsync") ? -1 : next(file);
}
