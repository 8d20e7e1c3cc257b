# Consumer groups of streams. The commands on entries are in streams.tcl.

proc ids {entries} {lmap entry $entries {lindex $entry 0}}
# A stream of the entries 1-1, 2-1, …, and a group g that has read nothing.
proc make_group {{count 5} {key s}} {
    r del $key
    for {set i 1} {$i <= $count} {incr i} {r xadd $key $i-1 f $i}
    r xgroup create $key g 0
}
proc group_info {field {key s} {group g}} {
    foreach info [r xinfo groups $key] {if {[dict get $info name] eq $group} {return [dict get $info $field]}}
    error "no group $group"
}
proc consumer_info {consumer field} {
    foreach info [r xinfo consumers s g] {if {[dict get $info name] eq $consumer} {return [dict get $info $field]}}
    error "no consumer $consumer"
}
# {id consumer deliveries} of all pending entries.
proc pending {} {
    lmap entry [r xpending s g - + 1000] {lassign $entry id consumer idle deliveries; list $id $consumer $deliveries}
}

set ::no_key_for_group "-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use\
    the MKSTREAM option to create an empty stream automatically."

start_server {tags {stream}} {
    test "XGROUP CREATE and SETID" {
        make_group 3
        assert_typed $::no_key_for_group xgroup create none g 0
        replies {
            {xgroup create s g $} {-BUSYGROUP Consumer Group name already exists}
            {xgroup create none g 0 mkstream} +OK
            {xgroup create none g 0 mkstream} {-BUSYGROUP Consumer Group name already exists}
            {xlen none} :0
            {del none} :1
            {xgroup create s h 1 ENTRIESREAD 99 MKSTREAM} +OK
            {xgroup create s i 2 entriesread -1} +OK
            {xgroup create s j -} {-ERR Invalid stream ID specified as stream command argument}
            {xgroup create s j abc} {-ERR Invalid stream ID specified as stream command argument}
            {xgroup create s j 0 entriesread -2} {-ERR value for ENTRIESREAD must be positive or -1}
            {xgroup create s j 0 entriesread abc} {-ERR value is not an integer or out of range}
            {xgroup create s j 0 entriesread}\
                {-ERR unknown subcommand or wrong number of arguments for 'create'. Try XGROUP HELP.}
            {xgroup CREATE s j 0 foo}\
                {-ERR unknown subcommand or wrong number of arguments for 'CREATE'. Try XGROUP HELP.}
            {xgroup create s j 0 mkstream mkstream mkstream mkstream}\
                {-ERR unknown subcommand or wrong number of arguments for 'create'. Try XGROUP HELP.}
            {xgroup setid s nosuch 0} {-NOGROUP No such consumer group 'nosuch' for key name 's'}
            {xgroup setid s g 0 mkstream}\
                {-ERR unknown subcommand or wrong number of arguments for 'setid'. Try XGROUP HELP.}
            {xgroup setid s g 0 entriesread 2 entriesread 3}\
                {-ERR unknown subcommand or wrong number of arguments for 'setid'. Try XGROUP HELP.}
            {xgroup setid s g (1} {-ERR Invalid stream ID specified as stream command argument}
        }
        foreach {id last} {2 2-0 $ 3-1 1-5 1-5 - 0-0 + 18446744073709551615-18446744073709551615} {
            r xgroup setid s g $id
            assert_equal $last [group_info last-delivered-id]
        }
        r xgroup setid s g 0 entriesread 2
        assert_equal {2 1} [list [group_info entries-read] [group_info lag]]
        assert_equal "XGROUP <subcommand> \[<arg> \[value\] \[opt\] ...\]. Subcommands are:" [lindex [r xgroup help] 0]
    }

    test "XGROUP DESTROY, CREATECONSUMER and DELCONSUMER" {
        make_group 3
        replies {
            {xgroup createconsumer s g c} :1
            {xgroup createconsumer s g c} :0
            {xgroup createconsumer s nosuch c} {-NOGROUP No such consumer group 'nosuch' for key name 's'}
            {xgroup delconsumer s nosuch c} {-NOGROUP No such consumer group 'nosuch' for key name 's'}
            {xgroup delconsumer s g nobody} :0
        }
        r xreadgroup group g c count 2 streams s >
        r xreadgroup group g d streams s >
        replies {
            {xgroup delconsumer s g c} :2
            {xpending s g} {* :1 {$3-1} {$3-1} {* {* {$d} {$1}}}}
            {xgroup destroy s g} :1
            {xgroup destroy s g} :0
            {xpending s g} {-NOGROUP No such key 's' or consumer group 'g'}
            {xgroup foo} {-ERR unknown subcommand 'foo'. Try XGROUP HELP.}
        }
        foreach sub {{destroy none g} {createconsumer none g c} {delconsumer none g c} {setid none g 0}} {
            assert_typed $::no_key_for_group xgroup {*}$sub
        }
    }

    test "XREADGROUP delivers each entry once, and shows again what is pending" {
        make_group 5
        replies {
            {xreadgroup group g a count 2 streams s >}\
                {* {* {$s} {* {* {$1-1} {* {$f} {$1}}} {* {$2-1} {* {$f} {$2}}}}}}
            {xreadgroup group g b count 1 streams s >} {* {* {$s} {* {* {$3-1} {* {$f} {$3}}}}}}
            {xreadgroup group g a streams s 0} {* {* {$s} {* {* {$1-1} {* {$f} {$1}}} {* {$2-1} {* {$f} {$2}}}}}}
            {xreadgroup group g a streams s 1-1} {* {* {$s} {* {* {$2-1} {* {$f} {$2}}}}}}
            {xreadgroup group g a count 1 streams s 0} {* {* {$s} {* {* {$1-1} {* {$f} {$1}}}}}}
            {xreadgroup group g c streams s 0} {* {* {$s} *}}
            {xreadgroup group g a count 0 streams s >}\
                {* {* {$s} {* {* {$4-1} {* {$f} {$4}}} {* {$5-1} {* {$f} {$5}}}}}}
            {xreadgroup group g a streams s >} nil*
            {xdel s 2-1} :1
            {xreadgroup group g a streams s 1-5}\
                {* {* {$s} {* {* {$2-1} nil*} {* {$4-1} {* {$f} {$4}}} {* {$5-1} {* {$f} {$5}}}}}}
        }
        assert_equal {{1-1 a 3} {2-1 a 3} {3-1 b 1} {4-1 a 2} {5-1 a 2}} [pending]
        set c [new_client -resp 3]
        assert_reply $c {% {$s} {* {* {$2-1} _} {* {$4-1} {* {$f} {$4}}}}} xreadgroup group g a count 2 streams s 1-1
        assert_reply $c _ xreadgroup group g a streams s >
    }

    test "XREADGROUP: NOACK" {
        make_group 3
        replies {
            {xreadgroup group g a noack count 2 streams s >}\
                {* {* {$s} {* {* {$1-1} {* {$f} {$1}}} {* {$2-1} {* {$f} {$2}}}}}}
            {xreadgroup group g a noack streams s 0} {* {* {$s} *}}
            {xpending s g} {* :0 nil$ nil$ nil*}
        }
        assert_equal {2-1 2 1} [list [group_info last-delivered-id] [group_info entries-read] [group_info lag]]
        assert_equal -1 [consumer_info a inactive]
    }

    test "XREADGROUP: several streams, the same one twice" {
        make_group 2
        make_group 2 t
        replies {
            {xreadgroup group g a count 1 streams s s t > > 0}\
                {* {* {$s} {* {* {$1-1} {* {$f} {$1}}}}} {* {$s} {* {* {$2-1} {* {$f} {$2}}}}} {* {$t} *}}
            {xreadgroup group g a streams s t > >} {* {* {$t} {* {* {$1-1} {* {$f} {$1}}} {* {$2-1} {* {$f} {$2}}}}}}
            {xreadgroup group g a streams t t > >} nil*
            {xgroup setid t g 0} +OK
            {xreadgroup group g b streams t t > >} {* {* {$t} {* {* {$1-1} {* {$f} {$1}}} {* {$2-1} {* {$f} {$2}}}}}}
            {xpending t g} {* :2 {$1-1} {$2-1} {* {* {$b} {$2}}}}
        }
    }

    test "XREADGROUP: errors" {
        make_group 1
        r set string x
        replies {
            {xreadgroup group nosuch a streams s >}\
                {-NOGROUP No such key 's' or consumer group 'nosuch' in XREADGROUP with GROUP option}
            {xreadgroup group g a streams s none > >}\
                {-NOGROUP No such key 'none' or consumer group 'g' in XREADGROUP with GROUP option}
            {xreadgroup group g a streams s string > >}\
                {-WRONGTYPE Operation against a key holding the wrong kind of value}
            {xreadgroup group g a streams s $}\
                {-ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this\
                consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an\
                empty result set.}
            {xreadgroup group g a streams s +}\
                {-ERR The + ID is meaningless in the context of XREADGROUP: you want to read the history of this\
                consumer by specifying a proper ID, or use the > ID to get new messages. The + ID would just return an\
                empty result set.}
            {xreadgroup group g a streams s abc} {-ERR Invalid stream ID specified as stream command argument}
            {xreadgroup count 1 block 1 streams s >} {-ERR Missing GROUP option for XREADGROUP}
            {xreadgroup group g a streams s > >}\
                {-ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified.}
            {xreadgroup group g a block abc streams s >} {-ERR timeout is not an integer or out of range}
            {xreadgroup group g a foo streams s >} {-ERR syntax error}
        }
        assert_equal {} [r xinfo consumers s g]
    }

    test "XACK" {
        make_group 3
        r xreadgroup group g a streams s >
        replies {
            {xack s g 1-1 1-1 9-9} :1
            {xack s g 2-1 abc} {-ERR Invalid stream ID specified as stream command argument}
            {xack s nosuch abc} :0
            {xack none g abc} :0
            {xack s g 3-1 2-1} :2
            {xpending s g} {* :0 nil$ nil$ nil*}
            {xlen s} :3
        }
    }

    test "XPENDING" {
        make_group 4
        r xreadgroup group g a count 3 streams s >
        r xreadgroup group g b streams s >
        replies {
            {xpending s g} {* :4 {$1-1} {$4-1} {* {* {$a} {$3}} {* {$b} {$1}}}}
            {xpending s g - + 0} *
            {xpending s g - + -1} *
            {xpending s g + - 10} *
            {xpending s g - + 10 nobody} *
            {xpending s g idle 10000000 - + 10} *
            {xpending s g - +} {-ERR syntax error}
            {xpending s g foo} {-ERR syntax error}
            {xpending s g idle 0 - +} {-ERR syntax error}
            {xpending s g idle 0 - + 10 a b} {-ERR syntax error}
            {xpending s g idle abc - + 10} {-ERR value is not an integer or out of range}
            {xpending s g - + abc} {-ERR value is not an integer or out of range}
            {xpending s g abc + 10} {-ERR Invalid stream ID specified as stream command argument}
            {xpending s g (18446744073709551615-18446744073709551615 + 10} {-ERR invalid start ID for the interval}
            {xpending s g - (0-0 10} {-ERR invalid end ID for the interval}
            {xpending s nosuch - + 10} {-NOGROUP No such key 's' or consumer group 'nosuch'}
            {xpending none g} {-NOGROUP No such key 'none' or consumer group 'g'}
        }
        foreach {arguments expected} {
            {- + 10} {1-1 2-1 3-1 4-1}  {- + 2} {1-1 2-1}  {(1-1 (4-1 10} {2-1 3-1}  {2 3-0 10} {2-1}  {- + 10 a}\
                {1-1 2-1 3-1}  {- + 10 b extra} 4-1
            {idle 0 - + 10 a} {1-1 2-1 3-1}  {idle -1 2 + 1 a} 2-1
        } {assert_equal $expected [ids [r xpending s g {*}$arguments]] $arguments}
        r xclaim s g a 0 2-1 idle 60000 justid
        assert_equal 2-1 [ids [r xpending s g idle 50000 - + 10]]
        assert_range [lindex [r xpending s g 2-1 2-1 1] 0 2] 60000 90000
    }

    test "XCLAIM" {
        make_group 4
        r xreadgroup group g a count 2 streams s >
        replies {
            {xclaim s g b 0 1-1} {* {* {$1-1} {* {$f} {$1}}}}
            {xclaim s g b 10000000 2-1} *
            {xclaim s g b 0 3-1} *
            {xclaim s g b 0 9-9 force} *
            {xclaim s g b 0 3-1 FORCE} {* {* {$3-1} {* {$f} {$3}}}}
            {xclaim s g b 0 4-1 force justid} {* {$4-1}}
            {xclaim s g b -5 2-1 1-1 2-1 justid} {* {$2-1} {$1-1} {$2-1}}
        }
        assert_equal {{1-1 b 2} {2-1 b 1} {3-1 b 2} {4-1 b 1}} [pending]
        r xclaim s g c 0 1-1 retrycount 7
        r xclaim s g c 0 2-1 retrycount -1 time 1000
        r xclaim s g c 0 3-1 retrycount 0 time 99999999999999 justid
        r xclaim s g c 0 4-1 idle 60000
        assert_equal {{1-1 c 7} {2-1 c 2} {3-1 c 0} {4-1 c 2}} [pending]
        assert_equal {2-1 4-1} [ids [r xpending s g idle 50000 - + 10]]
        replies {
            {xdel s 1-1} :1
            {xclaim s g d 0 1-1 2-1 justid} {* {$2-1}}
            {xpending s g} {* :3 {$2-1} {$4-1} {* {* {$c} {$2}} {* {$d} {$1}}}}
            {xclaim s g d 0 2-1 lastid 9-9 justid} {* {$2-1}}
            {xclaim s g d 0 2-1 lastid 5 justid} {* {$2-1}}
        }
        assert_equal 9-9 [group_info last-delivered-id]
        replies {
            {xclaim s g new 0 8-8} *
            {xclaim s g d 0 abc} {-ERR Unrecognized XCLAIM option 'abc'}
            {xclaim s g d 0 2-1 idle} {-ERR Unrecognized XCLAIM option 'idle'}
            {xclaim s g d abc 2-1} {-ERR Invalid min-idle-time argument for XCLAIM}
            {xclaim s g d 0 2-1 idle abc} {-ERR Invalid IDLE option argument for XCLAIM}
            {xclaim s g d 0 2-1 time abc} {-ERR Invalid TIME option argument for XCLAIM}
            {xclaim s g d 0 2-1 retrycount abc} {-ERR Invalid RETRYCOUNT option argument for XCLAIM}
            {xclaim s g d 0 2-1 lastid +} {-ERR Invalid stream ID specified as stream command argument}
            {xclaim s nosuch d abc 2-1} {-NOGROUP No such key 's' or consumer group 'nosuch'}
            {xclaim none g d 0 2-1} {-NOGROUP No such key 'none' or consumer group 'g'}
        }
        assert_equal -1 [consumer_info new inactive]
    }

    test "XAUTOCLAIM" {
        make_group 5
        r xreadgroup group g a streams s >
        replies {
            {xautoclaim s g b 0 - count 2} {* {$3-1} {* {* {$1-1} {* {$f} {$1}}} {* {$2-1} {* {$f} {$2}}}} *}
            {xautoclaim s g b 0 3-1 justid} {* {$0-0} {* {$3-1} {$4-1} {$5-1}} *}
            {xautoclaim s g b 10000000 0} {* {$0-0} * *}
            {xautoclaim s g b 0 (4-1 justid} {* {$0-0} {* {$5-1}} *}
            {xautoclaim s g b 0 + count 1} {* {$0-0} * *}
            {xdel s 1-1 3-1} :2
            {xautoclaim s g c 0 0 count 1 justid} {* {$2-1} * {* {$1-1}}}
            {xautoclaim s g c 0 0 count 2 justid} {* {$4-1} {* {$2-1}} {* {$3-1}}}
        }
        assert_equal {{2-1 c 2} {4-1 b 1} {5-1 b 1}} [pending]
        replies {
            {xautoclaim s g c 0 0 count 0} {-ERR COUNT must be > 0}
            {xautoclaim s g c 0 0 count abc} {-ERR COUNT must be > 0}
            {xautoclaim s g c 0 0 count 9223372036854775807} {-ERR COUNT must be > 0}
            {xautoclaim s g c 0 0 count} {-ERR syntax error}
            {xautoclaim s g c 0 0 foo} {-ERR syntax error}
            {xautoclaim s g c abc abc} {-ERR Invalid min-idle-time argument for XAUTOCLAIM}
            {xautoclaim s nosuch c 0 abc} {-ERR Invalid stream ID specified as stream command argument}
            {xautoclaim s g c 0 (18446744073709551615-18446744073709551615} {-ERR invalid start ID for the interval}
            {xautoclaim s nosuch c 0 0} {-NOGROUP No such key 's' or consumer group 'nosuch'}
        }
    }

    test "XAUTOCLAIM examines ten entries for each that it may claim, and returns the next start" {
        make_group 40
        r xreadgroup group g a streams s >
        r xclaim s g a 0 15-1 40-1 idle 60000 justid
        assert_equal {11-1 {} {}} [r xautoclaim s g b 50000 0 count 1 justid]
        assert_equal {16-1 15-1 {}} [r xautoclaim s g b 50000 11-1 count 1 justid]
        assert_equal {36-1 {} {}} [r xautoclaim s g b 50000 16-1 count 2 justid]
        assert_equal {0-0 40-1 {}} [r xautoclaim s g b 50000 36-1 count 2 justid]
    }

    test "how far groups are: entries-read and lag, with deleted entries" {
        make_group 5
        proc progress {} {list [group_info last-delivered-id] [group_info entries-read] [group_info lag]}
        assert_equal {0-0 {} 5} [progress]
        r xreadgroup group g a count 1 streams s >
        assert_equal {1-1 1 4} [progress]
        r xdel s 3-1
        assert_equal {1-1 1 {}} [progress]
        r xreadgroup group g a count 1 streams s >
        assert_equal {2-1 {} {}} [progress]
        r xreadgroup group g a count 1 streams s >
        assert_equal {4-1 {} {}} [progress]
        r xdel s 1-1 2-1
        assert_equal {4-1 {} 1} [progress]
        r xtrim s maxlen 1
        r xadd s 9-1 f v
        assert_equal {4-1 {} 2} [progress]
        r xreadgroup group g a streams s >
        assert_equal {9-1 6 0} [progress]
        r xgroup setid s g 4-1
        assert_equal {4-1 {} 2} [progress]
        r xtrim s maxlen 0
        assert_equal {4-1 {} 0} [progress]
    }

    test "entries-read is not counted on over an entry deleted behind the position of the group" {
        proc progress {} {list [group_info last-delivered-id] [group_info entries-read] [group_info lag]}
        make_group 4
        r xreadgroup group g a count 1 streams s >
        r xdel s 2-1
        r xreadgroup group g a count 1 streams s >
        assert_equal {3-1 {} {}} [progress]
        r xreadgroup group g a count 1 streams s >
        assert_equal {4-1 4 0} [progress]
        make_group 4
        r xreadgroup group g a count 1 streams s >
        r xdel s 1-1
        r xreadgroup group g a count 1 streams s >
        assert_equal {2-1 2 2} [progress]
    }

    test "XINFO GROUPS, CONSUMERS and STREAM FULL" {
        make_group 12
        r xreadgroup group g a count 11 streams s >
        r xreadgroup group g b count 1 streams s >
        r xgroup create s h {$}
        r xgroup createconsumer s g idler
        replies {
            {xinfo groups s} {*
                {* {$name} {$g} {$consumers} :3 {$pending} :12 {$last-delivered-id} {$12-1}\
                    {$entries-read} :12 {$lag} :0}
                {* {$name} {$h} {$consumers} :0 {$pending} :0 {$last-delivered-id} {$12-1}\
                    {$entries-read} nil$ {$lag} :0}}
            {xinfo consumers s nosuch} {-NOGROUP No such consumer group 'nosuch' for key name 's'}
            {xinfo consumers none g} {-ERR no such key}
            {xinfo groups none} {-ERR no such key}
            {xinfo consumers s h} *
        }
        assert_equal {{a 11} {b 1} {idler 0}} \
            [lmap c [r xinfo consumers s g] {list [dict get $c name] [dict get $c pending]}]
        assert_range [consumer_info a idle] 0 20000
        assert_range [consumer_info a inactive] 0 20000
        assert_equal -1 [consumer_info idler inactive]
        foreach {arguments count} {{} 10 {count 3} 3 {count 0} 12 {count -1} 10} {
            set full [r xinfo stream s full {*}$arguments]
            assert_equal {length radix-tree-keys radix-tree-nodes last-generated-id max-deleted-entry-id entries-added\
                recorded-first-entry-id entries groups} [dict keys $full]
            assert_equal $count [llength [dict get $full entries]]
            set group [lindex [dict get $full groups] 0]
            assert_equal {name last-delivered-id entries-read lag pel-count pending consumers} [dict keys $group]
            assert_equal 12 [dict get $group pel-count]
            assert_equal $count [llength [dict get $group pending]]
            assert_equal {1-1 a 1} [lreplace [lindex [dict get $group pending] 0] 2 2]
            set consumer [lindex [dict get $group consumers] 0]
            assert_equal {name seen-time active-time pel-count pending} [dict keys $consumer]
            assert_equal 11 [dict get $consumer pel-count]
            assert_equal [expr {min(11, $count)}] [llength [dict get $consumer pending]]
            assert_equal {1-1 1} [lreplace [lindex [dict get $consumer pending] 0] 1 1]
            assert_range [dict get $consumer seen-time] [expr {[clock milliseconds] - 20000}] \
                [expr {[clock milliseconds] + 1000}]
            assert_equal -1 [dict get [lindex [dict get $group consumers] 2] active-time]
        }
        set c [new_client -resp 3]
        assert_match {% {$length} :12 *} [$c -typed xinfo stream s full]
        assert_match {{% {$name} {$a} *} {% {$name} {$b} *} *} [lrange [$c -typed xinfo consumers s g] 1 end]
    }

    test "a client that waits for a group is answered when the key, its type or the group goes" {
        set no_group "-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option"
        foreach {command answer} \
            [list {del s} $no_group {rename s t} $no_group {xgroup destroy s g} $no_group flushall $no_group \
            {swapdb 0 1} $no_group \
                                      {set s x} "-WRONGTYPE Operation against a key holding the wrong kind of value"] {
            r flushall
            make_group 1
            r xgroup setid s g {$}
            set c [blocked_by xreadgroup group g a block 0 streams s >]
            r {*}$command
            assert_equal $answer [$c -readtyped] $command
            $c -close
        }
        r flushall
    }

    test "a client that waits for a group is served by new entries only" {
        make_group 2
        r xgroup setid s g {$}
        set c [blocked_by xreadgroup group g a block 0 streams s >]
        foreach command {{xgroup setid s g 0} {xdel s 1-1} {xgroup delconsumer s g a} {xadd s maxlen 0 3-1 f v}\
            {xgroup createconsumer s g b} {xsetid s 4-1}} {
            r {*}$command
        }
        wait_blocked 1
        r xadd s 5-1 f v
        assert_equal {{s {{5-1 {f v}}}}} [$c -read]
        assert_equal {{5-1 a 1}} [pending]
    }

    test "each entry is served to one waiting client, in the order in which they began to wait" {
        make_group 1
        r xgroup setid s g {$}
        set clients {}
        foreach name {a b c} {
            set client [new_client]
            $client -send xreadgroup group g $name block 0 count 1 streams s >
            lappend clients $client
            wait_blocked [llength $clients]
        }
        foreach command {multi {xadd s 2-1 f v} {xadd s 3-1 f v} exec} {r {*}$command}
        wait_blocked 1
        r xadd s 4-1 f v
        foreach client $clients id {2-1 3-1 4-1} {
            assert_equal [list [list s [list [list $id {f v}]]]] [$client -read]
            $client -close
        }
        assert_equal {{2-1 a 1} {3-1 b 1} {4-1 c 1}} [pending]
    }

    test "what reading and claiming did is repeated as XCLAIM and XGROUP" {
        r flushall
        make_group 4
        set f [new_follower]
        set c [new_client]
        set e [new_listener]
        # Valkey propagates neither the deliveries that are counted for a consumer's history nor consumers that own no
        # entry: its replicas do not have them.
        set valkey {
            {xreadgroup group g a streams s 0} {}
            {xreadgroup group g new streams s 0} {}
            {xclaim s g c 0 1-1} {{XCLAIM s g b 0 1-1 TIME * RETRYCOUNT 3 FORCE JUSTID LASTID 8-0}}
            {xautoclaim s g d 1000000 0} {}
        }
        with_config {notify-keyspace-events Et} {
            heard $f
            heard $e
            foreach {command repeated events} {
                {xreadgroup group g a count 2 streams s >}\
                    {MULTI {XCLAIM s g a 0 1-1 TIME * RETRYCOUNT 1 FORCE JUSTID LASTID 1-1}
                    {XCLAIM s g a 0 2-1 TIME * RETRYCOUNT 1 FORCE JUSTID LASTID 2-1}\
                        {XGROUP SETID s g 2-1 ENTRIESREAD 2} EXEC} {{xgroup-createconsumer s}}
                {xreadgroup group g b noack count 1 streams s >}\
                    {MULTI {XGROUP CREATECONSUMER s g b} {XGROUP SETID s g 3-1 ENTRIESREAD 3} EXEC}\
                    {{xgroup-createconsumer s}}
                {xreadgroup group g b noack count 1 streams s >} {{XGROUP SETID s g 4-1 ENTRIESREAD 4}} {}
                {xreadgroup group g a streams s 0}\
                    {MULTI {XCLAIM s g a 0 1-1 TIME * RETRYCOUNT 2 FORCE JUSTID LASTID 4-1}
                    {XCLAIM s g a 0 2-1 TIME * RETRYCOUNT 2 FORCE JUSTID LASTID 4-1} EXEC} {}
                {xreadgroup group g new streams s 0} {{XGROUP CREATECONSUMER s g new}} {{xgroup-createconsumer s}}
                {xclaim s g b 0 1} {} {}
                {xclaim s g b 0 01-1 lastid 7} {{XCLAIM s g b 0 01-1 TIME * RETRYCOUNT 3 FORCE JUSTID LASTID 7-0}} {}
                {xclaim s g b 0 9-9 lastid 8} {{XGROUP SETID s g 8-0 ENTRIESREAD 4}} {}
                {xdel s 1-1} {{xdel s 1-1}} {{xdel s}}
                {xclaim s g c 0 1-1}\
                    {MULTI {XCLAIM s g b 0 1-1 TIME * RETRYCOUNT 3 FORCE JUSTID LASTID 8-0}
                    {XGROUP CREATECONSUMER s g c} EXEC} {{xgroup-createconsumer s}}
                {xautoclaim s g d 1000000 0} {{XGROUP CREATECONSUMER s g d}} {{xgroup-createconsumer s}}
                {xautoclaim s g c 0 0} {{XCLAIM s g c 0 2-1 TIME * RETRYCOUNT 3 FORCE JUSTID LASTID 8-0}} {}
                {xack s g 2-1} {{xack s g 2-1}} {}
                {xack s g 2-1} {} {}
                {xgroup delconsumer s g c} {{xgroup delconsumer s g c}} {{xgroup-delconsumer s}}
                {xgroup delconsumer s g c} {} {}
                {xgroup setid s g 0} {{xgroup setid s g 0}} {{xgroup-setid s}}
                {xgroup destroy s g} {{xgroup destroy s g}} {{xgroup-destroy s}}
                {xgroup destroy s g} {} {}
            } {
                if {![server_is_ours] && [dict exists $valkey $command]} {set repeated [dict get $valkey $command]}
                r {*}$command
                set got [heard $f]
                assert {[llength $got] == [llength $repeated]} "$command: $got"
                foreach pattern $repeated words $got {assert_match $pattern $words $command}
                assert_equal $events [heard $e] $command
            }
            r xgroup create s g {$}
            heard $f
            $c -send xreadgroup group g w block 0 noack streams s >
            wait_blocked 1
            assert_equal {{XGROUP CREATECONSUMER s g w}} [heard $f]
            r xadd s 9-1 f v
            $c -read
            assert_equal {{xadd s 9-1 f v} {XGROUP SETID s g 9-1 ENTRIESREAD 5}} [heard $f]
        }
    }

    test "XCLAIM of the primary keeps its time, although the clock of the replica is behind" -needs {ours 1} {
        make_group 1
        set c [new_client]
        set future [expr {[clock milliseconds] + 1000000}]
        proc delivered {} {lindex [dict get [lindex [dict get [r xinfo stream s full] groups] 0] pending] 0 2}
        r xclaim s g a 0 1-1 time $future force
        assert_lessthan [delivered] $future
        $c debug role as-primary
        $c -send xclaim s g a 0 1-1 time $future force justid
        wait_for_condition 5000 {[delivered] == $future}
    }

    test "serving the clients that are blocked on a stream looks at each of them once" -needs {ours 1} {
        r del s
        r xgroup create s g $ mkstream
        set clients {}
        for {set i 0} {$i < 200} {incr i} {
            set c [new_client]
            $c -send xreadgroup group g c$i block 0 streams s >
            lappend clients $c
            # The first two are served first. With I/O threads the requests of the others may be reordered.
            if {$i < 2} {wait_for_condition 10000 {[info_field clients blocked_clients] == $i + 1}}
        }
        wait_for_condition 10000 {[info_field clients blocked_clients] == 200}
        set before [r debug blocking-visited]
        r xadd s 1-1 f v
        assert_equal 200 [expr {[r debug blocking-visited] - $before}]
        assert_equal {{s {{1-1 {f v}}}}} [[lindex $clients 0] -read]
        assert_equal 199 [info_field clients blocked_clients]
        r xadd s 2-1 f v
        assert_equal 399 [expr {[r debug blocking-visited] - $before}]
        assert_equal {{s {{2-1 {f v}}}}} [[lindex $clients 1] -read]
        foreach c $clients {$c -close}
        wait_for_condition 10000 {[info_field clients blocked_clients] == 0}
    }

    test "a group before the first entry is counted anew when it reads" {
        r del s
        foreach id {1-1 2-1} {r xadd s $id f v}
        r xgroup create s g 0 entriesread 10
        r xreadgroup group g c count 1 streams s >
        set group [lindex [r xinfo groups s] 0]
        assert_equal {1 1} [list [dict get $group entries-read] [dict get $group lag]]
        r xgroup setid s g 1-1 entriesread 10
        r xreadgroup group g c count 1 streams s >
        assert_equal 11 [dict get [lindex [r xinfo groups s] 0] entries-read]
    }
}
