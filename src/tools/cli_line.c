/* cli_line.c: line editing with libedit, history, completion, hints.
 *
 * libedit has no hints. But it draws the whole line before it calls key_read() for the next key. key_read() draws the
 * hint after the cursor, waits for a key, and erases the hint. So libedit's model of the screen stays correct.
 *
 * The history file has one entry per line, like that of Valkey's tool, so both tools can share it. */
#include "lib/system/memory.h"
#include "tools/cli_docs.h"
#include "tools/cli_line.h"
#include <errno.h>
#include <histedit.h>
#include <limits.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

enum { HISTORY_MAX = 1000 };

#ifdef __SANITIZE_ADDRESS__
/* libedit does not free the names given to EL_ADDFN. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
    return "leak:wcsdup\n";
}
#endif

struct line_editor {
    struct cli *cli;
    EditLine *edit; /* NULL: not a terminal */
    History *history;
    char *history_path;
    const char *prompt;
    char *line; /* the result of line_read */
    bool ended;
    /* A buffer for input that is not a terminal, so that line_is_waiting() knows which lines have arrived. */
    char *input;
    size_t input_size, input_start, input_end;
};

/* libedit's callbacks get only the EditLine; EL_CLIENTDATA is the line_editor. */
static struct line_editor *editor_of(EditLine *edit) {
    void *data = NULL;
    el_get(edit, EL_CLIENTDATA, &data);
    return data;
}
static char *prompt_show(EditLine *edit) {
    return (char *)editor_of(edit)->prompt;
}

/* --- Hints --- */

