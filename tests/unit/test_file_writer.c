/* Files that a thread replaces: order, superseded contents, failing steps, crashes; locks of a file. */
#include "unit.h"
#include "lib/system/file_lock.h"
#include "lib/system/file_writer.h"
#include "lib/system/random.h"
#include "net/event_loop.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char directory[64], path[100], other_path[100];
static struct file_writer *writer;

/* The arguments of `done`. */
enum { RESULTS = 16 };
static struct file_written results[RESULTS];
static size_t count;
static void keep(void *context, const struct file_written *written) {
    assert_true(count < RESULTS);
    results[count++] = *written;
}

/* The writer's thread waits in `post` while the test holds this lock. */
static pthread_mutex_t post_lock = PTHREAD_MUTEX_INITIALIZER;
static void post(void *context) {
    pthread_mutex_lock(&post_lock);
    pthread_mutex_unlock(&post_lock);
}
static const struct file_writer_options options = {.mode = 0640, .thread_name = "writer", .post = post, .done = keep};

static int setup(void **state) {
    strcpy(directory, "/tmp/file-writer.XXXXXX");
    if (!mkdtemp(directory)) return -1;
    snprintf(path, sizeof path, "%s/nodes.conf", directory);
    snprintf(other_path, sizeof other_path, "%s/other", directory);
    count = 0;
    writer = file_writer_new(&options);
    return writer ? 0 : -1;
}
/* Removes the directory. Fails if a temporary file was left in it. */
static int teardown(void **state) {
    int left = 0;
    file_writer_free(writer);
    DIR *listing = opendir(directory);
    for (struct dirent *entry; listing && (entry = readdir(listing));) {
        char name[400];
        snprintf(name, sizeof name, "%s/%s", directory, entry->d_name);
        if (strstr(entry->d_name, ".tmp-")) left++;
        if (entry->d_name[0] != '.' && unlink(name) < 0) rmdir(name);
    }
    if (listing) closedir(listing);
    rmdir(directory);
    return left ? -1 : 0;
}

static uint64_t submit(const char *where, const char *text) {
    return file_writer_submit(writer, where, slice_of(text), true);
}
static void assert_content(const char *where, const char *expected) {
    char text[200];
    int fd = open(where, O_RDONLY);
    assert_true(fd >= 0);
    ssize_t len = read(fd, text, sizeof text - 1);
    assert_true(len >= 0);
    text[len] = '\0';
    close(fd);
    assert_string_equal(text, expected);
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, teardown)

FIXTURE_TEST(a_file_is_on_disk_when_its_ticket_is_done) {
    struct stat st;
    assert_int_equal(file_writer_last_ticket(writer), 0);
    uint64_t ticket = submit(path, "first");
    assert_int_equal(file_writer_last_ticket(writer), ticket);
    file_writer_wait(writer, ticket);
    assert_content(path, "first");
    assert_int_equal(count, 1);
    assert_int_equal(results[0].ticket, ticket);
    assert_int_equal(results[0].error, 0);
    assert_int_equal(results[0].len, 5);
    assert_int_equal(results[0].done, 5);
    assert_true(results[0].durable);
    for (int step = 0; step < FILE_STEP_UNLINK; step++) assert_true(results[0].step_us[step] > 0);
    assert_int_equal(results[0].step_us[FILE_STEP_UNLINK], 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);

    file_writer_wait(writer, file_writer_submit(writer, path, slice_of(""), false));
    assert_content(path, "");
    assert_false(results[1].durable);
    assert_int_equal(results[1].step_us[FILE_STEP_FSYNC], 0);
    assert_int_equal(results[1].step_us[FILE_STEP_DIR_FSYNC], 0);
}

