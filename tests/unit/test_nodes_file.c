/* nodes.conf: files of Valkey are read and written again byte for byte, files of older versions are read, and corrupt
 * files are rejected with a reason. */
#include "unit.h"
#include "cluster/protocol/nodes_file.h"
#include "lib/system/file.h"
#include <errno.h>
#include <stdio.h>

#define A      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B      "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define S      "0000000000000000000000000000000000000001"
#define ME     A " 192.0.2.1:6379@16379,,tls-port=0,shard-id=" S " myself,master - 0 0 1 connected"
#define OTHER  B " 192.0.2.2:6379@16379,,tls-port=0,shard-id=" S
#define EPOCHS "vars currentEpoch 7 lastVoteEpoch 6\n"

static char notes[1000];
static void take_note(void *context, const char *text) {
    size_t used = strlen(notes);
    assert_ptr_equal(context, notes);
    snprintf(notes + used, sizeof notes - used, "%s\n", text);
}

static struct nodes_file file;
static struct nodes_file_error error;
static bool parse(const char *text, bool tls) {
    notes[0] = '\0';
    return nodes_file_parse(slice_of(text), tls, take_note, notes, &file, &error);
}
static void assert_output(struct memory_output *out, const char *expected) {
    output_write(&out->out, (struct slice){"", 1});
    assert_string_equal(memory_output_slice(out).data, expected);
    memory_output_free(out);
}
/* Reads the text and checks that it is written as `expected`. */
static void assert_rewritten(const char *text, bool tls, const char *expected) {
    struct memory_output out;
    memory_output_init(&out);
    if (!parse(text, tls)) fail_msg("line %zu: %s", error.number, error.reason);
    nodes_file_print(&out.out, &file);
    nodes_file_free(&file);
    assert_output(&out, expected);
}
static void assert_text(struct slice text, const char *expected) {
    assert_int_equal(text.len, strlen(expected));
    if (text.len) assert_memory_equal(text.data, expected, text.len);
}

TEST(files_of_valkey_are_written_again_byte_for_byte) {
    static const char *const names[] = {"new", "replica", "migrating", "importing", "failed", "nofailover", "minority"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[100];
        struct memory_output text;
        memory_output_init(&text);
        snprintf(path, sizeof path, "tests/unit/data/cluster-nodes-%s", names[i]);
        assert_int_equal(file_read(path, 100000, &text.out), 0);
        output_write(&text.out, (struct slice){"", 1});
        assert_rewritten(text.data, false, text.data);
        assert_string_equal(notes, "");
        assert_rewritten(text.data, true, text.data);
        memory_output_free(&text);
    }
}

TEST(every_column_is_read) {
    assert_true(parse(B " 2001:db8::1:7000@17000,host.example.com,availability-zone=zone-1,client-tls-port=4,"
                        "client-tcp-port=3,client-ipv6=2001:db8::2,client-ipv4=192.0.2.9,tls-port=7001,nodename=n,"
                        "shard-id=" S " slave,fail?,nofailover " A " 1700000000001 1700000000002 9 disconnected\n" ME
                        " 0-5 9 16382-16383 [1->-" B "] [77-<-" B "]\n" EPOCHS,
                      false));
    assert_int_equal(file.count, 2);
    assert_int_equal(file.myself, 1);
    assert_int_equal(file.current_epoch, 7);
    assert_int_equal(file.last_vote_epoch, 6);
    const struct node_line *line = &file.lines[0];
    assert_memory_equal(line->id.text, B, NODE_ID_LEN);
    assert_memory_equal(line->primary.text, A, NODE_ID_LEN);
    assert_memory_equal(line->shard.text, S, NODE_ID_LEN);
    assert_text(line->address, "2001:db8::1");
    assert_int_equal(line->tcp_port, 7000);
    assert_int_equal(line->tls_port, 7001);
    assert_int_equal(line->bus_port, 17000);
    assert_text(line->hostname, "host.example.com");
    assert_text(line->nodename, "n");
    assert_text(line->availability_zone, "zone-1");
    assert_text(line->client_ipv4, "192.0.2.9");
    assert_text(line->client_ipv6, "2001:db8::2");
    assert_int_equal(line->client_tcp_port, 3);
    assert_int_equal(line->client_tls_port, 4);
    assert_int_equal(line->flags, NODE_REPLICA | NODE_PFAIL | NODE_NOFAILOVER);
    assert_int_equal(line->ping_sent_ms, 1700000000001);
    assert_int_equal(line->pong_received_ms, 1700000000002);
    assert_int_equal(line->epoch, 9);
    assert_false(line->connected);
    assert_null(line->slots);
    line = &file.lines[1];
    assert_true(node_id_is_zero(&line->primary));
    assert_true(line->connected);
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++)
        assert_int_equal(slot_bitmap_has(line->slots, slot), slot <= 5 || slot == 9 || slot >= 16382);
    assert_int_equal(line->open_count, 2);
    assert_int_equal(line->open[0].slot, 1);
    assert_false(line->open[0].importing);
    assert_int_equal(line->open[1].slot, 77);
    assert_true(line->open[1].importing);
    assert_memory_equal(line->open[1].node.text, B, NODE_ID_LEN);
    nodes_file_free(&file);
}

