/* test_aof_manifest.c: manifests are read and written as by Valkey; malformed ones are rejected. */
#include "unit.h"
#include "formats/aof_manifest.h"

static struct aof_manifest *parse(const char *text, const char **error, int *line) {
    struct slice at;
    return aof_manifest_parse(slice_of(text), error, line, &at);
}

static void assert_text(const struct aof_manifest *manifest, const char *text) {
    struct memory_output out;
    memory_output_init(&out);
    aof_manifest_format(manifest, &out.out);
    struct slice got = memory_output_slice(&out);
    assert_int_equal(got.len, strlen(text));
    assert_memory_equal(got.data, text, got.len);
    memory_output_free(&out);
}

static const char *const all = "file appendonly.aof.2.base.rdb seq 2 type b\n"
                               "file appendonly.aof.1.base.rdb seq 1 type h\n"
                               "file appendonly.aof.3.incr.aof seq 3 type i\n"
                               "file appendonly.aof.4.incr.aof seq 4 type i\n";

TEST(a_manifest_survives_reading_and_writing) {
    const char *error;
    int line;
    struct aof_manifest *manifest = parse(all, &error, &line);
    assert_non_null(manifest);
    assert_int_equal(manifest->base_sequence, 2);
    assert_int_equal(manifest->incremental_sequence, 4);
    assert_string_equal(aof_manifest_last(manifest)->name, "appendonly.aof.4.incr.aof");
    assert_text(manifest, all);
    struct aof_manifest *copy = aof_manifest_copy(manifest);
    aof_manifest_free(manifest);
    assert_text(copy, all);
    aof_manifest_free(copy);
}

TEST(comments_and_unknown_keys_are_ignored_and_names_may_be_quoted) {
    const char *error;
    int line;
    struct aof_manifest *manifest =
        parse("# a comment\nfile \"a b\\x01.aof\" startoffset 7 type i seq 1\n", &error, &line);
    assert_non_null(manifest);
    assert_string_equal(aof_manifest_last(manifest)->name, "a b\x01.aof");
    assert_text(manifest, "file \"a b\\x01.aof\" seq 1 type i\n");
    aof_manifest_free(manifest);
    /* Names that need no quotes get none; letters beyond ASCII are escaped. */
    manifest = parse("file \"a(b),c.aof\" seq 1 type b\nfile \"\xc3\xbc\ta.aof\" seq 1 type i\n", &error, &line);
    assert_non_null(manifest);
    assert_text(manifest, "file a(b),c.aof seq 1 type b\nfile \"\\xc3\\xbc\\ta.aof\" seq 1 type i\n");
    aof_manifest_free(manifest);
}

TEST(malformed_manifests_are_refused_with_the_line) {
    static const struct {
        const char *text;
        int line;
    } cases[] = {
        {"", 0},
        {"\n", 1},
        {"file x seq\n", 1},
        {"file x seq 1 type\n", 1},
        {"file x seq 1 type b", 1},
        {"file x seq 0 type b\n", 1},
        {"file x seq -1 type b\n", 1},
        {"file x seq 99999999999999999999 type b\n", 1},
        {"file x seq 1 type z\n", 1},
        {"file x seq 1 type bb\n", 1},
        {"file ../x seq 1 type b\n", 1},
        {"file .. seq 1 type b\n", 1},
        {"file \"a\\\\b\" seq 1 type b\n", 1},
        {"file \"\" seq 1 type b\n", 1},
        {"file \"a\\x00b\" seq 1 type b\n", 1},
        {"file \"a seq 1 type b\n", 1},
        {"seq 1 type b foo bar\n", 1},
        {"file x seq 1 type b\nfile y seq 2 type b\n", 2},
        {"file x seq 2 type i\nfile y seq 2 type i\n", 2},
        {"file x seq 2 type i\nfile y seq 1 type i\n", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *error;
        int line;
        assert_null(parse(cases[i].text, &error, &line));
        assert_non_null(error);
        assert_int_equal(line, cases[i].line);
    }
}

TEST(a_rewrite_replaces_the_base_and_retires_what_it_covers) {
    struct aof_manifest *manifest = aof_manifest_new();
    aof_manifest_adopt(manifest, "appendonly.aof");
    aof_manifest_add_incremental(manifest, "appendonly.aof");
    aof_manifest_add_incremental(manifest, "appendonly.aof");
    assert_string_equal(aof_manifest_add_base(manifest, "appendonly.aof", true)->name, "appendonly.aof.2.base.rdb");
    aof_manifest_retire(manifest, 1);
    assert_text(manifest, "file appendonly.aof.2.base.rdb seq 2 type b\n"
                          "file appendonly.aof.1.incr.aof seq 1 type h\n"
                          "file appendonly.aof seq 1 type h\n"
                          "file appendonly.aof.2.incr.aof seq 2 type i\n");
    aof_manifest_drop_history(manifest);
    assert_text(manifest, "file appendonly.aof.2.base.rdb seq 2 type b\n"
                          "file appendonly.aof.2.incr.aof seq 2 type i\n");
    assert_string_equal(aof_manifest_add_base(manifest, "appendonly.aof", false)->name, "appendonly.aof.3.base.aof");
    aof_manifest_free(manifest);
}