FIXTURE_TEST(newer_content_replaces_what_has_not_begun) {
    pthread_mutex_lock(&post_lock);
    file_writer_wait(writer, submit(path, "1"));
    submit(path, "2");
    file_writer_submit(writer, path, slice_of("3"), false);
    submit(other_path, "4");
    submit(path, "5"); /* must not be on disk before 4 */
    assert_int_equal(file_writer_last_ticket(writer), 5);
    pthread_mutex_unlock(&post_lock);
    file_writer_wait(writer, 2);
    file_writer_wait(writer, 5);
    static const uint64_t tickets[] = {1, 3, 4, 5};
    assert_int_equal(count, 4);
    for (size_t i = 0; i < 4; i++) assert_int_equal(results[i].ticket, tickets[i]);
    assert_true(results[1].durable); /* since 2 was */
    assert_content(path, "5");
    assert_content(other_path, "4");
}

FIXTURE_TEST(the_end_of_the_writer_waits_for_what_was_submitted) {
    submit(path, "last");
    file_writer_free(writer);
    writer = NULL;
    assert_int_equal(count, 1);
    assert_content(path, "last");
}

FIXTURE_TEST(the_step_that_fails_is_reported) {
    char missing[200];
    snprintf(missing, sizeof missing, "%s/missing/file", directory);
    file_writer_wait(writer, submit(missing, "x"));
    assert_int_equal(results[0].error, -ENOENT);
    assert_string_equal(file_step_name(results[0].failed), "open");
    assert_int_equal(results[0].step_us[FILE_STEP_WRITE], 0);

    assert_int_equal(mkdir(other_path, 0700), 0);
    file_writer_wait(writer, submit(other_path, "x"));
    assert_int_equal(results[1].error, -EISDIR);
    assert_string_equal(file_step_name(results[1].failed), "rename");
    assert_int_equal(results[1].step_us[FILE_STEP_DIR_FSYNC], 0);
    assert_true(results[1].step_us[FILE_STEP_UNLINK] > 0);

    file_writer_wait(writer, submit(path, "the old content"));
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 10;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    file_writer_wait(writer, submit(path, "longer than ten bytes"));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(results[3].error, -EFBIG);
    assert_string_equal(file_step_name(results[3].failed), "write");
    assert_int_equal(results[3].done, 10);
    assert_int_equal(results[3].step_us[FILE_STEP_FSYNC], 0);
    assert_content(path, "the old content");

    file_writer_wait(writer, submit(path, "works again"));
    assert_int_equal(results[4].error, 0);
    assert_content(path, "works again");
}

/* A process that is killed at any moment leaves complete content, at least as new as the last completed one. */
static void crash_child(int to_parent) {
    struct file_written written;
    char text[5000];
    for (unsigned generation = 1;; generation++) {
        int len = snprintf(text, sizeof text, "%u ", generation);
        memset(text + len, 'x', sizeof text - (size_t)len);
        file_write(path, slice_make(text, sizeof text), true, 0644, NULL, &written);
        if (written.error || write(to_parent, &generation, sizeof generation) < 0) _exit(1);
    }
}
FIXTURE_TEST(a_crash_leaves_old_or_new_content) {
    unsigned crashes = 0;
    for (int round = 0; round < 30; round++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        if (child == 0) crash_child(ends[1]);
        assert_true(child > 0);
        close(ends[1]);
        unsigned known = 0, generation;
        assert_int_equal(read(ends[0], &known, sizeof known), sizeof known);
        usleep((useconds_t)random_below(3000));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        while (read(ends[0], &generation, sizeof generation) == sizeof generation) known = generation;
        close(ends[0]);

        char text[5001] = {0};
        int fd = open(path, O_RDONLY), used = 0;
        assert_true(fd >= 0);
        assert_int_equal(read(fd, text, sizeof text), 5000);
        close(fd);
        assert_int_equal(sscanf(text, "%u %n", &generation, &used), 1);
        assert_true(generation >= known);
        for (int i = used; i < 5000; i++) assert_int_equal(text[i], 'x');
        char command[200];
        snprintf(command, sizeof command, "rm -f %s.tmp-*", path);
        crashes += system(command) == 0;
    }
    assert_int_equal(crashes, 30);
}

