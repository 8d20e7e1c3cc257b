/* Runs every test in a process of its own, a few seconds at most each, and counts. Arguments select tests by
 * a part of their name. Must itself be run by the launcher; the last line is "N passed, N failed". */
#include <signal.h>
#include <sys/wait.h>

#include "rig.h"

static struct test *first, **last = &first;

void test_add(struct test *test) {
    *last = test;
    last = &test->next;
}

static bool selected(const struct test *test, int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strstr(test->name, argv[i])) return true;
    return argc < 2;
}

static bool run(const struct test *test) {
    fflush(NULL);
    uint64_t start = now_us();
    pid_t pid = fork();
    if (!pid) {
        setpgid(0, 0); /* so that nothing a test started outlives it */
        alarm(30);
        test->run();
        exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    kill(-pid, SIGKILL);
    printf("%s %s (%d ms)\n", status ? "FAILED" : "ok    ", test->name, (int)((now_us() - start) / 1000));
    if (WIFSIGNALED(status)) printf("    killed by signal %d\n", WTERMSIG(status));
    return !status;
}

int main(int argc, char **argv) {
    int passed = 0, bad = 0;
    for (struct test *t = first; t; t = t->next) {
        if (!selected(t, argc, argv)) continue;
        if (run(t))
            passed++;
        else
            bad++;
    }
    printf("%d passed, %d failed\n", passed, bad);
    return bad != 0;
}