TEST(lines_of_older_versions_are_understood) {
#define REST  " myself,master - 0 0 1 connected 0-16383\n"
#define FIRST A " 127.0.0.1:6379@"
    assert_rewritten(A " 127.0.0.1:6379" REST EPOCHS, false, FIRST "16379,,tls-port=0" REST EPOCHS);
    assert_rewritten(FIRST "7777" REST EPOCHS, false, FIRST "7777,,tls-port=0" REST EPOCHS);
    assert_rewritten(FIRST "7777,name" REST EPOCHS, false, FIRST "7777,name,tls-port=0" REST EPOCHS);
    assert_rewritten(FIRST "7777,,shard-id=" S REST EPOCHS, false, FIRST "7777,,tls-port=0,shard-id=" S REST EPOCHS);
    assert_rewritten(FIRST "7777,,nodename=,shard-id=" S REST, false,
                     FIRST "7777,,tls-port=0,shard-id=" S REST "vars currentEpoch 0 lastVoteEpoch 0\n");
    /* Line ends, blanks and case are ignored. */
    assert_rewritten("\r\n \t" FIRST "1,  MYSELF,primary - 0 0 1 connected \r\n\n  VARS currentEpoch 5", false,
                     FIRST "1,,tls-port=0 myself,master - 0 0 1 connected\nvars currentEpoch 5 lastVoteEpoch 0\n");
}

TEST(the_port_in_front_is_the_one_without_a_name) {
#define TAIL " myself,master - 0 0 0 connected\n"
    static const struct {
        const char *names;
        bool tls;
        int tcp_port, tls_port;
    } cases[] = {
        {"", false, 5, 0},
        {"", true, 0, 5},
        {",,tls-port=9", false, 5, 9},
        {",,tls-port=9", true, 5, 9},
        {",,tcp-port=8", false, 8, 5},
        {",,tcp-port=8", true, 8, 5},
        {",,tcp-port=8,tls-port=9", false, 8, 9},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[300];
        snprintf(text, sizeof text, A " 127.0.0.1:5@6%s" TAIL, cases[i].names);
        assert_true(parse(text, cases[i].tls));
        assert_int_equal(file.lines[0].tcp_port, cases[i].tcp_port);
        assert_int_equal(file.lines[0].tls_port, cases[i].tls_port);
        nodes_file_free(&file);
    }
}

TEST(unknown_values_are_kept) {
    assert_rewritten(A " :0@0,,rack=7,tls-port=0,row=a-b" TAIL "vars shape round currentEpoch 1\n", false,
                     A " :0@0,,tls-port=0,rack=7,row=a-b" TAIL "vars currentEpoch 1 lastVoteEpoch 0\n");
    assert_string_equal(notes, "Cluster config file, line 1: unknown field 'rack' is ignored\n"
                               "Cluster config file, line 1: unknown field 'row' is ignored\n"
                               "Skipping unknown cluster config variable 'shape'\n");
}

TEST(flags_have_their_names) {
    assert_rewritten(OTHER " noflags - 0 0 0 disconnected\n" ME "\n" EPOCHS, false,
                     OTHER " noflags - 0 0 0 disconnected\n" ME "\n" EPOCHS);
    assert_rewritten(OTHER " nofailover,noaddr,handshake,fail?,replica - 0 0 0 disconnected\n" ME "\n" EPOCHS, false,
                     OTHER " slave,fail?,fail,handshake,noaddr,nofailover - 0 0 0 disconnected\n" ME "\n" EPOCHS);
}