/* As in a server: the thread posts to the loop, and the loop delivers. */
static struct owner {
    struct event_loop *loop;
    struct event_post post;
    struct file_writer *writer;
    uint64_t delivered;
} owner;
static void deliver(struct event_post *posted) {
    struct owner *o = container_of(posted, struct owner, post);
    file_writer_deliver(o->writer);
}
static void post_to_loop(void *context) {
    struct owner *o = context;
    event_loop_post(o->loop, &o->post);
}
static void take(void *context, const struct file_written *written) {
    struct owner *o = context;
    assert_true(written->ticket > o->delivered);
    assert_int_equal(written->error, 0);
    o->delivered = written->ticket;
}
FIXTURE_TEST(the_event_loop_gets_the_tickets) {
    owner = (struct owner){.loop = event_loop_new(), .post = {.run = deliver}};
    event_loop_take_posts(owner.loop);
    owner.writer = file_writer_new(
        &(struct file_writer_options){.mode = 0600, .post = post_to_loop, .done = take, .context = &owner});
    uint64_t ticket = 0;
    for (int i = 0; i < 200; i++) {
        ticket = file_writer_submit(owner.writer, i % 7 ? path : other_path, slice_of("x"), false);
        if (i % 3 == 0) event_loop_turn(owner.loop, 0);
        if (i % 50 == 0) file_writer_wait(owner.writer, ticket);
    }
    for (int turns = 0; owner.delivered < ticket && turns < 100000; turns++) event_loop_turn(owner.loop, 100);
    assert_int_equal(owner.delivered, ticket);
    file_writer_free(owner.writer);
    event_loop_free(owner.loop);
}

/* Takes the lock in another process; returns 0 or the error. */
static int take_elsewhere(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        struct file_lock lock;
        _exit(-file_lock_take(&lock, path));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WEXITSTATUS(status);
}
/* Checks the lock as Valkey does. */
static bool file_is_locked(void) {
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    bool locked = flock(fd, LOCK_EX | LOCK_NB) < 0;
    close(fd);
    return locked;
}

FIXTURE_TEST(one_process_at_a_time_has_the_file) {
    struct file_lock lock, again;
    assert_int_equal(file_lock_take(&lock, path), 0);
    assert_content(path, "");
    assert_int_equal(take_elsewhere(), EWOULDBLOCK);
    assert_int_equal(file_lock_take(&again, path), -EWOULDBLOCK);
    assert_true(file_is_locked());

    /* A writer that knows the lock moves it to the new file. */
    struct file_writer_options with_lock = options;
    with_lock.lock = &lock;
    file_writer_free(writer);
    writer = file_writer_new(&with_lock);
    file_writer_wait(writer, submit(path, "new"));
    assert_int_equal(results[0].error, 0);
    assert_content(path, "new");
    assert_true(file_is_locked());
    assert_int_equal(take_elsewhere(), EWOULDBLOCK);
    file_writer_wait(writer, submit(other_path, "not locked"));

    file_lock_release(&lock);
    assert_false(file_is_locked());
    assert_int_equal(take_elsewhere(), 0);
}

FIXTURE_TEST(a_lock_of_valkey_is_respected) {
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    struct file_lock lock;
    assert_int_equal(file_lock_take(&lock, path), -EWOULDBLOCK);
    close(fd);
    assert_int_equal(file_lock_take(&lock, path), 0);
    file_lock_release(&lock);
    assert_int_equal(file_lock_take(&lock, "/nonexistent/file"), -ENOENT);
}

FIXTURE_TEST(a_child_does_not_hold_the_lock) {
    struct file_lock lock;
    struct file_written written;
    assert_int_equal(file_lock_take(&lock, path), 0);
    file_write(path, slice_of("x"), false, 0644, &lock, &written);
    assert_int_equal(written.error, 0);
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    file_lock_release(&lock);
    assert_int_equal(take_elsewhere(), 0);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}
