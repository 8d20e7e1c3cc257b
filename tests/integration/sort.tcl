# SORT and SORT_RO.
# seconds: 2

start_server {tags {sort}} {
    test "orders, limits, patterns, storing, and invalid arguments" {
        r flushall
        replies {
            {RPUSH l 3 1 2 10} :4
            {SORT l} {* {$1} {$2} {$3} {$10}}
            {SORT l DESC} {* {$10} {$3} {$2} {$1}}
            {SORT l ALPHA} {* {$1} {$10} {$2} {$3}}
            {SORT l LIMIT 1 2} {* {$2} {$3}}
            {SORT l LIMIT -1 2} {* {$1} {$2}}
            {SORT l LIMIT 1 -1} {* {$2} {$3} {$10}}
            {SORT l LIMIT 10 2} *
            {SORT l LIMIT a 2} "-ERR value is not an integer or out of range"
            {SORT l LIMIT 1} "-ERR syntax error"
            {SORT l FOO} "-ERR syntax error"
            {SORT none} *
            {SORT l STORE d} :4
            {LRANGE d 0 -1} {* {$1} {$2} {$3} {$10}}
            {SORT none STORE d} :0
            {EXISTS d} :0
            {MSET w_1 3 w_2 2 w_3 1 w_10 4} +OK
            {SORT l BY w_*} {* {$3} {$2} {$1} {$10}}
            {SORT l BY w_* GET # GET w_* GET none_*} {* {$3} {$1} nil$ {$2} {$2} nil$ {$1} {$3} nil$ {$10} {$4} nil$}
            {SORT l BY nosort} {* {$3} {$1} {$2} {$10}}
            {SORT l BY nosort DESC} {* {$10} {$2} {$1} {$3}}
            {SORT l BY nosort GET w} {* nil$ nil$ nil$ nil$}
            {HSET h_1 f 9 g x} :2
            {HSET h_2 f 8 g y} :2
            {SORT l BY h_*->f} {* {$10} {$3} {$2} {$1}}
            {SORT l BY h_*->f GET h_*->g} {* nil$ nil$ {$y} {$x}}
            {SORT l BY h_*->} {* {$1} {$10} {$2} {$3}}
            {SORT l GET w_*->f} {* nil$ nil$ nil$ nil$}
            {RPUSH t b a C c} :4
            {SORT t} "-ERR One or more scores can't be converted into double"
            {SORT t ALPHA} {* {$C} {$a} {$b} {$c}}
            {SORT t ALPHA DESC} {* {$c} {$b} {$a} {$C}}
            {SORT t BY w_* ALPHA} {* {$b} {$a} {$C} {$c}}
            {SADD s 5 3 4 x} :4
            {SORT s} "-ERR One or more scores can't be converted into double"
            {SORT s ALPHA} {* {$3} {$4} {$5} {$x}}
            {SORT s BY nosort STORE d} :4
            {LRANGE d 0 -1} {* {$3} {$4} {$5} {$x}}
            {ZADD z 1 a 2 b 3 c} :3
            {SORT z BY nosort} {* {$a} {$b} {$c}}
            {SORT z BY nosort DESC LIMIT 0 2} {* {$c} {$b}}
            {SORT z} "-ERR One or more scores can't be converted into double"
            {SORT z ALPHA DESC} {* {$c} {$b} {$a}}
            {SET str x} +OK
            {SORT str} "-WRONGTYPE Operation against a key holding the wrong kind of value"
            {SORT_RO l} {* {$1} {$2} {$3} {$10}}
            {SORT_RO l STORE d} "-ERR syntax error"
            {SORT l STORE l} :4
            {LRANGE l 0 -1} {* {$1} {$2} {$3} {$10}}
            {SET w_1 abc} +OK
            {SORT l BY w_*} "-ERR One or more scores can't be converted into double"
            {SORT} "-ERR wrong number of arguments for 'sort' command"
            {SORT l GET} "-ERR syntax error"
            {SORT l GET # GET} "-ERR syntax error"
            {LRANGE d 0 -1} {* {$3} {$4} {$5} {$x}}
            {COMMAND GETKEYSANDFLAGS SORT l BY x STORE d} {* {* {$l} {* +RO +access}} {* {$d} {* +OW +update}}}
            {COMMAND GETKEYS SORT l STORE d STORE e} {* {$l} {$e}}
        }
        arity_errors {sort sort_ro}
    }

    test "SORT_RO takes the words of SORT but STORE" {
        r flushall
        r rpush l 3 1 2
        r mset w1 c w2 b w3 a
        replies {
            {sort l asc} {* {$1} {$2} {$3}}
            {sort_ro l asc} {* {$1} {$2} {$3}}
            {sort_ro l desc} {* {$3} {$2} {$1}}
            {sort_ro l limit 1 1} {* {$2}}
            {sort_ro l by w* alpha} {* {$3} {$2} {$1}}
            {sort_ro l alpha asc by w*} {* {$3} {$2} {$1}}
            {sort_ro l by w* alpha desc get # get w*} {* {$1} {$c} {$2} {$b} {$3} {$a}}
        }
    }

    test "SORT STORE sends sortstore, removes the expiry of the destination, and may store to its source" {
        r flushall
        r rpush l 3 1 2
        r set d old ex 1000
        set c [new_client]
        $c psubscribe __keyevent*
        r config set notify-keyspace-events EAn
        assert_equal 3 [r sort l store d]
        assert_equal -1 [r ttl d]
        assert_equal 3 [r sort l desc store l]
        assert_equal 0 [r sort nosuch store d]
        r config set notify-keyspace-events ""
        foreach event {{sortstore d} {sortstore l} {del d}} {
            lassign [$c -read] kind pattern channel key
            assert_equal $event [list [string range $channel 15 end] $key]
        }
        assert_equal {3 2 1} [r lrange l 0 -1]
    }

    test "SORT STORE of a long list keeps every element, large ones too" {
        r flushall
        set elements {}
        for {set i 0} {$i < 2000} {incr i} {lappend elements [randint 1000000]}
        r rpush l {*}$elements
        assert_equal 2000 [r sort l store d]
        assert_equal [lsort -integer $elements] [r lrange d 0 -1]
        assert_equal [lsort -integer -decreasing $elements] [r sort l desc]
        assert_equal [lrange [lsort -integer $elements] 100 149] [r sort l limit 100 50]
        r del l
        r rpush l b[string repeat x 20000] a[string repeat y 100000]
        assert_equal 2 [r sort l alpha store d]
        assert_equal a[string repeat y 100000] [r lindex d 0]
        foreach key {w_1 w_2} {r set $key [string repeat v 100000]}
        r del l
        r rpush l 1 2
        assert_equal [list [string repeat v 100000] [string repeat v 100000]] [r sort l get w_*]
    }

    test "SORT STORE with equal keys propagates the list: their order may differ elsewhere" -needs {ours 1} {
        r flushall
        set f [new_follower]
        r sadd s b a c
        foreach member {a b c} {r set w_$member equal}
        r set x_b 1
        foreach {options first} {{by w_* alpha} b {by none_* alpha desc} b {by x_* alpha desc} b} {
            heard $f
            r sort s {*}$options store d
            set list [r lrange d 0 -1]
            assert_equal [list MULTI {DEL d} [list RPUSH d {*}$list] EXEC] [heard $f] $options
            assert_equal $first [lindex $list 0]
        }
        foreach options {{alpha} {by nosort} {by w_* alpha limit 0 0}} {r sort s {*}$options store d}
        r rpush l 1 1
        heard $f
        r sort l by none_* alpha store d
        assert_equal {{sort l by none_* alpha store d}} [heard $f] "equal elements have no order"
    }

    test "SORT turns a sorted set into a skiplist" {
        foreach command {{sort z} {sort z alpha} {sort z by nosort limit 5 1} {sort_ro z by nosort} {sort z store to}} {
            r del z
            r zadd z 1 10 2 5
            assert_encoding listpack z
            r {*}$command
            assert_encoding skiplist z
            assert_equal {10 1 5 2} [r zrange z 0 -1 withscores]
        }
    }

    test "SORT sorts texts of any length, and by them" {
        r flushall
        set texts [lmap i {5 3 1 4 2} {string cat $i [string repeat x [expr {$i * 30000}]]}]
        r rpush l {*}[lrepeat 40 a] {*}$texts {*}[lrepeat 40 b]
        set sorted [list {*}[lsort $texts] {*}[lrepeat 40 a] {*}[lrepeat 40 b]]
        assert_equal $sorted [r sort l alpha]
        for {set i 0} {$i < 20} {incr i} {
            r rpush ids $i
            r set weight_$i [string repeat [format %c [expr {122 - $i}]] [expr {50000 + $i * 5000}]]
        }
        assert_equal [lreverse [r lrange ids 0 -1]] [r sort ids by weight_* alpha]
        assert_equal 20 [r sort ids by weight_* get weight_* alpha store d]
        assert_equal [r get weight_19] [lindex [r lrange d 0 0] 0]
    }

    test "SORT within a transaction sees what came before it" {
        r flushall
        foreach command {multi {rpush l 2 1} {sort l} {sort l store d} {lrange d 0 -1} exec} {set got [r {*}$command]}
        assert_equal {2 {1 2} 2 {1 2}} $got
    }

    test "SORT takes numbers as commands do: no blanks, no hexadecimal, not nothing" {
        r flushall
        foreach {text good} {4.9e-324 1 1e5 1 -inf 1 " 3" 0 0x10 0 "" 0 1e400 0 nan 0} {
            r del l
            r rpush l $text 2
            if {$good} {
                assert_same_elements [list $text 2] [r sort l]
            } else {
                assert_typed "-ERR One or more scores can't be converted into double" sort l
            }
        }
    }
}