TEST(clients_see_the_hostname_and_nothing_more) {
    struct slot_bitmap slots = {{0}};
    struct open_slot open = {.slot = 3};
    struct memory_output out;
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++) slot_bitmap_set(&slots, slot);
    memset(open.node.text, 'b', NODE_ID_LEN);
    struct node_line line = {.address = SLICE("192.0.2.1"),
                             .tcp_port = 6380,
                             .tls_port = 6380,
                             .bus_port = 16379,
                             .nodename = SLICE("name"),
                             .unknown = SLICE(",rack=1"),
                             .flags = NODE_MYSELF | NODE_PRIMARY | NODE_EXTENSIONS | NODE_MIGRATE_TO,
                             .epoch = UINT64_MAX,
                             .connected = true,
                             .slots = &slots,
                             .open = &open,
                             .open_count = 1};
    memset(line.id.text, 'a', NODE_ID_LEN);
    memset(line.shard.text, 's', NODE_ID_LEN);
    memory_output_init(&out);
    node_line_print(&out.out, &line, NODE_LINE_CLIENT);
    assert_output(&out,
                  A " 192.0.2.1:6380@16379 myself,master - 0 0 18446744073709551615 connected 0-16383 [3->-" B "]");
    line.hostname = SLICE("host");
    memory_output_init(&out);
    node_line_print(&out.out, &line, NODE_LINE_CLIENT);
    assert_memory_equal(memory_output_slice(&out).data, A " 192.0.2.1:6380@16379,host myself,", 74);
    memory_output_free(&out);
}

TEST(flags_and_epochs_are_written_alone) {
    struct memory_output out;
    memory_output_init(&out);
    node_flags_print(&out.out, NODE_MYSELF | NODE_REPLICA | NODE_FAIL);
    output_write(&out.out, SLICE(" "));
    node_flags_print(&out.out, NODE_MEET);
    output_write(&out.out, SLICE(" "));
    nodes_file_print_epochs(&out.out, 3, UINT64_MAX);
    assert_output(&out, "myself,slave,fail noflags vars currentEpoch 3 lastVoteEpoch 18446744073709551615\n");
}

TEST(names_and_values_have_no_character_of_the_format) {
    assert_true(node_text_valid(slice_of("")));
    assert_true(node_text_valid(slice_of("zone-1a.east_2:/Z\xc3\xa9")));
    for (int c = 0; c < 256; c++) {
        char text = (char)c;
        bool valid = c > ',' && c != 127 && !(c < 128 && strchr(";<=>?@[]^{|}~\\", c));
        assert_int_equal(node_text_valid((struct slice){&text, 1}), valid);
    }
}

TEST(an_empty_file_has_no_lines) {
    assert_true(parse("", false));
    assert_int_equal(file.count, 0);
    nodes_file_free(&file);
}

