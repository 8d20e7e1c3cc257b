/* The notation of command arguments. */
#include "unit.h"
#include "lib/hash/sha1.h"
#include "lib/hash/sha256.h"
#include "lib/text/output.h"
#include "server/command/command_syntax.h"
#include <stdio.h>

/* A tree as text: name/type with further properties, children in ( ). */
static void show(const struct command_argument *argument, struct output *out) {
    for (; argument; argument = argument->next) {
        char text[256];
        int len = snprintf(text, sizeof text, "%s/%s", argument->name, argument_type_name(argument->type));
        output_write(out, (struct slice){text, (size_t)len});
        if (argument->token) output_write(out, SLICE(" token=")), output_write(out, slice_of(argument->token));
        if (argument->display) output_write(out, SLICE(" shown=")), output_write(out, slice_of(argument->display));
        if (argument->since) output_write(out, SLICE(" since=")), output_write(out, slice_of(argument->since));
        if (argument->deprecated_since)
            output_write(out, SLICE(" until=")), output_write(out, slice_of(argument->deprecated_since));
        len = argument->key_spec < 0 ? 0 : snprintf(text, sizeof text, " #%d", argument->key_spec);
        output_write(out, (struct slice){text, (size_t)len});
        if (argument->optional) output_write(out, SLICE(" optional"));
        if (argument->multiple) output_write(out, SLICE(" multiple"));
        if (argument->multiple_token) output_write(out, SLICE(" multiple_token"));
        if (argument->children) {
            output_write(out, SLICE("("));
            show(argument->children, out);
            output_write(out, SLICE(")"));
        }
        if (argument->next) output_write(out, SLICE(", "));
    }
}
static void assert_reads(const char *syntax, const char *tree) {
    char error[128];
    struct command_argument *arguments = syntax_parse(syntax, error);
    assert_string_equal(error, "");
    struct memory_output out;
    memory_output_init(&out);
    show(arguments, &out.out);
    output_write(&out.out, (struct slice){"", 1});
    assert_string_equal(memory_output_slice(&out).data, tree);
    memory_output_free(&out);
    syntax_free(arguments);
}
TEST(test_plain_arguments) {
    assert_reads("", "");
    assert_reads("key:key value:string", "key/key #0, value/string");
    assert_reads("a:integer b:double c:pattern d:unix-time", "a/integer, b/double, c/pattern, d/unix-time");
    assert_reads("source:key destination:key(#1)", "source/key #0, destination/key #1");
    assert_reads("old:string\"ip:port\"!2.8.12", "old/string shown=ip:port until=2.8.12");
}
TEST(test_tokens) {
    assert_reads("[REPLACE]", "replace/pure-token token=REPLACE optional");
    assert_reads("[DB destination-db:integer@6.2.0]", "destination-db/integer token=DB since=6.2.0 optional");
    assert_reads("sorting=ALPHA equal=\"=\" none=\"\"",
                 "sorting/pure-token token=ALPHA, equal/pure-token token==, none/pure-token token=");
    assert_reads("FORCE x=NOW", "force/pure-token token=FORCE, x/pure-token token=NOW");
}
TEST(test_choices_and_blocks) {
    assert_reads("[condition(NX|XX@2.0.0)@2.6.12]",
                 "condition/oneof since=2.6.12 optional(nx/pure-token token=NX, xx/pure-token token=XX since=2.0.0)");
    assert_reads("data{field:string value:string}...", "data/block multiple(field/string, value/string)");
    assert_reads("[LIMIT limit{offset:integer count:integer}]",
                 "limit/block token=LIMIT optional(offset/integer, count/integer)");
}
TEST(test_repetition) {
    assert_reads("key:key...", "key/key #0 multiple");
    assert_reads("[key:key...]", "key/key #0 optional multiple");
    assert_reads("[WEIGHTS weight:integer...]", "weight/integer token=WEIGHTS optional multiple");
    assert_reads("[GET p:pattern(#1)\"pattern\"]...",
                 "p/pattern token=GET shown=pattern #1 optional multiple multiple_token");
}
TEST(test_mistakes_are_found) {
    static const char *const wrong[] = {"key",
                                        "key:",
                                        "key:kei",
                                        "[key:key",
                                        "key:key]",
                                        "x(",
                                        "x()",
                                        "x{}",
                                        "x(a:key b:key)",
                                        "x{a:key|b:key}",
                                        "a:key@",
                                        "a:key..",
                                        "a:key(#)",
                                        "a:key(#1",
                                        "a:string\"x",
                                        "A:key",
                                        "=",
                                        "a=b",
                                        "a:key,b:key",
                                        "((((((((((((((((((((",
                                        "[[[[[[[[[[[[[[[[[[[[[[["};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char error[128];
        struct command_argument *arguments = syntax_parse(wrong[i], error);
        if (arguments || !*error) fail_msg("'%s' was taken", wrong[i]);
    }
}
/* The examples of FIPS 180-4, split in all possible ways. */
TEST(test_sha1) {
    static const char text[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    unsigned char digest[SHA1_SIZE];
    char hex[2 * SHA1_SIZE + 1];
    for (size_t cut = 0; cut < sizeof text; cut++) {
        struct sha1 sha1;
        sha1_init(&sha1);
        sha1_update(&sha1, slice_make(text, cut));
        sha1_update(&sha1, slice_make(text + cut, sizeof text - 1 - cut));
        sha1_final(&sha1, digest);
        for (int i = 0; i < SHA1_SIZE; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
        assert_string_equal(hex, "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
    }
    sha1_digest(SLICE(""), digest);
    for (int i = 0; i < SHA1_SIZE; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(hex, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
}

static void assert_sha256(struct slice bytes, const char *expected) {
    unsigned char digest[SHA256_SIZE];
    char hex[2 * SHA256_SIZE + 1];
    sha256_digest(bytes, digest);
    for (int i = 0; i < SHA256_SIZE; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(hex, expected);
}

/* Examples of FIPS 180-4, and lengths around those at which the padding takes another block. */
TEST(test_sha256) {
    assert_sha256(SLICE(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_sha256(SLICE("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_sha256(SLICE("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
                  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    static char many[1000000];
    memset(many, 'a', sizeof many);
    assert_sha256(slice_make(many, 55), "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    assert_sha256(slice_make(many, 56), "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
    assert_sha256(slice_make(many, 64), "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
    assert_sha256(slice_make(many, sizeof many), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}
