/* terminal.c: plays a terminal and its user, for tests of programs with a prompt.
 *
 *   terminal prompt=TEXT KEYS… -- COMMAND ARG…
 *
 * Runs the command on a terminal of its own. Each time TEXT stands at the end of the screen (cursor movements and
 * colours not counted) and the command has turned to editing the line, the next KEYS are typed. KEYS understands \r \e
 * \\ \xHH, and \p for a pause of 0.3 s. Everything that came to the screen goes to standard output. Exit code: the
 * command's, 128 + signal where it was killed, 99 where it hung for 10 seconds. */
#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum { SCREEN_MAX = 4 * 1024 * 1024, PATIENCE_MS = 10 * 1000, PAUSE_MS = 300 };
static char screen[SCREEN_MAX], plain[SCREEN_MAX];
static size_t screen_len;

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The end of the screen without escape sequences, and without what was drawn between saving and restoring the cursor
 * (hints). */
static bool prompt_stands(const char *prompt) {
    size_t len = 0;
    bool saved = false;
    size_t from = screen_len > 8192 ? screen_len - 8192 : 0;
    for (size_t i = from; i < screen_len; i++) {
        if (screen[i] == '\033' && i + 1 < screen_len) {
            char kind = screen[++i];
            if (kind == '7')
                saved = true;
            else if (kind == '8')
                saved = false;
            else if (kind == '[')
                while (i + 1 < screen_len && !(screen[++i] >= '@' && screen[i] <= '~')) {
                }
        } else if (!saved) {
            plain[len++] = screen[i];
        }
    }
    size_t prompt_len = strlen(prompt);
    return len >= prompt_len && memcmp(plain + len - prompt_len, prompt, prompt_len) == 0;
}

/* Reads what comes within `ms`. False: the command is gone. */
static bool screen_read(int terminal, int ms) {
    struct pollfd p = {.fd = terminal, .events = POLLIN};
    if (poll(&p, 1, ms) <= 0) return true;
    ssize_t got = read(terminal, screen + screen_len, SCREEN_MAX - screen_len);
    if (got < 0 && errno == EINTR) return true;
    if (got <= 0) return false;
    screen_len += (size_t)got;
    return screen_len < SCREEN_MAX;
}

/* The command edits the line itself: what is typed before would be the terminal's to echo and interpret. */
static bool line_is_edited(int terminal) {
    struct termios settings;
    return tcgetattr(terminal, &settings) == 0 && !(settings.c_lflag & ICANON);
}

static void keys_type(int terminal, const char *keys) {
    for (; *keys; keys++) {
        char key = *keys;
        if (key == '\\') {
            key = *++keys;
            if (key == 'r')
                key = '\r';
            else if (key == 'e')
                key = '\033';
            else if (key == 'x')
                key = (char)strtol((char[3]){keys[1], keys[2]}, NULL, 16), keys += 2;
            else if (key == 'p') {
                int64_t end = now_ms() + PAUSE_MS;
                while (now_ms() < end && screen_read(terminal, 20)) {
                }
                continue;
            }
        }
        if (write(terminal, &key, 1) != 1) return;
    }
}

int main(int argc, char **argv) {
    int split = 1;
    while (split < argc && strcmp(argv[split], "--") != 0) split++;
    if (split < 2 || split + 1 >= argc || strncmp(argv[1], "prompt=", 7) != 0) {
        fprintf(stderr, "usage: terminal prompt=TEXT KEYS... -- COMMAND ARG...\n");
        return 98;
    }
    int terminal;
    struct winsize size = {.ws_row = 50, .ws_col = 200};
    pid_t child = forkpty(&terminal, NULL, NULL, &size);
    if (child < 0) return 98;
    if (child == 0) {
        execvp(argv[split + 1], argv + split + 1);
        perror(argv[split + 1]);
        _exit(98);
    }
    int64_t quiet_since = now_ms();
    size_t seen = 0, typed_at = 0; /* nothing is typed before the keys before it have shown */
    int next = 2;
    bool hung = false;
    while (screen_read(terminal, 100)) {
        if (screen_len != seen) {
            seen = screen_len;
            quiet_since = now_ms();
        }
        if (next < split && screen_len > typed_at && prompt_stands(argv[1] + 7) && line_is_edited(terminal)) {
            typed_at = screen_len;
            keys_type(terminal, argv[next++]);
            quiet_since = now_ms();
        }
        hung = now_ms() - quiet_since > PATIENCE_MS;
        if (hung) break;
    }
    if (hung) kill(child, SIGKILL);
    fwrite(screen, 1, screen_len, stdout);
    fflush(stdout);
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return hung ? 99 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
