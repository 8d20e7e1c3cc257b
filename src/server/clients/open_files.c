/* open_files.c: see open_files.h. */
#include "server/clients/open_files.h"
#include "lib/system/log.h"
#include "server/clients/client.h"
#include "server/clients/io_threads.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { RESERVED_FILES = 32 };

bool open_files_raise(void) {
    rlim_t wanted = (rlim_t)client_settings.maxclients + RESERVED_FILES + (rlim_t)io_threads_descriptors();
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return false;
    if (limit.rlim_cur >= wanted) return true;
    limit.rlim_cur = wanted;
    if (limit.rlim_max < wanted) limit.rlim_max = wanted;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static bool open_files_set(rlim_t files, rlim_t hard) {
    return setrlimit(RLIMIT_NOFILE, &(struct rlimit){files, files > hard ? files : hard}) == 0;
}

/* Raises the limit to the largest possible number of `wanted`, `wanted` - 16, ... that is greater than the present one.
 * Bisects these numbers: CONFIG SET maxclients may ask for billions. Returns the limit that is set. */
static rlim_t open_files_set_most(rlim_t wanted, const struct rlimit *limit) {
    enum { STEP = 16 };
    rlim_t refused = 0, possible = (wanted - limit->rlim_cur + STEP - 1) / STEP; /* steps below `wanted` */
    rlim_t best = limit->rlim_cur;
    while (possible - refused > 1) {
        rlim_t middle = refused + (possible - refused) / 2;
        if (open_files_set(wanted - middle * STEP, limit->rlim_max)) {
            possible = middle;
            best = wanted - middle * STEP;
        } else {
            refused = middle;
        }
    }
    return best;
}

void open_files_adjust(void) {
    const int reserved = RESERVED_FILES + io_threads_descriptors();
    rlim_t wanted = (rlim_t)client_settings.maxclients + (rlim_t)reserved;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) {
        log_warning("Unable to obtain the current NOFILE limit (%s), assuming 1024 and setting the max clients "
                    "configuration accordingly.",
                    strerror(errno));
        client_settings.maxclients = 1024 - reserved;
        return;
    }
    rlim_t before = limit.rlim_cur, best = wanted;
    if (before >= wanted) return;
    int error = 0;
    if (!open_files_set(wanted, limit.rlim_max)) {
        error = errno;
        /* The hard limit is the most that an unprivileged process may set. */
        bool to_hard = wanted > limit.rlim_max && limit.rlim_max > before;
        if (to_hard && open_files_set(limit.rlim_max, limit.rlim_max))
            best = limit.rlim_max;
        else
            best = open_files_set_most(to_hard ? limit.rlim_max : wanted, &limit);
    }
    if (best >= wanted) {
        log_notice("Increased maximum number of open files to %llu (it was originally set to %llu).",
                   (unsigned long long)wanted, (unsigned long long)before);
        return;
    }
    int64_t asked = client_settings.maxclients;
    if (best <= (rlim_t)reserved) {
        log_warning("Your current 'ulimit -n' of %llu is not enough for the server to start. Please increase your open "
                    "file limit to at least "
                    "%llu. Exiting.",
                    (unsigned long long)before, (unsigned long long)wanted);
        exit(1);
    }
    client_settings.maxclients = (int64_t)best - reserved;
    log_warning("You requested maxclients of %lld requiring at least %llu max file descriptors.", (long long)asked,
                (unsigned long long)wanted);
    log_warning("Server can't set maximum open files to %llu because of OS error: %s.", (unsigned long long)wanted,
                strerror(error));
    log_warning("Current maximum open files is %llu. maxclients has been reduced to %lld to compensate for low ulimit. "
                "If you need higher "
                "maxclients increase 'ulimit -n'.",
                (unsigned long long)best, (long long)client_settings.maxclients);
}
