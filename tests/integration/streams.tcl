# Streams: adding and reading entries. Consumer groups are in stream-groups.tcl; common properties of commands and of
# blocking are in command-table.tcl and blocking-table.tcl.

# A stream of this number of entries, MS-1 for MS = 1, 2, …, each with the field f with the value MS.
proc make_stream {key count} {
    r del $key
    for {set i 1} {$i <= $count} {incr i} {r xadd $key $i-1 f $i}
}
# The ids of the entries of an XRANGE reply.
proc ids {entries} {lmap entry $entries {lindex $entry 0}}
proc stream_info {key field} {dict get [r xinfo stream $key] $field}

start_server {tags {stream}} {
    test "XADD: ids that are given, chosen in part, and chosen" {
        r del s
        replies {
            {xadd s 0-0 f v} {-ERR The ID specified in XADD must be greater than 0-0}
            {exists s} :0
            {xadd s 0-* f v} {$0-1}
            {xadd s 0-* f v} {$0-2}
            {xadd s 1-1 f v} {$1-1}
            {xadd s 1-1 f v} {-ERR The ID specified in XADD is equal or smaller than the target stream top item}
            {xadd s 1-* f v} {$1-2}
            {xadd s 1 f v} {-ERR The ID specified in XADD is equal or smaller than the target stream top item}
            {xadd s 2 f v} {$2-0}
            {xadd s 1-* f v} {-ERR The ID specified in XADD is equal or smaller than the target stream top item}
            {xadd s 5-18446744073709551615 f v} {$5-18446744073709551615}
            {xadd s 5-* f v} {-ERR The ID specified in XADD is equal or smaller than the target stream top item}
            {xlen s} :6
        }
        set before [clock milliseconds]
        lassign [split [r xadd s * f v] -] ms seq
        assert_range $ms [expr {$before - 1000}] [expr {[clock milliseconds] + 1000}]
        assert_equal 0 $seq
        assert_equal [expr {$ms + 1000000}]-7 [r xadd s [expr {$ms + 1000000}]-7 f v]
        assert_equal [expr {$ms + 1000000}]-8 [r xadd s * f v]
    }

    test "XADD: behind the last id of all there is none" {
        r del s
        replies {
            {xadd s 18446744073709551615-18446744073709551614 f v} {$18446744073709551615-18446744073709551614}
            {xadd s * f v} {$18446744073709551615-18446744073709551615}
            {xadd s * f v} {-ERR The stream has exhausted the last possible ID, unable to add more items}
            {xadd s 18446744073709551615-* f v}\
                {-ERR The stream has exhausted the last possible ID, unable to add more items}
            {xadd s 1-1 f v} {-ERR The stream has exhausted the last possible ID, unable to add more items}
            {xlen s} :2
        }
    }

    test "XADD: what is no id, and how numbers in ids are read" {
        r del s
        foreach id {-* - + $ abc {} 10- *-* *-1 ** 10-** 10-*5 10* 1-1-1 0x10-1 (5 18446744073709551616-1 3-- 9--1\
            -05-1 {8 -1}} {
            assert_typed "-ERR Invalid stream ID specified as stream command argument" xadd s $id f v
        }
        assert_typed "-ERR Invalid stream ID specified as stream command argument" xadd s [string repeat 0 130]-1 f v
        replies {
            {xadd s +5-+6 f v} {$5-6}
            {xadd s { 7-1} f v} {$7-1}
            {xadd s {8- 1} f v} {$8-1}
            {xadd s 009-01 f v} {$9-1}
            {xadd s 9--01 f v} {$9-18446744073709551615}
        }
    }

    test "XADD: options and their errors" {
        make_stream s 3
        replies {
            {xadd s maxlen 2 5-1 f v} {$5-1}
            {xlen s} :2
            {xadd s MAXLEN = 2 5-3 f v} {$5-3}
            {xadd s maxlen ~ 2 5-4 f v} {$5-4}
            {xlen s} :3
            {xadd s minid 5-3 5-5 f v} {$5-5}
            {xlen s} :3
            {xadd s nomkstream maxlen 0 5-8 f v} {$5-8}
            {xlen s} :0
            {exists s} :1
            {xadd s nomkstream nomkstream 5-9 f v} {$5-9}
            {xadd s maxlen ~ 2 limit 0 6-1 f v} {$6-1}
            {xadd s limit 7 maxlen ~ 2 6-2 f v} {$6-2}
            {xadd none nomkstream * f v} nil$
            {exists none} :0
            {xadd s * f} {-ERR wrong number of arguments for 'xadd' command}
            {xadd s * f v g} {-ERR wrong number of arguments for 'xadd' command}
            {xadd s maxlen 5 6 f} {-ERR wrong number of arguments for 'xadd' command}
            {xadd s maxlen -1 7-1 f v} {-ERR The MAXLEN argument must be >= 0.}
            {xadd s maxlen abc 7-1 f v} {-ERR value is not an integer or out of range}
            {xadd s minid + 7-1 f v} {-ERR Invalid stream ID specified as stream command argument}
            {xadd s maxlen 2 limit 1 7-1 f v} {-ERR syntax error, LIMIT cannot be used without the special ~ option}
            {xadd s limit 0 7-1 f v} {-ERR syntax error, LIMIT cannot be used without the special ~ option}
            {xadd s limit 5 7-1 f v} {-ERR syntax error, LIMIT cannot be used without specifying a trimming strategy}
            {xadd s maxlen ~ 2 limit -1 7-1 f v} {-ERR The LIMIT argument must be >= 0.}
            {xadd s maxlen ~ 2 limit abc 7-1 f v} {-ERR value is not an integer or out of range}
            {xadd s maxlen 2 minid 3 7-1 f v}\
                {-ERR syntax error, MAXLEN and MINID options at the same time are not compatible}
            {xadd s maxlen 2 maxlen 3 7-1 f v}\
                {-ERR syntax error, MAXLEN and MINID options at the same time are not compatible}
            {xadd s 7-1 limit 3} {$7-1}
        }
    }

    test "XRANGE and XREVRANGE: intervals, their ends, COUNT" {
        r del s
        r xadd s 1-1 a 1
        r xadd s 1-2 a 2 c d
        r xadd s 2-1 a 3
        r xadd s 3-1 b 4
        replies {
            {xrange s - + count 2} {* {* {$1-1} {* {$a} {$1}}} {* {$1-2} {* {$a} {$2} {$c} {$d}}}}
            {xrevrange s + - count 1} {* {* {$3-1} {* {$b} {$4}}}}
            {xrange s + -} {*}
            {xrange s - + count 0} nil*
            {xrange s - + count -1} nil*
            {xrange s - (0} {*}
            {xrange none - +} {*}
            {xrange none - + count 0} {*}
            {xrange s ( +} {-ERR Invalid stream ID specified as stream command argument}
            {xrange s (- +} {-ERR Invalid stream ID specified as stream command argument}
            {xrange s - (+} {-ERR Invalid stream ID specified as stream command argument}
            {xrange s $ +} {-ERR Invalid stream ID specified as stream command argument}
            {xrange s (18446744073709551615-18446744073709551615 +} {-ERR invalid start ID for the interval}
            {xrange s - (0-0} {-ERR invalid end ID for the interval}
            {xrevrange s + (18446744073709551615-18446744073709551615} {-ERR invalid start ID for the interval}
            {xrevrange s (0-0 -} {-ERR invalid end ID for the interval}
            {xrange s - + count} {-ERR syntax error}
            {xrange s - + foo 1} {-ERR syntax error}
            {xrange s - + count abc} {-ERR value is not an integer or out of range}
        }
        foreach {first last expected} {
            - + {1-1 1-2 2-1 3-1}  1 1 {1-1 1-2}  1-1 2 {1-1 1-2 2-1}  (1-1 (3-1 {1-2 2-1}  (1 (2\
                {1-1 1-2 2-1}  (1-2 + {2-1 3-1}  2 2-0 {}  9 + {}
        } {
            assert_equal $expected [ids [r xrange s $first $last]]
            assert_equal [lreverse $expected] [ids [r xrevrange s $last $first]]
        }
    }

    test "ranges over many nodes and deleted entries agree with a list of what is there" {
        with_config {stream-node-max-entries 7} {
            r del s
            set there {}
            for {set i 1} {$i <= 400} {incr i} {
                lappend there [r xadd s [expr {$i / 3}]-* f $i]
                if {rand() < 0.2} {
                    set at [randint [llength $there]]
                    assert_equal 1 [r xdel s [lindex $there $at]]
                    set there [lreplace $there $at $at]
                }
            }
            assert_equal [llength $there] [r xlen s]
            assert_equal $there [ids [r xrange s - +]]
            assert_equal [lreverse $there] [ids [r xrevrange s + -]]
            for {set i 0} {$i < 300} {incr i} {
                set a [randint [llength $there]]
                set b [randint [llength $there]]
                set count [expr {1 + [randint 20]}]
                set part [lrange $there $a $b]
                assert_equal [lrange $part 0 $count-1] \
                    [ids [r xrange s [lindex $there $a] [lindex $there $b] count $count]]
                assert_equal [lreverse [lrange $part end-[expr {$count - 1}] end]] \
                    [ids [r xrevrange s [lindex $there $b] [lindex $there $a] count $count]]
                assert_equal [lrange $there $a+1 $a+$count] \
                    [ids [lindex [r xread count $count streams s [lindex $there $a]] 0 1]]
            }
        }
    }

    test "fields and values: many, long, numbers, empty, binary" {
        r del s
        set big [string repeat x 300000]
        set entries [list {f v} {{} {}} {1 2 03 4 -5 9223372036854775807 1.5 "\x00\xff"} [list $big $big] \
            {f v f v} {f w g x}]
        foreach fields $entries {r xadd s * {*}$fields}
        set got [r xrange s - +]
        foreach fields $entries entry $got {assert_equal [list {*}$fields] [lindex $entry 1]}
        set many {}
        for {set i 0} {$i < 2000} {incr i} {lappend many f$i $i}
        set id [r xadd s * {*}$many]
        assert_equal [list [list $id $many]] [r xrange s $id $id]
    }

    test "XDEL deletes what is there, and the key stays" {
        make_stream s 3
        replies {
            {xdel s 1-1 1-1 9-9} :1
            {xdel s 2-1 abc} {-ERR Invalid stream ID specified as stream command argument}
            {xlen s} :2
            {xdel s -} {-ERR Invalid stream ID specified as stream command argument}
            {xdel none abc} :0
            {xdel s 2-1 3-1} :2
            {xlen s} :0
            {exists s} :1
            {xrange s - +} {*}
            {xadd s 3-1 f v} {-ERR The ID specified in XADD is equal or smaller than the target stream top item}
            {xadd s 3-2 f v} {$3-2}
        }
    }

    test "XTRIM: exactly, and by whole nodes" {
        with_config {stream-node-max-entries 10} {
            make_stream s 100
            replies {
                {xtrim s maxlen 95} :5
                {xtrim s maxlen = 95} :0
                {xtrim s maxlen ~ 92} :0
                {xtrim s maxlen ~ 85} :5
                {xtrim s maxlen ~ 50 limit 25} :20
                {xtrim s maxlen ~ 50 limit 5} :0
                {xtrim s minid 33} :2
                {xtrim s minid ~ 55} :18
                {xlen s} :50
                {xtrim s minid ~ 75 limit 0} :20
                {xtrim none maxlen 1} :0
                {xtrim s maxlen 0} :30
                {exists s} :1
                {xtrim s limit 3} {-ERR syntax error, LIMIT cannot be used without specifying a trimming strategy}
                {xtrim s limit 0 limit 0} {-ERR syntax error, XTRIM must be called with a trimming strategy}
                {xtrim s maxlen 1 limit 3} {-ERR syntax error, LIMIT cannot be used without the special ~ option}
                {xtrim s maxlen 1 minid 0}\
                    {-ERR syntax error, MAXLEN and MINID options at the same time are not compatible}
                {xtrim s nomkstream maxlen 0} {-ERR syntax error}
                {xtrim s foo 1} {-ERR syntax error}
                {xtrim s maxlen ~} {-ERR value is not an integer or out of range}
                {xtrim s minid ~} {-ERR Invalid stream ID specified as stream command argument}
            }
        }
    }

    test "approximate XTRIM without LIMIT removes at most a hundred nodes" {
        with_config {stream-node-max-entries 3} {
            make_stream s 400
            assert_equal 300 [r xtrim s maxlen ~ 0]
            assert_equal 99 [r xtrim s maxlen ~ 1]
            assert_equal 1 [r xlen s]
        }
    }

    test "XSETID" {
        make_stream s 3
        r xdel s 2-1
        replies {
            {xsetid s 2-9} {-ERR The ID specified in XSETID is smaller than the target stream top item}
            {xsetid s 1-9} {-ERR The ID specified in XSETID is smaller than current max_deleted_entry_id}
            {xsetid s 3-1} +OK
            {xsetid s 9} +OK
            {xadd s 9-0 f v} {-ERR The ID specified in XADD is equal or smaller than the target stream top item}
            {xsetid s 10-1 entriesadded 1}\
                {-ERR The entries_added specified in XSETID is smaller than the target stream length}
            {xsetid s 10-1 entriesadded -1} {-ERR entries_added must be positive}
            {xsetid s 10-1 entriesadded abc} {-ERR value is not an integer or out of range}
            {xsetid s 10-1 entriesadded} {-ERR syntax error}
            {xsetid s 10-1 foo 1} {-ERR syntax error}
            {xsetid s 10-1 maxdeletedid 11-1}\
                {-ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id}
            {xsetid s 10-1 maxdeletedid 8-1 entriesadded 70} +OK
            {xsetid s -} {-ERR Invalid stream ID specified as stream command argument}
            {xsetid none 1-1} {-ERR no such key}
            {xsetid none abc} {-ERR Invalid stream ID specified as stream command argument}
        }
        assert_equal {10-1 8-1 70} \
            [lmap field {last-generated-id max-deleted-entry-id entries-added} {stream_info s $field}]
    }

    test "XREAD: several streams, COUNT, \$ and +" {
        r del s t
        r xadd s 1-1 a 1
        r xadd s 1-2 a 2
        r xadd t 5-1 x y
        replies {
            {xread streams s t 0 0} {* {* {$s} {* {* {$1-1} {* {$a} {$1}}} {* {$1-2} {* {$a} {$2}}}}}\
                {* {$t} {* {* {$5-1} {* {$x} {$y}}}}}}
            {xread count 1 streams s t 0 9} {* {* {$s} {* {* {$1-1} {* {$a} {$1}}}}}}
            {xread count 0 streams s 1-1} {* {* {$s} {* {* {$1-2} {* {$a} {$2}}}}}}
            {xread count -1 streams s 1} {* {* {$s} {* {* {$1-1} {* {$a} {$1}}} {* {$1-2} {* {$a} {$2}}}}}}
            {xread streams s $} nil*
            {xread streams none s 0 +} {* {* {$s} {* {* {$1-2} {* {$a} {$2}}}}}}
            {xread streams none +} nil*
            {xread streams s 18446744073709551615-18446744073709551615} nil*
            {xread streams s s 1-1 1-1} {* {* {$s} {* {* {$1-2} {* {$a} {$2}}}}} {* {$s} {* {* {$1-2} {* {$a} {$2}}}}}}
            {xread streams s >} {-ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group>\
                <consumer> option.}
            {xread count 1 streams s}\
                {-ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be specified.}
            {xread streams s (1} {-ERR Invalid stream ID specified as stream command argument}
            {xread foo streams s 0} {-ERR syntax error}
            {xread count 1 block 1} {-ERR syntax error}
            {xread count abc streams s 0} {-ERR value is not an integer or out of range}
            {xread block abc streams s 0} {-ERR timeout is not an integer or out of range}
            {xread block -1 streams s 0} {-ERR timeout is negative}
            {xread noack streams s 0} {-ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.}
            {xread group g c streams s 0}\
                {-ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.}
            {xgroup create empty g 0 mkstream} +OK
            {xread streams empty +} nil*
            {xdel s 1-2} :1
            {xread streams s +} nil*
        }
        set c [new_client -resp 3]
        assert_reply $c {% {$t} {* {* {$5-1} {* {$x} {$y}}}}} xread streams t 0
        assert_reply $c _ xread streams t 5-1
    }

    test "a client that waits with \$ gets entries added since, also when the key was created again" {
        make_stream s 2
        set c [blocked_by xread block 0 streams s {$}]
        r del s
        r xadd s 1-5 f old
        r set s string
        r del s
        foreach command {multi {xadd s 2-2 f a} {xadd s 3-1 f b} {xdel s 2-2} exec} {r {*}$command}
        assert_equal {{s {{3-1 {f b}}}}} [$c -read]
    }

    test "a client that waits with + gets the last entry of those added together" {
        r del s
        set c [blocked_by xread block 0 streams s +]
        foreach command {multi {xadd s 1-1 f a} {xadd s 1-2 f b} exec} {r {*}$command}
        assert_equal {{s {{1-2 {f b}}}}} [$c -read]
    }

    test "all clients that wait for a stream are served by one entry" {
        r del s
        set clients {}
        for {set i 0} {$i < 20} {incr i} {
            set c [new_client]
            $c -send xread block 0 streams other s 0 0
            lappend clients $c
        }
        wait_blocked 20
        r xadd s 1-1 f v
        foreach c $clients {
            assert_equal {{s {{1-1 {f v}}}}} [$c -read]
            $c -close
        }
    }

    test "XINFO STREAM" {
        make_stream s 3
        r xdel s 1-1
        r xgroup create s g 0
        replies {
            {xinfo stream s} {* {$length} :2 {$radix-tree-keys} :1 {$radix-tree-nodes} :2 {$last-generated-id} {$3-1}\
                {$max-deleted-entry-id} {$1-1} {$entries-added} :3
                {$recorded-first-entry-id} {$2-1} {$groups} :1 {$first-entry} {* {$2-1} {* {$f} {$2}}} {$last-entry}\
                    {* {$3-1} {* {$f} {$3}}}}
            {xdel s 2-1 3-1} :2
            {xinfo stream s} {* {$length} :0 {$radix-tree-keys} :0 {$radix-tree-nodes} :1 {$last-generated-id} {$3-1}\
                {$max-deleted-entry-id} {$3-1} {$entries-added} :3
                {$recorded-first-entry-id} {$0-0} {$groups} :1 {$first-entry} nil$ {$last-entry} nil$}
            {xinfo stream none} {-ERR no such key}
            {xinfo stream s foo} {-ERR unknown subcommand or wrong number of arguments for 'stream'. Try XINFO HELP.}
            {xinfo STREAM s full count}\
                {-ERR unknown subcommand or wrong number of arguments for 'STREAM'. Try XINFO HELP.}
            {xinfo stream s full foo 1}\
                {-ERR unknown subcommand or wrong number of arguments for 'stream'. Try XINFO HELP.}
            {xinfo stream s full count abc} {-ERR value is not an integer or out of range}
            {xinfo foo} {-ERR unknown subcommand 'foo'. Try XINFO HELP.}
        }
        assert_equal "XINFO <subcommand> \[<arg> \[value\] \[opt\] ...\]. Subcommands are:" [lindex [r xinfo help] 0]
        with_config {stream-node-max-entries 10} {
            make_stream s 35
            assert_equal 4 [stream_info s radix-tree-keys]
        }
        with_config {stream-node-max-bytes 4096} {
            make_stream s 3
            for {set i 4} {$i < 9} {incr i} {r xadd s $i-1 f [string repeat x 1500]}
            assert_equal 3 [stream_info s radix-tree-keys]
        }
    }

    test "streams are copied, renamed and moved with all they have" {
        make_stream s 5
        r xdel s 2-1
        r xgroup create s g 0
        r xreadgroup group g c count 2 streams s >
        set all [r xinfo stream s full]
        r del t
        r copy s t
        r rename s u
        r move u 1
        assert_equal $all [r xinfo stream t full]
        r select 1
        assert_equal $all [r xinfo stream u full]
        assert_equal {1-1 3-1 4-1 5-1} [ids [r xrange u - +]]
        r del u s
        r select 0
        r xadd t * f v
        assert_equal 5 [r xlen t]
        assert_equal stream [r type t]
        assert_encoding stream t
    }

    test "what XADD and XTRIM did is repeated exactly" {
        r flushall
        set f [new_follower]
        with_config {stream-node-max-entries 2} {
            make_stream s 4
            heard $f
            r xadd s 5-* a b
            r xadd s maxlen ~ 3 6-1 a b
            r xadd s minid ~ 3-1 limit 5 6-* a b
            r xadd s maxlen = 3 7 a b
            r xadd s nomkstream minid ~ 99 limit 0 8-1 a b
            r xtrim s maxlen ~ 0
            r xadd s 9-1 a b
            r xadd s 9-2 a b
            r xtrim s minid ~ 99 limit 10
        }
        assert_equal [list {*}{
            {xadd s 5-0 a b} {xadd s maxlen = 4 6-1 a b} {xadd s minid = 3-1 limit 5 6-2 a b} {xadd s maxlen = 3 7 a b}
            {xadd s nomkstream minid = 18446744073709551615-18446744073709551615 limit 0 8-1 a b} {xadd s 9-1 a b}\
                {xadd s 9-2 a b}
            {xtrim s minid = 18446744073709551615-18446744073709551615 limit 10}
        }] [heard $f]
    }

    test "only what changes entries touches watched keys" {
        foreach {touches commands} {
            1 {{xadd s 9-1 f v} {xdel s 1-1} {xtrim s maxlen 1} {xgroup create n g 0 mkstream}}
            0 {{xdel s 8-8} {xtrim s maxlen 9} {xsetid s 9-1} {xgroup create s h 0} {xgroup setid s g 0}\
                {xgroup destroy s g} {xgroup createconsumer s g d}
               {xgroup delconsumer s g c} {xreadgroup group g c streams s >} {xack s g 1-1} {xclaim s g d 0 1-1}\
                   {xautoclaim s g d 0 0}}
        } {
            foreach command $commands {
                r flushall
                make_stream s 3
                r xgroup create s g 0
                r xreadgroup group g c count 1 streams s >
                set c [new_client]
                foreach prepare {{watch s n} multi ping} {$c {*}$prepare}
                r {*}$command
                assert_equal [expr {$touches ? "" : "PONG"}] [$c exec] $command
                $c -close
            }
        }
    }

    test "XREAD with + of a stream that never had an entry finds nothing" {
        r del s other
        r xgroup create s g $ mkstream
        assert_typed nil* xread streams s +
        r xadd other 1-1 f v
        assert_equal {{other {{1-1 {f v}}}}} [r xread streams s other + +]
    }
}