static int terminal_columns(void) {
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

static bool hint_draw(struct line_editor *editor) {
    const LineInfo *line = el_line(editor->edit);
    if (!editor->cli->hints || !editor->cli->docs || editor->cli->debugging || line->cursor != line->lastchar ||
        line->cursor == line->buffer)
        return false;
    size_t len = (size_t)(line->lastchar - line->buffer);
    struct memory_output m = MEMORY_OUTPUT_INIT;
    docs_hint_typed(editor->cli->docs, slice_make(line->buffer, len), &m.out);
    char hint[512];
    struct slice text = memory_output_slice(&m);
    snprintf(hint, sizeof hint, "%s%.*s", line->lastchar[-1] == ' ' ? "" : " ", (int)text.len,
             text.len ? text.data : "");
    memory_output_free(&m);
    if (!text.len) return false;
    /* Truncate the hint to this line, because a wrapped hint could not be erased. */
    int columns = terminal_columns() - 1 - (int)((strlen(editor->prompt) + len) % (size_t)terminal_columns());
    if (columns < 2) return false;
    printf("\0337\033[90m%.*s\033[0m\0338", columns, hint);
    fflush(stdout);
    return true;
}

static int key_read(EditLine *edit, wchar_t *key) {
    struct line_editor *editor = editor_of(edit);
    bool drawn = hint_draw(editor);
    char bytes[MB_LEN_MAX];
    size_t have = 0;
    int result = 0;
    mbstate_t state;
    for (;;) {
        ssize_t got = read(STDIN_FILENO, bytes + have, 1);
        if (got < 0 && errno == EINTR && !cli_interrupted) continue;
        if (got <= 0) {
            editor->ended = true;
            break;
        }
        have++;
        memset(&state, 0, sizeof state);
        size_t used = mbrtowc(key, bytes, have, &state);
        if (used == (size_t)-2 && have < sizeof bytes) continue; /* an incomplete multibyte character */
        if (used == (size_t)-1 || used == (size_t)-2) *key = (unsigned char)bytes[0];
        if (used == 0) *key = 0;
        result = 1;
        break;
    }
    if (drawn) {
        printf("\033[K");
        fflush(stdout);
    }
    return result;
}

/* --- Completion --- */

struct completion {
    char **found;
    int count, capacity;
};

static void completion_add(void *context, const char *text) {
    struct completion *c = context;
    mem_grow(c->found, c->count, c->capacity, 16);
    c->found[c->count++] = mem_strdup(text);
}

/* The length of the common prefix of all completions. */
static size_t completion_common(const struct completion *c) {
    size_t len = strlen(c->found[0]);
    for (int i = 1; i < c->count; i++) {
        size_t k = 0;
        while (k < len && c->found[i][k] && (c->found[0][k] | 0x20) == (c->found[i][k] | 0x20)) k++;
        len = k;
    }
    return len;
}

static void completion_list(const struct completion *c) {
    int width = 0, columns = terminal_columns();
    for (int i = 0; i < c->count; i++) {
        int len = (int)strlen(c->found[i]);
        if (len > width) width = len;
    }
    width += 2;
    int across = columns / width > 0 ? columns / width : 1;
    putchar('\n');
    for (int i = 0; i < c->count; i++) {
        printf("%-*s", width, c->found[i]);
        if ((i + 1) % across == 0 || i + 1 == c->count) putchar('\n');
    }
    fflush(stdout);
}

static unsigned char key_complete(EditLine *edit, int key) { /* Tab */
    struct line_editor *editor = editor_of(edit);
    const LineInfo *line = el_line(edit);
    if (!editor->cli->docs || editor->cli->debugging || line->cursor != line->lastchar) return CC_ERROR;
    size_t len = (size_t)(line->cursor - line->buffer);
    struct completion c = {0};
    docs_complete(editor->cli, slice_make(line->buffer, len), completion_add, &c);
    unsigned char result = CC_ERROR;
    if (c.count > 0) {
        size_t common = completion_common(&c);
        if (common > len || c.count == 1) {
            char *text = mem_strndup(c.found[0], common);
            el_deletestr(edit, (int)len);
            if (el_insertstr(edit, text) == 0) {
                if (c.count == 1) el_insertstr(edit, " ");
                result = CC_REFRESH;
            }
            mem_free(text);
        } else {
            completion_list(&c);
            result = CC_REDISPLAY;
        }
    }
    for (int i = 0; i < c.count; i++) mem_free(c.found[i]);
    mem_free(c.found);
    return result;
}

/* --- History --- */

static char *history_find(void) {
    const char *path = getenv("VALKEYCLI_HISTFILE"), *home = getenv("HOME");
    if (!path) path = getenv("REDISCLI_HISTFILE");
    if (path && *path) return strcmp(path, "/dev/null") == 0 ? NULL : mem_strdup(path);
    if (!home || !*home) return NULL;
    size_t size = strlen(home) + 32;
    char *text = mem_alloc(size);
    snprintf(text, size, "%s/.valkeycli_history", home);
    return text;
}

static void history_load(struct line_editor *editor) {
    FILE *file = editor->history_path ? fopen(editor->history_path, "r") : NULL;
    if (!file) return;
    char *line = NULL;
    size_t size = 0;
    ssize_t len;
    HistEvent event;
    while ((len = getline(&line, &size, file)) > 0) {
        line[strcspn(line, "\r\n")] = '\0';
        if (*line) history(editor->history, &event, H_ENTER, line);
    }
    free(line);
    fclose(file);
}

static void history_save(struct line_editor *editor) {
    if (!editor->history_path) return;
    mode_t mask = umask(077);
    FILE *file = fopen(editor->history_path, "w");
    umask(mask);
    if (!file) return;
    chmod(editor->history_path, 0600);
    HistEvent event;
    for (int found = history(editor->history, &event, H_LAST); found >= 0;
         found = history(editor->history, &event, H_PREV)) {
        fprintf(file, "%.*s\n", (int)strcspn(event.str, "\r\n"), event.str);
    }
    fclose(file);
}

void line_remember(struct line_editor *editor, const char *line) {
    if (!editor->edit || !*line) return;
    HistEvent event;
    history(editor->history, &event, H_ENTER, line);
    history_save(editor);
}

/* --- Reading --- */

struct line_editor *line_editor_new(struct cli *cli) {
    struct line_editor *editor = mem_calloc(1, sizeof *editor);
    editor->cli = cli;
    if (!cli->tty) return editor;
    setlocale(LC_CTYPE, "");
    editor->history = history_init();
    HistEvent event;
    history(editor->history, &event, H_SETSIZE, HISTORY_MAX);
    history(editor->history, &event, H_SETUNIQUE, 1);
    editor->history_path = history_find();
    history_load(editor);
    editor->edit = el_init("valkey-cli", stdin, stdout, stderr);
    el_set(editor->edit, EL_CLIENTDATA, editor);
    el_set(editor->edit, EL_PROMPT, prompt_show);
    el_set(editor->edit, EL_EDITOR, "emacs");
    el_set(editor->edit, EL_SIGNAL, 0);
    el_set(editor->edit, EL_HIST, history, editor->history);
    el_set(editor->edit, EL_ADDFN, "valkey-complete", "complete a command", key_complete);
    el_set(editor->edit, EL_BIND, "^I", "valkey-complete", NULL);
    el_set(editor->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_set(editor->edit, EL_GETCFN, key_read);
    el_source(editor->edit, NULL); /* the user's own ~/.editrc */
    return editor;
}

void line_editor_free(struct line_editor *editor) {
    if (editor->edit) el_end(editor->edit);
    if (editor->history) history_end(editor->history);
    mem_free(editor->history_path);
    free(editor->line);
    mem_free(editor->input);
    mem_free(editor);
}

bool line_is_waiting(const struct line_editor *editor) {
    return !editor->edit && editor->input_start < editor->input_end;
}

/* Reads a line of input that is not a terminal. The last line may lack a line end. */
static const char *input_line(struct line_editor *editor) {
    size_t scanned = editor->input_start;
    for (;;) {
        char *start = editor->input + editor->input_start;
        char *end =
            editor->input_end > scanned ? memchr(editor->input + scanned, '\n', editor->input_end - scanned) : NULL;
        if (end || (editor->ended && line_is_waiting(editor))) {
            if (!end) end = editor->input + editor->input_end;
            *end = '\0';
            editor->input_start = (size_t)(end - editor->input) + 1;
            if (editor->input_start > editor->input_end) editor->input_start = editor->input_end;
            return start;
        }
        if (editor->ended) return NULL;
        if (editor->input_start > 0) {
            memmove(editor->input, start, editor->input_end - editor->input_start);
            editor->input_end -= editor->input_start;
            editor->input_start = 0;
        }
        if (editor->input_end + 1 >= editor->input_size) {
            editor->input_size = editor->input_size ? editor->input_size * 2 : 4096;
            editor->input = mem_realloc(editor->input, editor->input_size);
        }
        scanned = editor->input_end;
        ssize_t got = read(STDIN_FILENO, editor->input + editor->input_end, editor->input_size - 1 - editor->input_end);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) editor->ended = true;
        if (got > 0) editor->input_end += (size_t)got;
    }
}

const char *line_read(struct line_editor *editor, const char *prompt) {
    if (!editor->edit) return input_line(editor);
    int count = 0;
    editor->prompt = prompt;
    const char *line = el_gets(editor->edit, &count);
    if (!line || count <= 0 || editor->ended) {
        printf("\n");
        return NULL;
    }
    free(editor->line);
    editor->line = strdup(line);
    editor->line[strcspn(editor->line, "\r\n")] = '\0';
    return editor->line;
}
