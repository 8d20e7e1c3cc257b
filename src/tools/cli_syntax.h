/* cli_syntax.h: the arguments of a command as COMMAND DOCS describes them, and which of them may follow the words that
 * a user has typed. */
#pragma once
#include "lib/text/output.h"
#include "resp/reply_reader.h"

enum syntax_kind { SYNTAX_WORD, SYNTAX_INTEGER, SYNTAX_DOUBLE, SYNTAX_TOKEN, SYNTAX_ONEOF, SYNTAX_BLOCK };
enum syntax_match { SYNTAX_NONE, SYNTAX_PART, SYNTAX_ALL };
/* What may follow an argument that matches in part: the whole value after its token, the rest of a block, or only a
 * repetition. */
enum syntax_missing { SYNTAX_WHOLE, SYNTAX_REST, SYNTAX_REPETITION };
struct syntax_argument;
struct syntax {
    struct syntax_argument *arguments; /* one after another; of a SYNTAX_ONEOF: the choices */
    int count;
};
struct syntax_argument {
    enum syntax_kind kind;
    bool optional, multiple, multiple_token;
    char *name;  /* as displayed */
    char *token; /* the token before the value; NULL: none */
    struct syntax parts;
    /* The result of matching typed words: */
    enum syntax_match match;
    enum syntax_missing missing;
    bool skipped; /* the words match later arguments, so this optional one cannot follow any more */
    int chosen;   /* the choice of a SYNTAX_ONEOF that matches in part */
};

/* `arguments` is the array of that name in COMMAND DOCS; NULL: a command without arguments. */
void syntax_read(struct syntax *s, const struct resp_value *arguments);
/* Reads the argument lines of one command in cli_commands.txt, and advances *text past them. */
void syntax_read_text(struct syntax *s, const char **text);
void syntax_free(struct syntax *s);
/* "key value [NX|XX] [EX seconds|PX milliseconds]" */
void syntax_write(struct output *out, const struct syntax *s);
/* Writes the arguments that may follow the words. Returns false and writes nothing if the words do not match. */
bool syntax_hint(struct output *out, struct syntax *s, int argc, const struct slice *argv);
