# Streams that modules read and change through the keys that they open. The module is tests/modules/streams.c; each
# command replies with a result or the name of an error.

set streams [file join $::root build modules streams.so]
start_server [list overrides [list loadmodule $streams enable-debug-command yes] tags {modules}] {
    test "StreamAdd appends entries, and says why it does not" {
        r set text x
        assert_equal {1-1 EDOM EDOM EINVAL EINVAL ENOTSUP} [list \
            [r streams.add s 0 1-1 a b c d] [r streams.add s 0 1-1 a b] [r streams.add s 0 0-0 a b] \
            [r streams.add s 0 none a b] [r streams.add s 2 2-1 a b] [r streams.add text 0 2-1 a b]]
        assert_equal 2-1 [r streams.add s 0 2-1]
        assert_equal 3-1 [r streams.add s 0 3-1 x y]
        assert_equal {{1-1 {a b c d}} {2-1 {}} {3-1 {x y}}} [r xrange s - +]
        assert_equal EDOM [r streams.add none 0 0-0 a b]
        assert_equal 0 [r exists none]
        set id [r streams.add own 1 7-7 a b]
        assert_equal [list [list $id {a b}]] [r xrange own - +]
        set last 18446744073709551615-18446744073709551615
        assert_equal [list $last EFBIG EFBIG] [list [r streams.add full 0 $last a b] [r streams.add full 1 none a b] \
            [r streams.add full 0 5-5 a b]]
    }

    test "entries without fields are in files and payloads, too" {
        r streams.add bare 0 1-1
        r streams.add bare 0 2-1 a b
        r streams.add mixed 0 1-1 a b
        r streams.add mixed 0 2-1
        set entries {{{1-1 {}} {2-1 {a b}}} {{1-1 {a b}} {2-1 {}}}}
        r debug reload
        assert_equal $entries [list [r xrange bare - +] [r xrange mixed - +]]
        r restore copied 0 [r dump bare]
        assert_equal [lindex $entries 0] [r xrange copied - +]
        r xdel bare 1-1
        r xdel copied 2-1
        r config set aof-use-rdb-preamble no appendonly yes
        wait_for_condition 10000 {
            [info_field aof_rewrite_in_progress] == 0 && [info_field aof_rewrite_scheduled] == 0
        }
        r debug loadaof
        assert_equal {{{2-1 {a b}}} {{1-1 {}}}} [list [r xrange bare - +] [r xrange copied - +]]
        assert_equal [lindex $entries 1] [r xrange mixed - +]
        r config set appendonly no aof-use-rdb-preamble yes
        r del bare mixed copied
    }

    test "an iterator reads a range up and down" {
        r del s
        r streams.add s 0 1-1 a b c d
        r streams.add s 0 2-1
        r streams.add s 0 3-1 x y
        assert_equal {{1-1 a b c d} 2-1 {3-1 x y} ENOENT 0} [r streams.range s 0 none none]
        assert_equal {{3-1 x y} 2-1 {1-1 a b c d} ENOENT 0} [r streams.range s 2 none none]
        assert_equal {2-1 ENOENT 0} [r streams.range s 1 1-1 3-1]
        assert_equal {2-1 ENOENT 0} [r streams.range s 3 1-1 3-1]
        assert_equal {{3-1 x y} ENOENT 0} [r streams.range s 0 2-2 9-0]
        assert_equal {ENOENT 0} [r streams.range s 0 9-0 1-0]
        set last 18446744073709551615-18446744073709551615
        assert_equal {EDOM EDOM EINVAL EINVAL ENOTSUP} [list [r streams.range s 1 $last none] \
            [r streams.range s 1 none 0-0] [r streams.range s 4 none none] [r streams.range missing 0 none none] \
            [r streams.range text 0 none none]]
    }

    test "an iterator deletes the entries that it has read" {
        r config set stream-node-max-entries 3
        for {set i 1} {$i <= 8} {incr i} {r streams.add d 0 $i-0 f v$i}
        assert_equal {{7-0 f v7} {6-0 f v6} {5-0 f v5} {4-0 f v4} {3-0 f v3} {2-0 f v2} ENOENT 0} \
            [r streams.range d 2 2-0 7-0 DELETE]
        assert_equal {{1-0 {f v1}} {8-0 {f v8}}} [r xrange d - +]
        assert_equal {{1-0 f v1} {8-0 f v8} ENOENT 0} [r streams.range d 0 none none DELETE]
        assert_equal {0 1} [list [r xlen d] [r exists d]]
    }

    test "StreamDelete and StreamTrim remove entries" {
        for {set i 1} {$i <= 10} {incr i} {r streams.add t 0 $i-0 f v}
        assert_equal {0 ENOENT ENOTSUP ENOTSUP EINVAL} [list [r streams.delete t 10-0] [r streams.delete t 10-0] \
            [r streams.delete missing 1-0] [r streams.delete text 1-0] [r streams.delete t none]]
        assert_equal {3 3 2 0} [list [r streams.trim LENGTH t 1 5] [r streams.trim ID t 1 7-0] \
            [r streams.trim LENGTH t 0 1] [r streams.trim LENGTH t 0 1]]
        assert_equal {{9-0 {f v}}} [r xrange t - +]
        assert_equal {EINVAL EINVAL EINVAL ENOTSUP ENOTSUP} [list [r streams.trim LENGTH t 0 -1] \
            [r streams.trim LENGTH t 2 1] [r streams.trim ID t 0 none] [r streams.trim ID missing 0 9-0] \
            [r streams.trim ID text 0 9-0]]
        assert_equal {1 1} [list [r streams.trim ID t 0 99-0] [r exists t]]
    }

    test "functions of streams that are called at the wrong time do nothing" {
        r del s
        r streams.add s 0 1-1 a b
        r streams.add s 0 2-1 c d
        set answers [r streams.misuse s]
        assert_equal {EBADF EBADF EBADF EBADF EBADF EBADF EBADF EINVAL 0 EBADF EBADF ENOENT} [lrange $answers 0 11]
        assert_equal {ENOENT 0 0 ENOENT 0 0 EBADF EINVAL EINVAL EINVAL EINVAL} [lrange $answers 12 end]
        assert_equal {{2-1 {c d}}} [r xrange s - +]
        assert_equal {{2-1 c d} ENOENT 0} [r streams.range s 0 none none]
    }

    test "a client that waits for a stream is served by StreamAdd" {
        set c [new_client]
        $c -send xread block 0 streams waited 0
        wait_for_condition 5000 {[info_field blocked_clients] == 1} "the client does not wait"
        r streams.add waited 0 1-0 a b
        assert_equal {{waited {{1-0 {a b}}}}} [$c -read]
    }
}