TEST(damaged_files_are_refused_with_a_reason) {
    static const struct {
        const char *text, *reason;
        size_t line;
    } cases[] = {
        {"\n", "no line has the flag myself", 0},
        {EPOCHS, "no line has the flag myself", 0},
        {OTHER " master - 0 0 0 connected\n" EPOCHS, "no line has the flag myself", 0},
        {ME "\n" OTHER " myself,master - 0 0 0 connected\n", "a second line has the flag myself", 2},
        {ME "\n" OTHER " master - 0 0 0\n", "1 of 8 columns are missing", 2},
        {ME "\n" OTHER "\n", "6 of 8 columns are missing", 2},
        {ME "\n" OTHER " master - 0 0 0 connected\n" EPOCHS OTHER " master - 0 0 0 connected\n",
         "Duplicate nodeid detected: " B, 0},
        {"# a comment with at least eight words in it\n", "the node id is not valid: '#'", 1},
        {"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA x:1@1 master - 0 0 0 connected\n",
         "the node id is not valid: 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'", 1},
        {A " foo" TAIL, "no port in the address: 'foo'", 1},
        {A " foo:x@1" TAIL, "the port is no number up to 65535: 'x'", 1},
        {A " foo:1@65536" TAIL, "the bus port is no number up to 65535: '65536'", 1},
        {A " foo:60000" TAIL, "the port is too large: 60000", 1},
        {A " 2001:db8:0000:0000:0000:0000:0000:0000:0000:00001:1@1" TAIL,
         "the address is too long: '2001:db8:0000:0000:0000:0000:0000:0000:0000:00001'", 1},
        {A " x:1@1,," TAIL, "no name=value: ''", 1},
        {A " x:1@1,,nodename" TAIL, "no name=value: 'nodename'", 1},
        {A " x:1@1,,nodename=a=b" TAIL, "no name=value: 'nodename=a=b'", 1},
        {A " x:1@1,,nodename=a;b" TAIL, "no name=value: 'nodename=a;b'", 1},
        {A " x:1@1,,=b" TAIL, "no name=value: '=b'", 1},
        {A " x:1@1,,shard-id=" TAIL, "the shard id is not valid: ''", 1},
        {A " x:1@1,,tls-port=-1" TAIL, "a port is no number up to 65535: '-1'", 1},
        {A " x:1@1,,client-ipv4=::1" TAIL, "no IPv4 address: '::1'", 1},
        {A " x:1@1,,client-ipv6=1.2.3.4" TAIL, "no IPv6 address: '1.2.3.4'", 1},
        {A " x:1@1 master,king - 0 0 0 connected\n", "unknown flag: 'king'", 1},
        {A " x:1@1 master, - 0 0 0 connected\n", "unknown flag: ''", 1},
        {A " x:1@1 slave abc 0 0 0 connected\n", "the primary is not valid: 'abc'", 1},
        {A " x:1@1 master - x 0 0 connected\n", "the time of a ping is no number up to 18446744073709551615: 'x'", 1},
        {A " x:1@1 master - 0 0 18446744073709551616 connected\n",
         "the epoch is no number up to 18446744073709551615: '18446744073709551616'", 1},
        {A " x:1@1 master - 0 0 0 conn\n", "unknown state of the link: 'conn'", 1},
        {ME " 16384\n", "a slot is no number up to 16383: '16384'", 1},
        {ME " 5-x\n", "a slot is no number up to 16383: 'x'", 1},
        {ME " 5-\n", "a slot is no number up to 16383: ''", 1},
        {ME " 5-4\n", "the range of slots is empty: '5-4'", 1},
        {ME " [\n", "an open slot is no number up to 16383: ''", 1},
        {ME " [5]\n", "an open slot is no number up to 16383: '5]'", 1},
        {ME " [5-\n", "no open slot: '[5-'", 1},
        {ME " [5->-" B "\n", "no open slot: '[5->-" B "'", 1},
        {ME " [5->-b]\n", "the node of an open slot is not valid: 'b'", 1},
        {ME "\nvars currentEpoch\n", "no value of 'currentEpoch'", 2},
        {ME "\nvars currentEpoch 1x\n", "an epoch is no number up to 18446744073709551615: '1x'", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_false(parse(cases[i].text, false));
        assert_string_equal(error.reason, cases[i].reason);
        assert_int_equal(error.number, cases[i].line);
    }
    struct memory_output out;
    memory_output_init(&out);
    assert_false(parse(ME "\n\nA line\n", false));
    nodes_file_print_error(&out.out, &error);
    assert_output(&out, "Unrecoverable error: corrupted cluster config file \"A line\". "
                        "Line 3: 6 of 8 columns are missing");
    static const char zeros[300];
    assert_false(nodes_file_parse((struct slice){zeros, sizeof zeros}, false, NULL, NULL, &file, &error));
}

TEST(the_log_has_the_lines_of_valkey) {
    char text[NODES_FILE_TEXT_MAX];
    nodes_file_in_use_text("nodes.conf", text);
    assert_string_equal(text, "Sorry, the cluster configuration file nodes.conf is already used by a different Cluster "
                              "node. Please make sure that different nodes use different cluster configuration files.");
    static const struct {
        enum file_step step;
        int error;
        const char *text;
    } cases[] = {
        {FILE_STEP_OPEN, EACCES, "Could not open temp cluster config file: Permission denied"},
        {FILE_STEP_WRITE, ENOSPC, "Failed after writing (7) bytes to tmp cluster config file: No space left on device"},
        {FILE_STEP_FSYNC, EIO, "Could not sync tmp cluster config file: Input/output error"},
        {FILE_STEP_RENAME, EISDIR, "Could not rename tmp cluster config file: Is a directory"},
        {FILE_STEP_DIR_FSYNC, EIO, "Could not sync cluster config file dir: Input/output error"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct file_written written = {.failed = cases[i].step, .error = -cases[i].error, .done = 7};
        nodes_file_failure_text(&written, text);
        assert_string_equal(text, cases[i].text);
    }
}
